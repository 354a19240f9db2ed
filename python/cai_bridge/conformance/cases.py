"""The cases that a requirement is judged in: layouts, types, work, streams and exports.

A requirement names the axes that it holds over, and the values of each; the first value of an axis
is its plain one. A large product is thinned to all pairs of values, unless the lab is thorough.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cai_bridge.testing._values import DTYPES

from .layouts import traits_of

WHOLE = 24
"""How many cases a product may have to be judged whole."""

PLAIN = {"layout": "whole", "dtype": "float32", "work": "a write", "stream": "its own"}
"""What each axis is for a requirement that does not vary it."""


@dataclass(frozen=True)
class Case:
    """One of the cases that a requirement is judged in.

    Attributes
    ----------
    layout : str
        What is taken of an array, such as ``"rows"``; see `conformance.layouts`.
    dtype : str
        The element type.
    work : str
        What is pending: ``"a write"``, ``"two writes"``, ``"a copy"``: the array is the result of
        one; or ``"a read"``.
    stream : str
        Where the work is: on a stream of the library's (``"its own"``), on the ``"default"`` one,
        first on one and then on another (``"moved"``), or on one that is no longer the current one
        (``"left"``).
    export : str
        Which export is judged, and by which arguments it is asked for.
    """

    layout: str = PLAIN["layout"]
    dtype: str = PLAIN["dtype"]
    work: str = PLAIN["work"]
    stream: str = PLAIN["stream"]
    export: str = "first"

    def __str__(self) -> str:
        told = (f"{one.name} {getattr(self, one.name)!r}" for one in fields(self))
        plain = Case()
        odd = (
            text
            for text, one in zip(told, fields(self), strict=True)
            if getattr(self, one.name) != getattr(plain, one.name)
        )
        return ", ".join(odd) or "the plain case"

    def __repr__(self) -> str:
        plain = Case()
        odd = (
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)
            if getattr(self, one.name) != getattr(plain, one.name)
        )
        return f"Case({', '.join(odd)})"

    def to_dict(self) -> dict[str, str]:
        """Give the case as data for JSON."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


AXES = tuple(one.name for one in fields(Case))
Axes = Mapping[str, Sequence[str]]


def cases_of(over: Axes, dtypes: Sequence[str], *, thorough: bool = False) -> tuple[Case, ...]:
    """List the cases of a requirement; the plain one is the first.

    Parameters
    ----------
    over : mapping
        The values of each axis; none for ``"dtype"`` stands for the library's own types.
    dtypes : sequence of str
        The library's types. One of 4 bytes is the plain one, where it has any.
    thorough : bool, optional
        Whether a large product is judged whole.
    """
    if not over:
        return (Case(),)
    values = {axis: tuple(some) for axis, some in over.items()}
    if "dtype" in values:
        wanted = values["dtype"] or tuple(dtypes)
        known = [one for one in wanted if one in dtypes]
        known.sort(key=lambda one: one != PLAIN["dtype"])
        values["dtype"] = tuple(known) or (PLAIN["dtype"],)
    whole = thorough or math.prod(map(len, values.values())) <= WHOLE
    rows = list(itertools.product(*values.values())) if whole else _thinned(values)
    return tuple(Case(**dict(zip(values, row, strict=True))) for row in rows)


def _thinned(values: dict[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Choose rows with all pairs of values; of the types of one size only one goes into pairs."""
    some = dict(values)
    if "dtype" in some:
        some["dtype"] = tuple({_size(one): one for one in reversed(some["dtype"])}.values())[::-1]
        some["dtype"] = tuple(sorted(some["dtype"], key=lambda one: one != values["dtype"][0]))
    rows = list(_pairs(tuple(some.values())))
    plain = {axis: one[0] for axis, one in values.items()}
    others = [one for one in values.get("dtype", ()) if one not in some["dtype"]]
    return rows + [tuple({**plain, "dtype": one}.values()) for one in others]


def _size(dtype: str) -> int:
    known = DTYPES.get(dtype)
    return known.itemsize if known else 0


@functools.cache
def _pairs(axes: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Choose rows so that each two values of two axes are together in one; the first is plain.

    Each value is also there with all others plain, so that a failure can be told by one axis.
    """
    plain = tuple(axis[0] for axis in axes)
    rows = [plain]
    for at, axis in enumerate(axes):
        rows += [(*plain[:at], value, *plain[at + 1 :]) for value in axis[1:]]
    left = {
        ((one, a), (two, b))
        for one, two in itertools.combinations(range(len(axes)), 2)
        for a in axes[one]
        for b in axes[two]
    }
    for row in rows:
        left -= _pairs_in(row)
    for pair in sorted(left):
        if pair not in left:
            continue
        fixed = dict(pair)
        row = _filled(axes, fixed, left)
        rows.append(row)
        left -= _pairs_in(row)
    return tuple(rows)


def _pairs_in(row: tuple[str, ...]) -> set[Any]:
    return set(itertools.combinations(enumerate(row), 2))


def _filled(axes: tuple[tuple[str, ...], ...], fixed: dict[int, str], left: set[Any]) -> Any:
    """Fill a row that has two values with those that cover most pairs that are left."""
    for at, axis in enumerate(axes):
        if at not in fixed:
            known = tuple(fixed.items())

            def covered(value: str, at: int = at, known: Any = known) -> int:
                new = (at, value)
                return sum(tuple(sorted((new, one))) in left for one in known)

            fixed[at] = max(axis, key=covered)
    return tuple(fixed[at] for at in range(len(axes)))


def explains(cause: Case, over: Axes, consequence: Case) -> bool:
    """Tell whether a failure in one case may be the cause of another requirement's in another.

    A failure in a plain case explains those in every case; one that needs a certain layout, only
    those of layouts with the same traits.
    """
    plain = Case()
    for axis, values in over.items():
        mine, other = getattr(cause, axis), getattr(consequence, axis)
        if axis == "layout" and traits_of(mine) <= traits_of(other):
            continue
        first = values[0] if values else getattr(plain, axis)
        if axis == "layout":
            first = plain.layout
        if mine not in (first, other):
            return False
    return True


def shared(failed: Sequence[Case], every: Sequence[Case]) -> str:
    """Tell by which values of the axes failures differ from what passed; empty if by none."""
    told = []
    for axis in AXES:
        values = {getattr(one, axis) for one in failed}
        others = {getattr(one, axis) for one in every} - values
        if others and len(values) <= 3:
            told.append(f"{axis} {' or '.join(sorted(map(repr, values)))}")
    return ", ".join(told)
