"""What the CUDA Array Interface requires of who reads the dict: what it says is what is read."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..lab import CaiArray, Lab
from ..requirement import CAI, expect
from .arrays import PYTHON, Refusal, attempt, expect_read_or_refused, takes

_OTHERS = "it computes with other numbers than the producer's"
_cai = takes("cai", CAI)


@_cai(
    "optional-entries",
    PYTHON + "optional entries",
    "a dict may leave out strides, descr, mask and stream, set them to None, or state the default",
    "the consumer refuses arrays that keep the specification",
)
def takes_cai_optional_entries(c: ConsumerAdapter, lab: Lab) -> str:
    bare = CaiArray(lab, without=("strides", "stream"))
    none = CaiArray(lab, strides=None, mask=None, stream=None)
    said = CaiArray(lab, strides=(16, 4), descr=[("", "<f4")], mask=None)
    for x in (bare, none, said):
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} is read as {seen} by {x.entries}")
    return "with, without, and None"


@_cai(
    "byte-order",
    PYTHON + "typestr",
    "the consumer reads items in the other byte order right, or refuses the array",
    _OTHERS,
)
def takes_cai_byte_order(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, typestr=">f4")
    x.swap_bytes()
    return expect_read_or_refused(c, x)


@_cai(
    "mask",
    PYTHON + "mask",
    "the consumer leaves out the items that the mask marks invalid, or refuses the array",
    "it computes with invalid items",
)
def takes_cai_mask(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, mask=CaiArray(lab, dtype="bool"))
    y = attempt(c.take, x)
    if isinstance(y, Refusal):
        return f"{y}"
    seen = c.values(c.copy(y))
    expect(not x.holds(seen), f"the items that are not valid are among those read: {seen}")
    return f"{seen}"


@_cai(
    "one-read",
    "Synchronization: Interface Requirements: work on the data on multiple streams",
    "the consumer reads the attribute once",
    "a producer may order its streams again at each read, and two dicts may differ",
    level="should",
)
def takes_cai_one_read(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab)
    c.take(x)
    lab.synchronize()  # it may look at what it takes, at once
    expect(x.reads == 1, f"it was read {x.reads} times")
    return "once"
