"""Layouts of the kit's own arrays, which consumers are handed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cai_bridge.testing._values import DTYPES

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, DLPackArray, Lab
from ..requirement import Check, Door, expect, needs
from .arrays import Refusal, attempt

Handed = CaiArray | DLPackArray

SHAPES: dict[str, tuple[tuple[int, ...], str]] = {
    "whole": ((3, 4), "C"),
    "Fortran's order": ((3, 4), "F"),
    "Fortran's order of three axes": ((2, 3, 4), "F"),
    "permuted": ((2, 3, 4), "rotated"),
    "columns": ((3, 4), "columns"),
    "every second of 1-D": ((5,), "columns"),
    "every second of three axes": ((2, 3, 4), "columns"),
    "every second row": ((3, 4), "rows"),
    "every second column": ((3, 4), "last"),
    "rows reversed": ((3, 4), "reversed"),
    "columns reversed": ((3, 4), "last reversed"),
    "both reversed": ((3, 4), "all reversed"),
    "1-D reversed": ((5,), "reversed"),
    "three axes reversed": ((2, 3, 4), "all reversed"),
    "rows repeated": ((3, 4), "repeated"),
    "columns repeated": ((3, 4), "last repeated"),
    "1-D repeated": ((5,), "repeated"),
    "three axes, the first repeated": ((2, 3, 4), "repeated"),
}
"""Each layout: the shape, and where the items lie."""

FORTRAN = ("Fortran's order", "Fortran's order of three axes", "permuted")
COLUMNS = (
    *("columns", "every second of 1-D", "every second of three axes"),
    *("every second row", "every second column"),
)
REVERSED = (
    *("rows reversed", "columns reversed", "both reversed"),
    *("1-D reversed", "three axes reversed"),
)
REPEATED = (
    *("rows repeated", "columns repeated", "1-D repeated"),
    "three axes, the first repeated",
)
GAPS = COLUMNS

_LAYOUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fortran": (FORTRAN, ()),
    "columns": (COLUMNS, ("fortran",)),
    "reversed": (REVERSED, ("fortran", "columns")),
    "repeated": (REPEATED, ("fortran", "columns")),
}
"""The layouts that a requirement is about, and what else it rests on."""


def of_layout(door: Door, name: str) -> Callable[[Check], Check]:
    """Make a function the check of what is required of some layouts by a door."""
    layouts, also = _LAYOUTS[name]
    over = {"layout": layouts, "dtype": ()}
    return door(name, over=over, rests_on=("values", "dtypes", *also))


def handed(kind: type[Handed], lab: Lab, case: Case, **more: Any) -> Any:
    """Make an array of the kit's own, of a case's layout and type."""
    vague = kind is CaiArray and DTYPES[case.dtype].typestr[1] == "V"
    needs(not vague, f"the typestr of {case.dtype} does not say which type it is")
    shape, layout = SHAPES[case.layout]
    return kind(lab, shape, case.dtype, layout=layout, **more)


_TELLING = {"b": True, "i": -1, "f": -1.5, "c": -1.5 - 2j}


def expect_others_refused(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    """Hand over items of each type that the consumer does not have.

    Raises
    ------
    UnmetError
        One is taken, and read as other values.
    """
    told = []
    for dtype in DTYPES:
        letter, size = DTYPES[dtype].typestr[1], DTYPES[dtype].itemsize
        if dtype in c.dtypes or (letter == "V" and kind is CaiArray):
            continue
        value: Any = _TELLING.get(letter, 2 ** (8 * size) - 1 if letter == "u" else None)
        x = kind(lab, (5,), dtype, value=value)
        seen = attempt(lambda: c.values(c.copy(c.take(x))))  # noqa: B023 - it is called at once
        right = isinstance(seen, Refusal) or x.holds(seen)
        expect(right, f"{x.values} of {dtype}, which it does not have, is read as {seen}")
        told.append(dtype if right else "")
    return f"{', '.join(told)}: refused, or read right" if told else "it has all types"


def expect_gaps_kept(c: ConsumerAdapter, lab: Lab, x: Any) -> str:
    """Have the consumer fill a strided array: what lies between its items stays.

    Raises
    ------
    UnmetError
        It changed.
    """
    y = attempt(c.take, x)
    if isinstance(y, Refusal):
        return f"{y}"
    before = x.contents()
    refused = attempt(c.fill, y, 9.0)
    if isinstance(refused, Refusal):
        return f"the write was {refused}"
    lab.synchronize()
    base = x.memory.ptr
    own = {at for ptr, n in x.region.spans() for at in range(ptr - base, ptr - base + n)}
    after = x.contents()
    changed = [at for at, byte in enumerate(after) if byte != before[at] and at not in own]
    expect(not changed, f"{len(changed)} bytes between or beside the items have changed")
    return "as before"
