"""What DLPack requires of who reads an array: layouts and types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import DLPackArray, Lab
from ..producer.arrays import collect
from ..requirement import DLPACK, Check, expect
from .arrays import Takes
from .dlpack import TENSOR
from .layouts import (
    COLUMNS,
    FORTRAN,
    GAPS,
    REPEATED,
    REVERSED,
    expect_gaps_kept,
    expect_others_refused,
    expect_read_or_refused,
    handed,
)

_OTHERS = "it computes with other numbers than the producer's"
_dlpack = Takes("dlpack", DLPACK, ("values",))


def _layout(
    name: str, what: str, layouts: Sequence[str], rests_on: Iterable[str], why: str = _OTHERS
) -> Callable[[Check], Check]:
    rule = f"the items of {what} are read where the strides say, or the consumer refuses the array"
    over = {"layout": layouts, "dtype": ()}
    return _dlpack(
        name, TENSOR + "strides", rule, why, over=over, rests_on=("values", "dtypes", *rests_on)
    )


@_layout(
    "fortran",
    "an array in Fortran's order, or with permuted axes",
    FORTRAN,
    (),
)
def takes_dlpack_fortran(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(DLPackArray, lab, case), case)


@_layout(
    "columns",
    "every second item along one axis or all",
    COLUMNS,
    ("fortran",),
)
def takes_dlpack_columns(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(DLPackArray, lab, case), case)


@_layout(
    "reversed",
    "an array with a negative stride",
    REVERSED,
    ("fortran", "columns"),
    "it reads memory before the array",
)
def takes_dlpack_reversed(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(DLPackArray, lab, case), case)


@_layout(
    "repeated",
    "an array with a stride of 0",
    REPEATED,
    ("fortran", "columns"),
    "it reads memory past the end of the array",
)
def takes_dlpack_repeated(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(DLPackArray, lab, case), case)


@_dlpack(
    "dtypes",
    "C API: DLDataType",
    "items of each element type that the consumer has are read as that type",
    _OTHERS,
)
def takes_dlpack_dtypes(c: ConsumerAdapter, lab: Lab) -> str:
    dtypes = c.dtypes
    for dtype in dtypes:
        x = DLPackArray(lab, (5,), dtype)
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} of {dtype} is read as {seen}")
    return ", ".join(dtypes)


@_dlpack(
    "other-types",
    "C API: DLDataType",
    "items of an element type that the consumer does not have are refused, or read right",
    _OTHERS,
    rests_on=("values", "dtypes"),
)
def takes_dlpack_other_types(c: ConsumerAdapter, lab: Lab) -> str:
    return expect_others_refused(c, lab, DLPackArray)


@_dlpack(
    "unwritten",
    TENSOR + "data",
    "importing and reading an array writes neither to it nor around it",
    "the producer's data changes, or other data beside it",
)
def takes_dlpack_unwritten(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab)
    before = x.contents()
    c.values(c.copy(c.take(x)))
    collect()
    lab.synchronize()
    changed = [at for at, byte in enumerate(x.contents()) if byte != before[at]]
    expect(not changed, f"{len(changed)} bytes have changed, the first of them at {changed[:1]}")
    return "as before"


@_dlpack(
    "gaps",
    TENSOR + "strides",
    "a write to a strided array changes its items, and nothing between or beside them",
    "the producer's data changes beside the array that was handed over",
    over={"layout": GAPS},
    rests_on=("columns", "unwritten"),
)
def takes_dlpack_gaps(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_gaps_kept(c, lab, handed(DLPackArray, lab, case))
