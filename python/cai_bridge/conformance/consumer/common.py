"""The requirements of both protocols on a reader: it must read what the array describes.

Each check gets the class of the kit's own arrays that speak one of the protocols, as `kind`.
"""

from __future__ import annotations

from typing import Any

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import DLPackArray, Lab, flat
from ..producer.arrays import collect
from ..refusals import Refusal, attempt
from ..requirement import expect, needs
from .arrays import (
    expect_read,
    expect_read_or_refused,
    expect_refused,
    prepared,
    taken,
    takes,
)
from .dlpack_lifetime import expect_deleted
from .layouts import Handed, expect_gaps_kept, expect_others_refused, handed

_cai, _dlpack = takes("cai"), takes("dlpack")
_of_cais, _of_dlpacks = takes("cai", "values"), takes("dlpack", "values")
_TYPES = ("values", "dtypes")


@_of_dlpacks("dtypes")
@_of_cais("dtypes")
@_dlpack("scalar")
@_cai("scalar")
@_dlpack("zero-size")
@_cai("zero-size")
@_dlpack("values")
@_cai("values")
def takes_values(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    x = handed(kind, lab, case)
    return expect_read(c, lab, x, case)


@takes("dlpack")("shared")
@_cai("shared")
def takes_shared(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    x = handed(kind, lab, case)
    with prepared(c, lab, x, case):
        y = taken(c, x, case)
        lab.synchronize()
        lab.put(x.region, 9.0)
        seen = c.values(c.copy(y))
    expect(set(flat(seen)) == {9.0}, f"the memory was set to 9, and is read as {seen}")
    return "what is written to the memory is read"


@_dlpack("readonly")
@_cai("readonly")
def takes_readonly(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    case = case.but(flag="read-only")
    x = handed(kind, lab, case)
    with prepared(c, lab, x, case):
        y = attempt(c.take, x)
        if isinstance(y, Refusal):
            return f"{y}"
        written = attempt(c.fill, y, 9.0)
    lab.synchronize()
    expect(lab.get(x.region) == x.values, f"it was written: it holds {lab.get(x.region)}")
    return f"the write was {written}" if written else "the write went elsewhere"


@_of_dlpacks("repeated", rests_on=(*_TYPES, "fortran", "columns"))
@_of_dlpacks("reversed", rests_on=(*_TYPES, "fortran", "columns"))
@_of_dlpacks("columns", rests_on=(*_TYPES, "fortran"))
@_of_dlpacks("fortran", rests_on=_TYPES)
@_of_cais("repeated", rests_on=(*_TYPES, "fortran", "columns"))
@_of_cais("reversed", rests_on=(*_TYPES, "fortran", "columns"))
@_of_cais("columns", rests_on=(*_TYPES, "fortran"))
@_of_cais("fortran", rests_on=_TYPES)
def takes_layout(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    x = handed(kind, lab, case)
    told = expect_read_or_refused(c, lab, x, case)
    if isinstance(x, DLPackArray) and told.startswith("refused"):
        expect_deleted(lab, x, f"it is {told}; ")
    return told


@_of_dlpacks("writable")
@_of_cais("writable")
def takes_writable(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    other = kind(lab)
    plain = attempt(c.fill, c.take(other), 1.0)
    lab.synchronize()
    needs(not isinstance(plain, Refusal), f"the plain array is not written either: {plain}")
    x = handed(kind, lab, case)
    with prepared(c, lab, x, case):
        y = taken(c, x, case)
        told = attempt(c.fill, y, 9.0)
        lab.synchronize()
        odd = x.layout != "C" and isinstance(told, Refusal)
        needs(not odd, f"the layout is not written: {told}")
        # A legacy tensor has no flag that allows or forbids writing.
        legacy = isinstance(x, DLPackArray) and "legacy" in x.forms
        flagless = legacy and isinstance(told, Refusal)
        needs(not flagless, f"what has no flags is not written: {told}")
        expect(not isinstance(told, Refusal), f"the write of a writable array was {told}")
        seen = {*flat(c.values(c.copy(y)))}
    expect(seen <= {9.0}, f"it was written to 9, and is read as {seen}")
    return "written"


@_of_dlpacks("other-types", rests_on=_TYPES)
@_of_cais("other-types", rests_on=_TYPES)
def takes_other_types(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_others_refused(c, lab, case, kind)


@_of_dlpacks("unwritten")
@_of_cais("unwritten")
def takes_unwritten(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    x = handed(kind, lab, case)
    before = x.contents()
    with prepared(c, lab, x, case):
        c.values(c.copy(taken(c, x, case)))
    collect()
    lab.synchronize()
    changed = [at for at, byte in enumerate(x.contents()) if byte != before[at]]
    expect(not changed, f"{len(changed)} bytes have changed, the first of them at {changed[:1]}")
    return "as before"


_BESIDE = ("columns", "unwritten")


@_of_dlpacks("gaps", rests_on=_BESIDE)
@_of_cais("gaps", rests_on=_BESIDE)
def takes_gaps(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    x = handed(kind, lab, case)
    with prepared(c, lab, x, case):
        return expect_gaps_kept(c, lab, x)


@_dlpack("foreign-device", odd={"device": (10, 0)}, told="memory of a ROCm device")
@takes("cai", "values", "stream")("stream-zero", odd={"stream": 0}, told="stream 0")
@_cai("version", odd={"version": 4}, told="version 4")
def takes_none_odd(  # noqa: PLR0917
    c: ConsumerAdapter,
    lab: Lab,
    case: Case,
    kind: type[Handed],
    odd: dict[str, Any],
    told: str,
) -> str:
    x = handed(kind, lab, case, **odd)
    return expect_refused(c, lab, x, case, told)
