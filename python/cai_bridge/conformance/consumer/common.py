"""What both protocols require of who reads an array: what is said of it is what is read.

A check here has the class of the kit's own arrays, which speak one of the two, as `kind`.
"""

from __future__ import annotations

from typing import Any

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, Lab, flat
from ..producer.arrays import collect
from ..requirement import ARRAY_API, CAI, DLPACK, expect
from .arrays import (
    PYTHON,
    TENSOR,
    Refusal,
    attempt,
    expect_read,
    expect_read_or_refused,
    expect_refused,
    takes,
)
from .layouts import (
    GAPS,
    OTHERS,
    Handed,
    expect_gaps_kept,
    expect_others_refused,
    handed,
    of_layout,
)

_cai, _dlpack = takes("cai", CAI), takes("dlpack", DLPACK)
_of_cais, _of_dlpacks = takes("cai", CAI, "values"), takes("dlpack", DLPACK, "values")
_TYPESTR, _DTYPE = PYTHON + "typestr", "C API: DLDataType"


@_dlpack(
    "values",
    TENSOR + "data, shape, dtype",
    "the items of a C-contiguous tensor are read where it says",
    OTHERS,
)
@_cai(
    "values",
    PYTHON + "shape, typestr, data",
    "the items of a C-contiguous array are read where the dict says",
    OTHERS,
)
def takes_values(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    x = kind(lab, (2, 3, 4))
    return expect_read(c, x)


_SHARED = (
    "the consumer's array is the producer's memory, not a copy of it",
    "neither side sees the other's writes, and the memory is used twice",
)


@takes("dlpack", ARRAY_API)("shared", "from_dlpack: copy", *_SHARED, level="should")
@_cai("shared", PYTHON + "data", *_SHARED, level="should")
def takes_shared(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    x = kind(lab, (4,))
    y = c.take(x)
    lab.synchronize()
    lab.put(x.region, 9.0)
    seen = c.values(c.copy(y))
    expect(set(flat(seen)) == {9.0}, f"the memory was set to 9, and is read as {seen}")
    return "what is written to the memory is read"


_EMPTY = "programs fail when their data happens to be empty"


@_dlpack(
    "zero-size",
    TENSOR + "data",
    "the consumer takes a tensor without items, whose data pointer is NULL",
    _EMPTY,
)
@_cai(
    "zero-size",
    PYTHON + "data: zero-size arrays",
    "the consumer takes an array without items, whose pointer is 0",
    _EMPTY,
)
def takes_zero_size(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    for shape in ((0, 3), (3, 0), (0,)):
        x = kind(lab, shape)
        expect_read(c, x, f"an array of shape {shape}")
    return "taken"


_REDUCED = "the consumer refuses the results of reductions"


@_dlpack(
    "scalar",
    TENSOR + "ndim",
    "the consumer takes a tensor without dimensions, with NULL shape and strides, as one item",
    _REDUCED,
)
@_cai(
    "scalar",
    PYTHON + "shape",
    "the consumer takes an array without dimensions, which has one item",
    _REDUCED,
)
def takes_scalar(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    x = kind(lab, ())
    return expect_read(c, x)


_CONSTANT = "it writes to memory that its owner believes constant"


@_dlpack(
    "readonly",
    "C API: DLPACK_FLAG_BITMASK_READ_ONLY",
    "the consumer does not write a tensor with the READ_ONLY flag",
    _CONSTANT,
    level="should",
)
@_cai(
    "readonly",
    PYTHON + "data: the read-only flag",
    "the consumer does not write an array whose flag is true",
    _CONSTANT,
)
def takes_readonly(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    x = kind(lab, readonly=True)
    y = attempt(c.take, x)
    if isinstance(y, Refusal):
        return f"{y}"
    written = attempt(c.fill, y, 9.0)
    lab.synchronize()
    expect(lab.get(x.region) == x.values, f"it was written: it holds {lab.get(x.region)}")
    return f"the write was {written}" if written else "the write went elsewhere"


@of_layout(_of_dlpacks, "repeated")
@of_layout(_of_dlpacks, "reversed")
@of_layout(_of_dlpacks, "columns")
@of_layout(_of_dlpacks, "fortran")
@of_layout(_of_cais, "repeated")
@of_layout(_of_cais, "reversed")
@of_layout(_of_cais, "columns")
@of_layout(_of_cais, "fortran")
def takes_layout(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_read_or_refused(c, handed(kind, lab, case), case)


_OWN = ("items of each element type that the consumer has are read as that type", OTHERS)


@_of_dlpacks("dtypes", _DTYPE, *_OWN)
@_of_cais("dtypes", _TYPESTR, *_OWN)
def takes_dtypes(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    dtypes = list(c.dtypes)
    if kind is CaiArray:
        # bfloat16 and the 8-bit floats have typestrs that do not say which type they are.
        dtypes = [dtype for dtype in dtypes if not dtype.startswith(("bfloat", "float8"))]
    for dtype in dtypes:
        x = kind(lab, (5,), dtype)
        expect_read(c, x, f"{x.values} of {dtype}")
    return ", ".join(dtypes)


_OTHER = (
    "items of an element type that the consumer does not have are refused, or read right",
    OTHERS,
)


@_of_dlpacks("other-types", _DTYPE, *_OTHER, rests_on=("values", "dtypes"))
@_of_cais("other-types", _TYPESTR, *_OTHER, rests_on=("values", "dtypes"))
def takes_other_types(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    return expect_others_refused(c, lab, kind)


_UNWRITTEN = (
    "importing and reading an array writes neither to it nor around it",
    "the producer's data changes, or other data beside it",
)


@_of_dlpacks("unwritten", TENSOR + "data", *_UNWRITTEN)
@_of_cais("unwritten", PYTHON + "data", *_UNWRITTEN)
def takes_unwritten(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    x = kind(lab)
    before = x.contents()
    c.values(c.copy(c.take(x)))
    collect()
    lab.synchronize()
    changed = [at for at, byte in enumerate(x.contents()) if byte != before[at]]
    expect(not changed, f"{len(changed)} bytes have changed, the first of them at {changed[:1]}")
    return "as before"


_KEPT = (
    "a write to a strided array changes its items, and nothing between or beside them",
    "the producer's data changes beside the array that was handed over",
)
_BESIDE = ("columns", "unwritten")


@_of_dlpacks("gaps", TENSOR + "strides", *_KEPT, over={"layout": GAPS}, rests_on=_BESIDE)
@_of_cais("gaps", PYTHON + "strides", *_KEPT, over={"layout": GAPS}, rests_on=_BESIDE)
def takes_gaps(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_gaps_kept(c, lab, handed(kind, lab, case))


@_dlpack(
    *("foreign-device", "C API: DLDevice"),
    "the consumer refuses memory of a device type that it does not have",
    "it uses another device's addresses as its own",
    odd={"device": (10, 0)},
    told="memory of a ROCm device",
)
@takes("cai", CAI, "values", "stream")(
    *("stream-zero", PYTHON + "stream: 0"),
    "the consumer refuses a dict that names stream 0",
    "0 may mean None, the legacy or the per-thread default stream",
    level="should",
    odd={"stream": 0},
    told="stream 0",
)
@_cai(
    *("version", PYTHON + "version"),
    "the consumer refuses a dict of a version after 3",
    "unknown entries may change what the others mean",
    level="should",
    odd={"version": 4},
    told="version 4",
)
def takes_none_odd(
    c: ConsumerAdapter, lab: Lab, kind: type[Handed], odd: dict[str, Any], told: str
) -> str:
    x = kind(lab, **odd)
    return expect_refused(c, x, told)
