"""The protocols' requirements, each with its check and its source in the specification.

A check is a short function of an adapter and a lab, which calls `expect`. Reports print its source
as the program that shows a failure. So it uses only its arguments and the names of
`cai_bridge.conformance`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal, TypeVar

from .cases import AXES, Axes, Case, named_values, single_cases, values_of, with_dtypes

Role = Literal["producer", "consumer"]
Level = Literal["must", "should"]
Check = Callable[..., str | None]
T = TypeVar("T")


@dataclass(frozen=True)
class Specification:
    """A text that contains requirements."""

    name: str
    url: str


CAI = Specification(
    "CUDA Array Interface (Version 3)",
    "https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html",
)
DLPACK = Specification("DLPack 1.3", "https://dmlc.github.io/dlpack/latest/")
ARRAY_API = Specification(
    "Python array API standard 2024.12", "https://data-apis.org/array-api/2024.12/"
)


class UnmetError(AssertionError):
    """A requirement is not met; the message is the evidence."""


class NoMemoryError(UnmetError):
    """An array reports an address without memory, so every other requirement fails, too."""


class UsedCapsuleError(UnmetError):
    """A producer handed out a used capsule, so every other requirement fails, too."""


class NotApplicableError(Exception):
    """A requirement cannot be judged for this library, or in this lab; the message says why."""


def expect(condition: object, evidence: str) -> None:
    """Fail the check with `evidence`, unless the condition holds.

    Raises
    ------
    UnmetError
        The condition does not hold.
    """
    if not condition:
        raise UnmetError(evidence)


def given(value: T | None, reason: str) -> T:
    """Return `value`; skip the check if it is None.

    Raises
    ------
    NotApplicableError
        `value` is None.
    """
    if value is None:
        raise NotApplicableError(reason)
    return value


def needs(condition: object, reason: str) -> None:
    """Skip the check, unless the condition holds.

    Raises
    ------
    NotApplicableError
        The condition does not hold.
    """
    given(condition or None, reason)


@dataclass(frozen=True)
class Requirement:
    """One requirement of a specification.

    Attributes
    ----------
    name : str
        The name in reports, tests and lists of known failures, such as ``"cai-shape"``.
    role : str
        ``"producer"`` or ``"consumer"``: the side that must meet the requirement.
    level : str
        ``"must"``, or ``"should"`` for a recommendation.
    specification : Specification
        The specification.
    section : str
        The heading, and the entry or sentence under it.
    rule : str
        The requirement, in one sentence.
    why : str
        The damage if a library does not meet it.
    check : callable
        Called with the adapter, the lab, a `Case` and the arguments in `given`. Raises `UnmetError`
        or `NotApplicableError`, and may return the evidence.
    over : mapping
        The axes to judge along, and their values. Each axis's first value is its plain value.
    left_out : mapping
        The other axes of its door, and why they are not judged.
    rests_on : tuple of str
        The requirements whose failure may cause this requirement's failure.
    given : mapping
        Further arguments of the check, by name, for a check of several requirements.
    of_cuda : bool
        Whether the requirement is about streams, which CPU memory lacks.
    about : str
        The axis that the requirement is about, if its plain case has none of the axis's unusual
        values; otherwise empty.
    tells : mapping
        By axis, the values whose refusals only this requirement reports.
    """

    name: str
    role: Role
    level: Level
    specification: Specification
    section: str
    rule: str
    why: str
    check: Check
    over: Axes = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    rests_on: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    of_cuda: bool = False
    about: str = ""
    tells: Axes = field(default_factory=dict)

    @property
    def door(self) -> str:
        """The protocol: ``"cai"``, ``"dlpack"``, ``"exchange"`` or ``"both"``."""
        return self.name.removeprefix("takes-").partition("-")[0]

    @property
    def quote(self) -> str:
        """The sentence in the specification; empty if the text has no such sentence."""
        return quote_of(self)

    @property
    def citation(self) -> str:
        """The specification and its section, in one line."""
        return f"{self.specification.name}, {self.section}"

    def program(self, subject: str, where: str = "", case: Case | None = None) -> str:
        """Write the smallest program that shows whether `subject` meets the requirement.

        Parameters
        ----------
        subject : str
            A library's name or ``module:factory``, as for `producer_named`. If empty, the program
            has a gap to fill in.
        where : str, optional
            The lab, as for `open_lab`; by default its default.
        case : Case, optional
            The case to show; by default the requirement's plain case.
        """
        source = textwrap.dedent(inspect.getsource(self.check))
        body = source[source.index("def ") :]
        made = f"{self.role}_named({subject!r})"
        if not subject:
            made = f"as_{self.role}(...)  # what you gave to check_{self.role}"
        known = {name: getattr(one, "__name__", repr(one)) for name, one in self.given.items()}
        shown_case = case or self._plain_case()
        known["case"] = repr(shown_case)
        parameters = inspect.signature(self.check).parameters.values()
        names = [one.name for one in parameters if one.default is one.empty or one.name in known]
        shown = ", ".join(known.get(name, name) for name in names)
        call = f"{self.check.__name__}({shown})"
        if shown_case.at("around") != "nothing":
            call = f"surrounded({names[0]}, lab, {shown_case!r}, lambda: {call})"
        return (
            f"# {self.name}: {self.rule}\n# {self.citation}\n"
            # A check's annotations may use names that the package does not export.
            "from __future__ import annotations\n\n"
            "from cai_bridge.conformance import *\n\n\n"
            f"{body}\n\n"
            f"with open_lab({repr(where) if where else ''}) as lab, lab.fresh():\n"
            f"    {names[0]} = {made}\n"
            f"    {call}\n"
        )

    def _plain_case(self) -> Case:
        return single_cases(with_dtypes(self.over, (Case().dtype,)))[0]


@functools.cache
def _read(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def quote_of(one: Requirement) -> str:
    """Find the sentence of a requirement: by its name, or by the longest part of its section."""
    quotes = _read("quotes.toml")
    if one.name in quotes["names"]:
        return str(quotes["names"][one.name])
    found = [part for part in quotes["sections"] if part in one.section]
    return str(quotes["sections"][max(found, key=len)]) if found else ""


_REQUIREMENTS: dict[str, Requirement] = {}
_MODULES = (
    "producer.cai",
    "producer.cai_layouts",
    "producer.cai_streams",
    "producer.dlpack",
    "producer.dlpack_arguments",
    "producer.dlpack_layout",
    "producer.dlpack_streams",
    "producer.dlpack_lifetimes",
    "producer.exchange",
    "producer.exchange_import",
    "producer.items",
    "producer.order",
    "producer.both",
    "consumer.common",
    "consumer.cai",
    "consumer.order",
    "consumer.cai_return",
    "consumer.dlpack",
    "consumer.dlpack_asking",
    "consumer.dlpack_lifetime",
)


def _along(role: Role, door: str, row: Mapping[str, Any]) -> tuple[Axes, dict[str, str]]:
    """Return the axes of a row with their values, and why its door's other axes are left out.

    Raises
    ------
    ValueError
        The row names an axis that its door lacks, or an unknown value.
    """
    family = _read("families.toml")[row["family"]]
    over: dict[str, tuple[str, ...]] = {}
    left_out: dict[str, str] = {}
    known = {axis: values for axis in AXES if (values := values_of(axis, role, door))}
    for axis in {**row.get("over", {}), **row.get("out", {})}:
        if axis not in known:
            raise ValueError(f"axis: got {axis!r}; allowed: {', '.join(known)}")
    for axis, values in known.items():
        named = row.get("over", {}).get(axis)
        reason = row.get("out", {}).get(axis) or family.get("out", {}).get(axis)
        if reason and not named:
            left_out[axis] = reason
            continue
        named = named or family.get("over", {}).get(axis) or values
        over[axis] = named_values(axis, role, named)
    return over, left_out


_DOORS = ("cai", "dlpack", "exchange", "both")
_SPECIFICATIONS = {"CAI": CAI, "DLPack": DLPACK, "array API": ARRAY_API}


@dataclass(frozen=True)
class Door:
    """Registers functions as checks of the requirements of a door, each with its row.

    `rests_on` names requirements without the door's prefix, or requirements of another door; by
    default it is the door's own list. The check is called with the values of `given` and of its
    row, by parameter name. The texts and the axes are in `requirements.toml`.
    """

    role: Role
    name: str
    rests_on: Iterable[str] = ()
    given: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self,
        name: str,
        *,
        rests_on: Iterable[str] | None = None,
        **given: Any,
    ) -> Callable[[Check], Check]:
        """Register a function as the check of a requirement of this door."""
        prefix = f"takes-{self.name}-" if self.role == "consumer" else f"{self.name}-"
        rests = self.rests_on if rests_on is None else rests_on
        full = [
            one if one.partition("-")[0] in _DOORS else prefix + one for one in rests if one != name
        ]

        def register(check: Check) -> Check:
            if prefix + name in _REQUIREMENTS:
                got = f"name: got {prefix + name!r}, which is one already; allowed: another one"
                raise ValueError(got)
            wanted = inspect.signature(check).parameters
            known = {one: self.given[one] for one in self.given if one in wanted}
            texts = _read("requirements.toml")[prefix + name]
            over, left_out = _along(self.role, self.name, texts)
            _REQUIREMENTS[prefix + name] = Requirement(
                name=prefix + name,
                role=self.role,
                level=texts.get("level", "must"),
                specification=_SPECIFICATIONS[texts["text"]],
                section=texts["section"],
                rule=texts["rule"],
                why=texts["why"],
                check=check,
                over=over,
                left_out=left_out,
                rests_on=tuple(full),
                given={**known, **given},
                of_cuda=texts.get("of_cuda", _read("families.toml")[texts["family"]]["of_cuda"]),
                about=texts.get("about", ""),
                tells={
                    axis: named_values(axis, self.role, values)
                    for axis, values in texts.get("tells", {}).items()
                },
            )
            return check

        return register


def requirements(role: Role | None = None) -> tuple[Requirement, ...]:
    """List the requirements of a role, or all, by door; each after its own requirements."""
    for module in _MODULES:
        importlib.import_module(f"cai_bridge.conformance.{module}")
    ordered: dict[str, Requirement] = {}

    def add(one: Requirement) -> None:
        for name in one.rests_on:
            add(_REQUIREMENTS[name])
        ordered[one.name] = one

    for one in sorted(_REQUIREMENTS.values(), key=lambda one: _DOORS.index(one.door)):
        add(one)
    return tuple(one for one in ordered.values() if role in (None, one.role))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the existing name closest to an unknown one; empty if none is close."""
    import difflib  # noqa: PLC0415

    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f" (did you mean {found[0]!r}?)" if found else ""


def chosen(role: Role, only: str | Iterable[str] | None) -> tuple[Requirement, ...]:
    """List the named requirements of a role, or all of them.

    Raises
    ------
    ValueError
        The role has no requirement of this name.
    """
    every = {one.name: one for one in requirements(role)}
    if only is None:
        return tuple(every.values())
    if isinstance(only, bytes) or not isinstance(only, Iterable):
        raise TypeError(f"only: got {type(only).__name__}; allowed: names of requirements")
    names = [only] if isinstance(only, str) else list(only)
    if not names:
        raise ValueError("only: got no name; allowed: None, or names of requirements")
    for name in names:
        if name not in every:
            close = did_you_mean(name, every)
            raise ValueError(f"only: got {name!r}{close}; allowed: {', '.join(every)}")
    return tuple(every[name] for name in names)
