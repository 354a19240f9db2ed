"""The cases that a requirement is judged in: combinations of the values in `axes.toml`.

First each value is tried with plain values on all other axes. Then every pair of values is tried,
and in a thorough lab every triple of values of different kinds.
"""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from cai_bridge.testing._values import DTYPES

from .layouts import traits_of

Axes = Mapping[str, Sequence[str]]
Rows = list[tuple[str, ...]]


@functools.cache
def declared() -> dict[str, dict[str, Any]]:
    """Read the axes: the meaning of each, and its values by role, and by role and door."""
    text = files(__package__).joinpath("axes.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


AXES = tuple(declared())


def named_values(axis: str, role: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return the values once each, with ``"@rows"`` replaced by the group of that name."""
    groups = declared()[axis].get(f"{role}-groups", {})
    found = (groups[one[1:]] if one.startswith("@") else [one] for one in values)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(found)))


def values_of(axis: str, role: str, door: str) -> tuple[str, ...]:
    """List the values of an axis for a role's door; empty if the door has no such axis."""
    one = declared()[axis]
    return named_values(axis, role, one.get(f"{role}-{door}", one.get(role, ())))


def _plain(axis: str) -> str:
    lists = (value for value in declared()[axis].values() if isinstance(value, list))
    return str(next(lists)[0])


PLAIN = {axis: _plain(axis) for axis in AXES}
"""What each axis is for a requirement that leaves it out."""


class Case:
    """One of the cases that a requirement is judged in: a value for each axis.

    Parameters
    ----------
    **values : str
        The values that differ from the plain case, by axis.

    Attributes
    ----------
    looked_at : set of str
        The axes that a check has asked for.
    """

    def __init__(self, **values: str) -> None:
        unknown = values.keys() - PLAIN.keys()
        if unknown:
            raise TypeError(f"axis: got {sorted(unknown)[0]!r}; allowed: {', '.join(AXES)}")
        self._odd = {axis: one for axis, one in values.items() if one != PLAIN[axis]}
        self.looked_at: set[str] = set()

    def __getattr__(self, axis: str) -> str:
        if axis not in PLAIN:
            raise AttributeError(axis)
        self.looked_at.add(axis)
        return self.at(axis)

    def at(self, axis: str) -> str:
        """Return the value of an axis without adding the axis to `looked_at`."""
        return self._odd.get(axis, PLAIN[axis])

    def but(self, **values: str) -> Case:
        """Make a case with other values on some axes."""
        made = Case(**{**self._odd, **values})
        made.looked_at = self.looked_at
        return made

    @property
    def odd(self) -> Mapping[str, str]:
        """The values that differ from the plain case, by axis."""
        return dict(self._odd)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self._odd == other._odd

    def __hash__(self) -> int:
        return hash(frozenset(self._odd.items()))

    def __str__(self) -> str:
        told = (f"{axis} {self._odd[axis]!r}" for axis in AXES if axis in self._odd)
        return ", ".join(told) or "the plain case"

    def __repr__(self) -> str:
        told = (f"{axis}={self._odd[axis]!r}" for axis in AXES if axis in self._odd)
        return f"Case({', '.join(told)})"

    def to_dict(self) -> dict[str, str]:
        """Return the case as data for JSON."""
        return {axis: self.at(axis) for axis in AXES}


def with_dtypes(over: Axes, dtypes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Replace the element types of the axis by a library's, a type of 4 bytes first, if any."""
    values = {axis: tuple(some) for axis, some in over.items()}
    if "dtype" in values:
        known = sorted(dtypes, key=lambda one: one != PLAIN["dtype"])
        values["dtype"] = tuple(known) or (PLAIN["dtype"],)
    return values


def single_cases(over: Mapping[str, tuple[str, ...]]) -> tuple[Case, ...]:
    """List the plain case, and the cases with one value that is not plain."""
    plain = {axis: some[0] for axis, some in over.items()}
    rows = [plain] + [{**plain, axis: one} for axis, some in over.items() for one in some[1:]]
    return tuple(Case(**row) for row in rows)


def combined_cases(
    over: Mapping[str, tuple[str, ...]], *, thorough: bool = False
) -> tuple[Case, ...]:
    """Only one type of each size and one layout of each kind is combined.

    Only one type of each size and one layout of each kind is combined.

    Parameters
    ----------
    over : mapping
        The values of each axis that are judged.
    thorough : bool, optional
        Whether every triple of values occurs, too, and every pair with every layout.
    """
    axes = [axis for axis, some in over.items() if len(some) > 1]
    kinds = tuple(_kinds(axis, over[axis]) for axis in axes)
    found = list(_covering(kinds, 2))
    if thorough:
        every = (over[axis] if axis == "layout" else kinds[at] for at, axis in enumerate(axes))
        found += (*_covering(tuple(every), 2), *_covering(kinds, 3))
    plain = {axis: some[0] for axis, some in over.items()}
    cases = (Case(**{**plain, **dict(zip(axes, row, strict=True))}) for row in found)
    known = set(single_cases(over))
    return tuple(one for one in dict.fromkeys(cases) if one not in known)


def cases_of(over: Axes, dtypes: Sequence[str], *, thorough: bool = False) -> tuple[Case, ...]:
    """List all cases of a requirement; the plain one is the first."""
    values = with_dtypes(over, dtypes)
    return single_cases(values) + combined_cases(values, thorough=thorough)


def _kinds(axis: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Keep one value of each kind: one type of each size, one layout for each set of traits."""
    kind: Any = {"dtype": _size, "layout": traits_of}.get(axis)
    if kind is None:
        return values
    return tuple({kind(one): one for one in reversed(values)}.values())[::-1]


def _size(dtype: str) -> int:
    known = DTYPES.get(dtype)
    return known.itemsize if known else 0


@functools.cache
def _covering(axes: tuple[tuple[str, ...], ...], strength: int) -> tuple[tuple[str, ...], ...]:
    """Choose rows so that every combination of `strength` values of different axes occurs."""
    left = {
        tuple(zip(at, some, strict=True))
        for at in itertools.combinations(range(len(axes)), strength)
        for some in itertools.product(*(axes[one] for one in at))
    }
    rows: Rows = []
    for together in sorted(left):
        if together in left:
            row = _filled(axes, dict(together), left, strength)
            rows.append(row)
            left -= set(itertools.combinations(enumerate(row), strength))
    return tuple(rows)


def _filled(
    axes: tuple[tuple[str, ...], ...], fixed: dict[int, str], left: set[Any], strength: int
) -> tuple[str, ...]:
    """Complete a row with the values that cover most of the combinations still left."""
    for at, axis in enumerate(axes):
        if at not in fixed:
            known = list(itertools.combinations(sorted(fixed.items()), strength - 1))

            def covered(value: str, at: int = at, known: Any = known) -> int:
                return sum(tuple(sorted((*one, (at, value)))) in left for one in known)

            fixed[at] = max(axis, key=covered)
    return tuple(fixed[at] for at in range(len(axes)))


def explains(cause: Case, over: Axes, consequence: Case) -> bool:
    """Return whether a failure in one case may explain another requirement's failure in another.

    A failure in a plain case explains failures in every case. A failure that needs a certain layout
    explains only failures for layouts with the same traits.
    """
    for axis, values in over.items():
        mine, other = cause.at(axis), consequence.at(axis)
        if axis == "layout" and traits_of(mine) <= traits_of(other):
            continue
        if mine not in (PLAIN[axis] if axis in ("layout", "dtype") else values[0], other):
            return False
    return True


def shared(failed: Sequence[Case], every: Sequence[Case]) -> str:
    """Return the values that the failed cases share and no passed case has; empty if none."""
    told = []
    for axis in AXES:
        values = {one.at(axis) for one in failed}
        others = {one.at(axis) for one in every} - values
        if others and len(values) <= 3:
            told.append(f"{axis} {' or '.join(sorted(map(repr, values)))}")
    return ", ".join(told)
