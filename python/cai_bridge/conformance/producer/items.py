"""The requirements of all doors on how a producer describes an array's items."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import Check, Door, expect, needs
from .arrays import made
from .doors import TENSOR, ExportOf, NeedsDoor, cai, dlpack, exchange
from .values import Reads, expect_values, lazy_values

_ALSO = {"values": (), "offset": ("values",), "reversed": ("values", "offset")}
"""Further requirements that a requirement about certain layouts rests on."""

_FIELDS = {"cai": ("typestr", "data", "shape"), "dlpack": ("dtype", "shape")}


def _of_layouts(door: Door, name: str) -> Callable[[Check], Check]:
    """Register a function as the check of requirements about certain layouts, for a door."""
    return door(name, rests_on=(*_ALSO[name], "strides", *_FIELDS[door.name]))


@exchange("values", rests_on=("table", *TENSOR))
@_of_layouts(dlpack, "reversed")
@_of_layouts(dlpack, "offset")
@_of_layouts(dlpack, "values")
@_of_layouts(cai, "reversed")
@_of_layouts(cai, "offset")
@_of_layouts(cai, "values")
def gives_values(  # noqa: PLR0917
    p: ProducerAdapter,
    lab: Lab,
    case: Case,
    needs_door: NeedsDoor,
    said: Reads,
    export_of: ExportOf,
) -> str:
    needs_door(made(p, lab))
    return expect_values(p, lab, case, said, export_of)


BIG = 2**31 + 3
"""The number of items on an axis that takes no memory: one item, repeated."""


@exchange("extents", rests_on=("table",))
@dlpack("extents", rests_on=("shape",))
@cai("extents", rests_on=("shape",))
def gives_extents(
    p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, said: Reads
) -> str:
    x = made(p, lab, (1,))
    needs_door(x)
    shared = said(p.broadcast(x, (4,)), case).ptr == said(x, case).ptr
    needs(shared, "what is repeated is a copy")
    shape = said(p.broadcast(x, (BIG,)), case).shape
    expect(shape == (BIG,), f"the shape is {shape} for {BIG} items")
    return f"{shape}"


@dlpack("lazy", rests_on=("values", "offset"))
@cai("lazy", rests_on=("values", "offset"))
def gives_lazy(p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, said: Reads) -> str:
    needs_door(made(p, lab))
    return lazy_values(p, lab, case, said)
