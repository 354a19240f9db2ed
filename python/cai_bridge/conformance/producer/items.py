"""What all doors require of a producer that says where an array's items are."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import Check, Door
from .arrays import made
from .doors import TENSOR, ExportOf, NeedsDoor, cai, dlpack, exchange
from .values import Reads, expect_values, lazy_values

_ALSO = {"values": (), "offset": ("values",), "reversed": ("values", "offset")}
"""What else a requirement of some layouts rests on."""

_FIELDS = {"cai": ("typestr", "data", "shape"), "dlpack": ("dtype", "shape")}


def _of_layouts(door: Door, name: str) -> Callable[[Check], Check]:
    """Make a function the check of what is required of some layouts by a door."""
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


@dlpack("lazy", rests_on=("values", "offset"))
@cai("lazy", rests_on=("values", "offset"))
def gives_lazy(p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, said: Reads) -> str:
    needs_door(made(p, lab))
    return lazy_values(p, lab, case, said)
