"""What the CUDA Array Interface requires of who reads the dict: what it says is what is read."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..lab import CaiArray, Lab
from ..requirement import expect
from .arrays import Refusal, attempt, expect_read_or_refused, takes

_cai = takes("cai")


@_cai("optional-entries")
def takes_cai_optional_entries(c: ConsumerAdapter, lab: Lab) -> str:
    bare = CaiArray(lab, without=("strides", "stream"))
    none = CaiArray(lab, strides=None, mask=None, stream=None)
    said = CaiArray(lab, strides=(16, 4), descr=[("", "<f4")], mask=None)
    for x in (bare, none, said):
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} is read as {seen} by {x.entries}")
    return "with, without, and None"


@_cai("byte-order")
def takes_cai_byte_order(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, typestr=">f4")
    x.swap_bytes()
    return expect_read_or_refused(c, x)


@_cai("mask")
def takes_cai_mask(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, mask=CaiArray(lab, dtype="bool"))
    y = attempt(c.take, x)
    if isinstance(y, Refusal):
        return f"{y}"
    seen = c.values(c.copy(y))
    expect(not x.holds(seen), f"the items that are not valid are among those read: {seen}")
    return f"{seen}"


@_cai("one-read")
def takes_cai_one_read(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab)
    c.take(x)
    lab.synchronize()  # it may look at what it takes, at once
    expect(x.reads == 1, f"it was read {x.reads} times")
    return "once"
