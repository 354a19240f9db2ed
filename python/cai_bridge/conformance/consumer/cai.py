"""What the CUDA Array Interface requires of who reads the dict: what it says is what is read."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..lab import CaiArray, Lab, flat
from ..requirement import CAI, expect
from .arrays import Refusal, Takes, attempt

PYTHON = "Python Interface Specification: "
_OTHERS = "it computes with other numbers than the producer's"
_cai = Takes("cai", CAI)


@_cai(
    "values",
    PYTHON + "shape, typestr, data",
    "the items of a C-contiguous array are read where the dict says",
    _OTHERS,
)
def takes_cai_values(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, (2, 3, 4))
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_cai(
    "shared",
    PYTHON + "data",
    "the consumer's array is the producer's memory, not a copy of it",
    "neither side sees the other's writes, and the memory is used twice",
    level="should",
)
def takes_cai_shared(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, (4,))
    y = c.take(x)
    lab.synchronize()
    lab.put(x.region, 9.0)
    seen = c.values(c.copy(y))
    expect(set(flat(seen)) == {9.0}, f"the memory was set to 9, and is read as {seen}")
    return "what is written to the memory is read"


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
    "zero-size",
    PYTHON + "data: zero-size arrays",
    "the consumer takes an array without items, whose pointer is 0",
    "programs fail when their data happens to be empty",
)
def takes_cai_zero_size(c: ConsumerAdapter, lab: Lab) -> str:
    for shape in ((0, 3), (3, 0), (0,)):
        x = CaiArray(lab, shape)
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"an array of shape {shape} is read as {seen}")
    return "taken"


@_cai(
    "scalar",
    PYTHON + "shape",
    "the consumer takes an array without dimensions, which has one item",
    "the consumer refuses the results of reductions",
)
def takes_cai_scalar(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, ())
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_cai(
    "byte-order",
    PYTHON + "typestr",
    "the consumer reads items in the other byte order right, or refuses the array",
    _OTHERS,
)
def takes_cai_byte_order(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, typestr=">f4")
    x.swap_bytes()
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_cai(
    "readonly",
    PYTHON + "data: the read-only flag",
    "the consumer does not write an array whose flag is true",
    "it writes to memory that its owner believes constant",
)
def takes_cai_readonly(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, readonly=True)
    y = attempt(c.take, x)
    if isinstance(y, Refusal):
        return f"{y}"
    written = attempt(c.fill, y, 9.0)
    lab.synchronize()
    expect(lab.get(x.region) == x.values, f"it was written: it holds {lab.get(x.region)}")
    return f"the write was {written}" if written else "the write went elsewhere"


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
    "version",
    PYTHON + "version",
    "the consumer refuses a dict of a version after 3",
    "unknown entries may change what the others mean",
    level="should",
)
def takes_cai_version(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, version=4)
    y = attempt(c.take, x)
    expect(isinstance(y, Refusal), "version 4 is taken")
    return f"{y}"


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
