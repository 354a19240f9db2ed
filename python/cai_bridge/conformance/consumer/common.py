"""What both protocols require of who reads an array: what is said of it is what is read.

A check here has the class of the kit's own arrays, which speak one of the two, as `kind`.
"""

from __future__ import annotations

from typing import Any

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, Lab, flat
from ..producer.arrays import collect
from ..requirement import expect
from .arrays import (
    Refusal,
    attempt,
    expect_read,
    expect_read_or_refused,
    expect_refused,
    takes,
)
from .layouts import (
    GAPS,
    Handed,
    expect_gaps_kept,
    expect_others_refused,
    handed,
    of_layout,
)

_cai, _dlpack = takes("cai"), takes("dlpack")
_of_cais, _of_dlpacks = takes("cai", "values"), takes("dlpack", "values")


@_dlpack("values")
@_cai("values")
def takes_values(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    x = kind(lab, (2, 3, 4))
    return expect_read(c, x)


@takes("dlpack")("shared")
@_cai("shared")
def takes_shared(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    x = kind(lab, (4,))
    y = c.take(x)
    lab.synchronize()
    lab.put(x.region, 9.0)
    seen = c.values(c.copy(y))
    expect(set(flat(seen)) == {9.0}, f"the memory was set to 9, and is read as {seen}")
    return "what is written to the memory is read"


@_dlpack("zero-size")
@_cai("zero-size")
def takes_zero_size(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    for shape in ((0, 3), (3, 0), (0,)):
        x = kind(lab, shape)
        expect_read(c, x, f"an array of shape {shape}")
    return "taken"


@_dlpack("scalar")
@_cai("scalar")
def takes_scalar(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    x = kind(lab, ())
    return expect_read(c, x)


@_dlpack("readonly")
@_cai("readonly")
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


@_of_dlpacks("dtypes")
@_of_cais("dtypes")
def takes_dtypes(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    dtypes = list(c.dtypes)
    if kind is CaiArray:
        # bfloat16 and the 8-bit floats have typestrs that do not say which type they are.
        dtypes = [dtype for dtype in dtypes if not dtype.startswith(("bfloat", "float8"))]
    for dtype in dtypes:
        x = kind(lab, (5,), dtype)
        expect_read(c, x, f"{x.values} of {dtype}")
    return ", ".join(dtypes)


@_of_dlpacks("other-types", rests_on=("values", "dtypes"))
@_of_cais("other-types", rests_on=("values", "dtypes"))
def takes_other_types(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    return expect_others_refused(c, lab, kind)


@_of_dlpacks("unwritten")
@_of_cais("unwritten")
def takes_unwritten(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    x = kind(lab)
    before = x.contents()
    c.values(c.copy(c.take(x)))
    collect()
    lab.synchronize()
    changed = [at for at, byte in enumerate(x.contents()) if byte != before[at]]
    expect(not changed, f"{len(changed)} bytes have changed, the first of them at {changed[:1]}")
    return "as before"


_BESIDE = ("columns", "unwritten")


@_of_dlpacks("gaps", over={"layout": GAPS}, rests_on=_BESIDE)
@_of_cais("gaps", over={"layout": GAPS}, rests_on=_BESIDE)
def takes_gaps(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_gaps_kept(c, lab, handed(kind, lab, case))


@_dlpack("foreign-device", odd={"device": (10, 0)}, told="memory of a ROCm device")
@takes("cai", "values", "stream")("stream-zero", odd={"stream": 0}, told="stream 0")
@_cai("version", odd={"version": 4}, told="version 4")
def takes_none_odd(
    c: ConsumerAdapter, lab: Lab, kind: type[Handed], odd: dict[str, Any], told: str
) -> str:
    x = kind(lab, **odd)
    return expect_refused(c, x, told)
