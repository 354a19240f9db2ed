"""What the CUDA Array Interface requires of who reads an array: layouts and types."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, Lab
from ..producer.arrays import collect
from ..requirement import CAI, expect
from .arrays import Takes
from .cai import PYTHON
from .layouts import (
    GAPS,
    OTHERS,
    expect_gaps_kept,
    expect_others_refused,
    expect_read_or_refused,
    handed,
    of_layout,
)

_cai = Takes("cai", CAI, ("values",))


@of_layout(_cai, PYTHON + "strides", "fortran")
def takes_cai_fortran(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(CaiArray, lab, case), case)


@of_layout(_cai, PYTHON + "strides", "columns")
def takes_cai_columns(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(CaiArray, lab, case), case)


@of_layout(_cai, PYTHON + "strides", "reversed")
def takes_cai_reversed(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(CaiArray, lab, case), case)


@of_layout(_cai, PYTHON + "strides", "repeated")
def takes_cai_repeated(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, handed(CaiArray, lab, case), case)


@_cai(
    "dtypes",
    PYTHON + "typestr",
    "items of each element type that the consumer has are read as that type",
    OTHERS,
)
def takes_cai_dtypes(c: ConsumerAdapter, lab: Lab) -> str:
    # bfloat16 and the 8-bit floats have typestrs that do not say which type they are.
    dtypes = [dtype for dtype in c.dtypes if not dtype.startswith(("bfloat", "float8"))]
    for dtype in dtypes:
        x = CaiArray(lab, (5,), dtype)
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} of {dtype} is read as {seen}")
    return ", ".join(dtypes)


@_cai(
    "other-types",
    PYTHON + "typestr",
    "items of an element type that the consumer does not have are refused, or read right",
    OTHERS,
    rests_on=("values", "dtypes"),
)
def takes_cai_other_types(c: ConsumerAdapter, lab: Lab) -> str:
    return expect_others_refused(c, lab, CaiArray)


@_cai(
    "unwritten",
    PYTHON + "data",
    "importing and reading an array writes neither to it nor around it",
    "the producer's data changes, or other data beside it",
)
def takes_cai_unwritten(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab)
    before = x.contents()
    c.values(c.copy(c.take(x)))
    collect()
    lab.synchronize()
    changed = [at for at, byte in enumerate(x.contents()) if byte != before[at]]
    expect(not changed, f"{len(changed)} bytes have changed, the first of them at {changed[:1]}")
    return "as before"


@_cai(
    "gaps",
    PYTHON + "strides",
    "a write to a strided array changes its items, and nothing between or beside them",
    "the producer's data changes beside the array that was handed over",
    over={"layout": GAPS},
    rests_on=("columns", "unwritten"),
)
def takes_cai_gaps(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_gaps_kept(c, lab, handed(CaiArray, lab, case))
