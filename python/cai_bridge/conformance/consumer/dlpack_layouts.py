"""What DLPack requires of who reads an array: layouts and types."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import DLPackArray, Lab
from ..producer.arrays import collect
from ..requirement import DLPACK, expect
from .arrays import Takes
from .dlpack import TENSOR
from .layouts import (
    GAPS,
    OTHERS,
    expect_gaps_kept,
    expect_others_refused,
    expect_read_or_refused,
    handed,
    of_layout,
)

_dlpack = Takes("dlpack", DLPACK, ("values",))


@of_layout(_dlpack, TENSOR + "strides", "fortran")
def takes_dlpack_fortran(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(DLPackArray, lab, case), case)


@of_layout(_dlpack, TENSOR + "strides", "columns")
def takes_dlpack_columns(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(DLPackArray, lab, case), case)


@of_layout(_dlpack, TENSOR + "strides", "reversed")
def takes_dlpack_reversed(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(DLPackArray, lab, case), case)


@of_layout(_dlpack, TENSOR + "strides", "repeated")
def takes_dlpack_repeated(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(DLPackArray, lab, case), case)


@_dlpack(
    "dtypes",
    "C API: DLDataType",
    "items of each element type that the consumer has are read as that type",
    OTHERS,
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
    OTHERS,
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
