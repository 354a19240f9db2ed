"""What all doors require of a producer that says where an array's items are."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import ProducerAdapter
from ..cases import Axes, Case
from ..lab import Lab
from ..layouts import EVERY, OFFSETS, REVERSED, VALUES
from ..requirement import Check, Door
from .arrays import made
from .doors import EXPORT, PYTHON, TENSOR, NeedsDoor, cai, dlpack, exchange
from .values import Reads, expect_values, lazy_values

_OTHERS = "a consumer computes with other numbers"
_NEGATIVE = (
    "the strides of a slice with a negative step are negative, and {} is that of its first item; "
    "or the slice is refused"
)
_LAYOUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "values": (VALUES, (), _OTHERS),
    "offset": (OFFSETS, ("values",), "a consumer computes with items before the slice"),
    "reversed": (
        *(REVERSED, ("values", "offset")),
        "a consumer reads the items in another order, or reads past the end of the array",
    ),
}
"""What is required of layouts: of which, what else that rests on, and why."""

_FIELDS = {"cai": ("typestr", "data", "shape"), "dlpack": ("dtype", "shape")}


def _of_layouts(door: Door, name: str, section: str, rule: str) -> Callable[[Check], Check]:
    """Make a function the check of what is required of some layouts by a door."""
    layouts, also, why = _LAYOUTS[name]
    over = {"layout": layouts, "dtype": ()}
    rests_on = (*also, "strides", *_FIELDS[door.name])
    return door(name, section, rule, why, over=over, rests_on=rests_on)


@exchange(
    *("values", EXPORT, "the tensor says where the array's items are", _OTHERS),
    over={"layout": EVERY, "dtype": ()},
    rests_on=("table", *TENSOR),
)
@_of_layouts(dlpack, "reversed", "C API: DLTensor.strides", _NEGATIVE.format("data"))
@_of_layouts(
    *(dlpack, "offset", "C API: DLTensor.data, byte_offset"),
    "data and byte_offset of a slice give the address of its first item",
)
@_of_layouts(
    *(dlpack, "values", "C API: DLTensor"),
    "data, byte_offset, shape and strides together say where the array's items are",
)
@_of_layouts(cai, "reversed", PYTHON + "strides", _NEGATIVE.format("the pointer"))
@_of_layouts(
    *(cai, "offset", PYTHON + "data"),
    "the pointer of a slice is the address of its first item",
)
@_of_layouts(
    *(cai, "values", PYTHON + "shape, typestr, data, strides"),
    "together they say where the array's items are",
)
def gives_values(
    p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, said: Reads
) -> str:
    needs_door(made(p, lab))
    return expect_values(p, lab, case, said)


_LAZY = ("an array with recorded operations says its values, or is refused", _OTHERS)
_PARTS: Axes = {"layout": ("whole", "part")}


@dlpack("lazy", "C API: DLTensor.data", *_LAZY, over=_PARTS, rests_on=("values", "offset"))
@cai("lazy", PYTHON + "data", *_LAZY, over=_PARTS, rests_on=("values", "offset"))
def gives_lazy(p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, said: Reads) -> str:
    needs_door(made(p, lab))
    return lazy_values(p, lab, case, said)
