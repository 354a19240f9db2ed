"""Layouts: views of a C-contiguous array, by indexing, permuting and broadcasting.

`View` computes the same views by arithmetic, so the kit knows which items a library must show.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Step = tuple[str, Any]
ALL = slice(None)


@dataclass(frozen=True)
class View:
    """The places of a view's items, counted in items of the C-contiguous array behind it."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> View:
        """Return the view of a whole C-contiguous array."""
        return cls(0, shape, tuple(math.prod(shape[at + 1 :]) for at in range(len(shape))))

    def index(self, key: tuple[slice, ...]) -> View:
        """Take a slice of each axis."""
        offset, shape, strides = self.offset, [], []
        for one, extent, stride in zip(key, self.shape, self.strides, strict=True):
            places = range(*one.indices(extent))
            offset += places.start * stride
            shape.append(len(places))
            strides.append(places.step * stride)
        return View(offset, tuple(shape), tuple(strides))

    def permute(self, axes: tuple[int, ...]) -> View:
        """Put the axes in another order."""
        shape, strides = (tuple(some[at] for at in axes) for some in (self.shape, self.strides))
        return View(self.offset, shape, strides)

    def broadcast(self, shape: tuple[int, ...]) -> View:
        """Repeat axes of one item."""
        pairs = zip(self.shape, self.strides, shape, strict=True)
        strides = tuple(0 if have == 1 != want else step for have, step, want in pairs)
        return View(self.offset, shape, strides)

    def take(self, step: Step) -> View:
        """Apply one step of a layout."""
        view: View = getattr(self, step[0])(step[1])
        return view

    def places(self) -> list[int]:
        """List the places of the items, the last axis fastest."""
        walks = (range(extent) for extent in self.shape)
        steps = (
            sum(at * step for at, step in zip(index, self.strides, strict=True))
            for index in itertools.product(*walks)
        )
        return [self.offset + step for step in steps]

    @property
    def compact_strides(self) -> tuple[int, ...]:
        """The strides, in items, of a C-contiguous array of this shape."""
        return View.of(self.shape).strides

    @property
    def compact(self) -> bool:
        """Whether the items are C-contiguous."""
        wanted = self.compact_strides
        rows = zip(self.shape, self.strides, wanted, strict=True)
        return 0 in self.shape or all(n == 1 or step == want for n, step, want in rows)


def _index(*key: slice) -> Step:
    return "index", key


BACK = slice(None, None, -1)
SECOND = slice(None, None, 2)
BUT_FIRST = slice(1, None)

LAYOUTS: dict[str, tuple[tuple[int, ...], Sequence[Step]]] = {
    "whole": ((3, 4), ()),
    "1-D": ((6,), ()),
    "3-D": ((2, 3, 4), ()),
    "0-d": ((), ()),
    "4-D": ((2, 3, 2, 2), ()),
    "5-D": ((2, 1, 2, 3, 2), ()),
    "size-1 axes": ((3, 1, 4), ()),
    "one item": ((1,), ()),
    "empty": ((0, 3), ()),
    "empty in the last axis": ((3, 0), ()),
    "an empty slice": ((3, 4), (_index(slice(3, None), ALL),)),
    "rows": ((3, 4), (_index(BUT_FIRST, ALL),)),
    "last columns": ((3, 4), (_index(ALL, BUT_FIRST),)),
    "part of 1-D": ((6,), (_index(slice(2, 5)),)),
    "a slice of a slice": ((3, 4), (_index(BUT_FIRST, ALL), _index(BUT_FIRST, BUT_FIRST))),
    "a slice of columns": ((3, 4), (_index(ALL, SECOND), _index(BUT_FIRST, BUT_FIRST))),
    "columns": ((3, 4), (_index(ALL, SECOND),)),
    "every second row": ((3, 4), (_index(SECOND, ALL),)),
    "every second of 1-D": ((6,), (_index(SECOND),)),
    "one column": ((3, 4), (_index(ALL, slice(1, 2)),)),
    "one column of three axes": ((2, 3, 4), (_index(ALL, ALL, slice(1, 2)),)),
    "transposed": ((3, 4), (("permute", (1, 0)),)),
    "permuted": ((2, 3, 4), (("permute", (1, 2, 0)),)),
    "permuted 4-D": ((2, 3, 2, 2), (("permute", (2, 0, 3, 1)),)),
    "broadcast": ((1, 4), (("broadcast", (3, 4)),)),
    "a row repeated": ((3, 4), (_index(slice(1, 2), ALL), ("broadcast", (3, 4)))),
    "rows reversed": ((3, 4), (_index(BACK, ALL),)),
    "columns reversed": ((3, 4), (_index(ALL, BACK),)),
    "both reversed": ((3, 4), (_index(BACK, BACK),)),
    "1-D reversed": ((6,), (_index(BACK),)),
    "reversed twice": ((3, 4), (_index(BACK, ALL), _index(BACK, ALL))),
}
"""Each layout of a producer's: the shape of the array, and the steps that are taken of it."""

NAMED = ("Fortran", "permuted", "every second", "column", "reversed", "repeated", "empty")
"""What the layouts of the kit's own arrays are called by, which consumers are handed."""

MAY_BE_REFUSED = ("reversed", "repeated")
"""Traits of layouts that not each library has; `traits_of` tells them."""


def may_be_refused(layout: str) -> bool:
    """Return whether a library may lack a layout: negative strides, and repeated items."""
    return any(trait in traits_of(layout) for trait in MAY_BE_REFUSED)


def view_of(layout: str) -> View:
    """Return the view of a layout."""
    shape, steps = LAYOUTS[layout]
    view = View.of(shape)
    for step in steps:
        view = view.take(step)
    return view


@functools.cache
def traits_of(layout: str) -> frozenset[str]:
    """Return a layout's traits; a fault for one layout may show in all layouts with its traits."""
    if layout not in LAYOUTS:
        named = (trait for trait in NAMED if trait in layout)
        return frozenset([next(named, layout)])
    view = view_of(layout)
    held = [step for step, n in zip(view.strides, view.shape, strict=True) if n > 1]
    told = {
        "offset": view.offset != 0,
        "strides": not view.compact,
        "reversed": any(step < 0 for step in held),
        "repeated": 0 in held,
        "permuted": [*map(abs, held)] != sorted(map(abs, held), reverse=True),
        "empty": 0 in view.shape,
        "no axes": not view.shape,
        "many axes": len(view.shape) > 3,
    }
    return frozenset(name for name, holds in told.items() if holds)
