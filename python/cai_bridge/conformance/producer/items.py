"""What all doors require of a producer that says where an array's items are."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import ProducerAdapter
from ..cases import Axes, Case
from ..lab import Lab
from ..layouts import EVERY, OFFSETS, REVERSED, VALUES
from ..requirement import Check, Door
from .arrays import made
from .doors import TENSOR, NeedsDoor, cai, dlpack, exchange
from .values import Reads, expect_values, lazy_values

_LAYOUTS = {
    "values": (VALUES, ()),
    "offset": (OFFSETS, ("values",)),
    "reversed": (REVERSED, ("values", "offset")),
}
"""The layouts that a requirement is about, and what else it rests on."""

_FIELDS = {"cai": ("typestr", "data", "shape"), "dlpack": ("dtype", "shape")}


def _of_layouts(door: Door, name: str) -> Callable[[Check], Check]:
    """Make a function the check of what is required of some layouts by a door."""
    layouts, also = _LAYOUTS[name]
    over = {"layout": layouts, "dtype": ()}
    return door(name, over=over, rests_on=(*also, "strides", *_FIELDS[door.name]))


@exchange("values", over={"layout": EVERY, "dtype": ()}, rests_on=("table", *TENSOR))
@_of_layouts(dlpack, "reversed")
@_of_layouts(dlpack, "offset")
@_of_layouts(dlpack, "values")
@_of_layouts(cai, "reversed")
@_of_layouts(cai, "offset")
@_of_layouts(cai, "values")
def gives_values(
    p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, said: Reads
) -> str:
    needs_door(made(p, lab))
    return expect_values(p, lab, case, said)


_PARTS: Axes = {"layout": ("whole", "part")}


@dlpack("lazy", over=_PARTS, rests_on=("values", "offset"))
@cai("lazy", over=_PARTS, rests_on=("values", "offset"))
def gives_lazy(p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, said: Reads) -> str:
    needs_door(made(p, lab))
    return lazy_values(p, lab, case, said)
