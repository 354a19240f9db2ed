"""What the protocols require, one check each, and where it is written.

A check is a short function of an adapter and a lab. It says what it wants by `expect`, and its
source is the program that a failure is reported with, so it uses nothing but its arguments and the
names of `cai_bridge.conformance`.
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
    """A text that requirements are taken from."""

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
    """An array is said to be where there is no memory: so is whatever else is judged of it."""


class UsedCapsuleError(UnmetError):
    """A capsule was handed out that somebody had used: so is whatever else is asked for."""


class NotApplicableError(Exception):
    """A requirement cannot be judged of this library, or here; the message says why."""


def expect(condition: object, evidence: str) -> None:
    """Fail the check with the evidence, unless the condition holds.

    Raises
    ------
    UnmetError
        It does not.
    """
    if not condition:
        raise UnmetError(evidence)


def given(value: T | None, reason: str) -> T:
    """Give a value on; leave the check without a verdict where there is none.

    Raises
    ------
    NotApplicableError
        It is None.
    """
    if value is None:
        raise NotApplicableError(reason)
    return value


def needs(condition: object, reason: str) -> None:
    """Leave the check without a verdict, unless the condition holds.

    Raises
    ------
    NotApplicableError
        It does not.
    """
    given(condition or None, reason)


@dataclass(frozen=True)
class Requirement:
    """One requirement of a specification.

    Attributes
    ----------
    name : str
        What it is called in reports, tests and lists of known failures, such as ``"cai-shape"``.
    role : str
        ``"producer"`` or ``"consumer"``: of whom it is required.
    level : str
        ``"must"``, or ``"should"`` for what the text recommends.
    specification : Specification
        The text.
    section : str
        The heading in it, and the entry or sentence.
    rule : str
        What is required, in a sentence.
    why : str
        What goes wrong otherwise.
    check : callable
        Called with the adapter, the lab, a `Case`, and with what is `given`; raises `UnmetError` or
        `NotApplicableError`, and may return the evidence.
    over : mapping
        The axes that it holds along, and their values; the first of each is its plain one.
    left_out : mapping
        The other axes that its door has, and why it holds along none of them.
    rests_on : tuple of str
        The requirements whose failure may be the cause of this one's.
    given : mapping
        What a check of several requirements is called with for this one, by name.
    of_cuda : bool
        Whether it is about streams, which memory of the CPU has not.
    about : str
        The axis whose values it is about, if its plain case has none of them; otherwise empty.
    tells : mapping
        By axis, the values that it alone tells of, if an array is not taken for one of them.
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
        """Which protocol it is about: ``"cai"``, ``"dlpack"``, ``"exchange"`` or ``"both"``."""
        return self.name.removeprefix("takes-").partition("-")[0]

    @property
    def quote(self) -> str:
        """The sentence that it is taken from; empty where the text has none of its own."""
        return quote_of(self)

    @property
    def citation(self) -> str:
        """The specification and its section, in a line."""
        return f"{self.specification.name}, {self.section}"

    def program(self, subject: str, where: str = "", case: Case | None = None) -> str:
        """Write the smallest program that shows whether `subject` meets it.

        Parameters
        ----------
        subject : str
            A library's name or ``module:factory``, as for `producer_named`; empty for one that has
            no name to find it by, which is then left to be filled in.
        where : str, optional
            As for `open_lab`; by default what that takes where nothing is said.
        case : Case, optional
            The case to show; by default the requirement's plain one.
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
            # What a check's annotations name is not all in the package's own names.
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
    """Tell along which axes a row holds, and why along no others of its door.

    Raises
    ------
    ValueError
        The row names an axis that its door has not, or a value that there is not.
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
    """Makes functions the checks of what is required of libraries by a door, with a row each.

    What such a requirement rests on is named without the door's prefix, or is another door's; it is
    `rests_on` unless said. A check is called with what is `given` under its parameters' names, and
    with what else its row says. The texts and the axes are in `requirements.toml`.
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
        """Make a function the check of a requirement of this door."""
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
    """List the requirements of a role, or all, by door; each after those that it rests on."""
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
    """List the requirements of a role that are named, or all.

    Raises
    ------
    ValueError
        A name that is none of a requirement of that role.
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
