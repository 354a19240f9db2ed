"""The CUDA Array Interface's requirements on a reader: it must read what the dict describes."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, Lab, flat
from ..producer.arrays import collect, reference_to
from ..refusals import Refusal, attempt
from ..requirement import expect, needs
from .arrays import expect_read, expect_read_or_refused, prepared, taken, takes
from .layouts import handed

_cai = takes("cai")


@_cai("optional-entries")
def takes_cai_optional_entries(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    for form in ("bare", "None", "descr"):
        x = handed(CaiArray, lab, case.but(form=form))
        if form == "descr" and not x.region.size:
            continue  # no text defines the default strides of an array without items
        expect_read(c, lab, x, case.but(form=form))
    return "with, without, and None"


@_cai("older")
def takes_cai_older(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_read_or_refused(c, lab, handed(CaiArray, lab, case), case)


@_cai("owner", rests_on=("older",))
def takes_cai_owner(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(CaiArray, lab, case)
    alive = reference_to(x)
    with prepared(c, lab, x, case):
        y = taken(c, x, case)
        shared = lab.device_of(x.region.ptr) is not None
        lab.synchronize()
        lab.put(x.region, 9.0)
        needs(shared and {*flat(c.values(c.copy(y)))} == {9.0}, "the consumer has a copy")
    del x
    collect()
    expect(alive() is not None, "the object is gone while what was taken of it is used")
    del y
    return "kept"


@_cai("byte-order")
def takes_cai_byte_order(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(CaiArray, lab, case, typestr=">f4")
    x.swap_bytes()
    return expect_read_or_refused(c, lab, x, case)


@_cai("mask")
def takes_cai_mask(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(CaiArray, lab, case, mask=CaiArray(lab, dtype="bool"))
    before = case.but(moment="first" if case.moment == "again" else case.moment)
    with prepared(c, lab, x, before):
        y = attempt(c.take, x)
        if isinstance(y, Refusal):
            return f"{y}"
        seen = c.values(c.copy(y))
    expect(not x.holds(seen), f"the items that are not valid are among those read: {seen}")
    return f"{seen}"


@_cai("one-read")
def takes_cai_one_read(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(CaiArray, lab, case)
    with prepared(c, lab, x, case):
        before = x.reads
        taken(c, x, case)
    lab.synchronize()  # the consumer may read the array at once
    expect(x.reads - before == 1, f"it was read {x.reads - before} times")
    return "once"
