"""What DLPack requires of who takes a capsule: what its tensor says is what is read."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..lab import DLPackArray, Lab, flat
from ..requirement import ARRAY_API, DLPACK, expect, needs
from .arrays import Refusal, Takes, attempt

TENSOR = "C API: DLTensor."
_OTHERS = "it computes with other numbers than the producer's"
_dlpack = Takes("dlpack", DLPACK)


@_dlpack(
    "values",
    TENSOR + "data, shape, dtype",
    "the items of a C-contiguous tensor are read where it says",
    _OTHERS,
)
def takes_dlpack_values(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, (2, 3, 4))
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@Takes("dlpack", ARRAY_API)(
    "shared",
    "from_dlpack: copy",
    "the consumer's array is the producer's memory, not a copy of it",
    "neither side sees the other's writes, and the memory is used twice",
    level="should",
)
def takes_dlpack_shared(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, (4,))
    y = c.take(x)
    lab.synchronize()
    lab.put(x.region, 9.0)
    seen = c.values(c.copy(y))
    expect(set(flat(seen)) == {9.0}, f"the memory was set to 9, and is read as {seen}")
    return "what is written to the memory is read"


@_dlpack(
    "legacy",
    "Python Specification: capsule names",
    'the consumer reads a capsule named "dltensor" as the legacy structure, without a version',
    "the two structures have different fields at the same offsets",
)
def takes_dlpack_legacy(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, (2, 3, 4), form="legacy")
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


VERSION = "C API: DLPackVersion"


@_dlpack(
    "older-minor",
    VERSION,
    "the consumer takes a tensor of version 1.0",
    "the consumer refuses libraries built before DLPack 1.1",
)
def takes_dlpack_older_minor(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, form="1.0")
    seen = c.values(c.copy(c.take(x)))
    needs("1.0" in x.forms, "it asks for legacy capsules, which have no version")
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_dlpack(
    "newer-minor",
    VERSION,
    "the consumer takes a tensor of a later minor version than it knows",
    "the consumer refuses every later library, though minor versions only add fields",
)
def takes_dlpack_newer_minor(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, form="1.9")
    seen = c.values(c.copy(c.take(x)))
    needs("1.9" in x.forms, "it asks for legacy capsules, which have no version")
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_dlpack(
    "other-major",
    VERSION,
    "the consumer refuses a tensor of another major version",
    "its fields may be at other offsets",
)
def takes_dlpack_other_major(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, form="2.0")
    y = attempt(c.take, x)
    needs("2.0" in x.forms, "it asks for legacy capsules, which have no version")
    expect(isinstance(y, Refusal), "version 2.0 is taken")
    return f"{y}"


@_dlpack(
    "byte-offset",
    TENSOR + "byte_offset",
    "the first item is byte_offset bytes after the data pointer",
    "it reads another part of the producer's memory",
)
def takes_dlpack_byte_offset(c: ConsumerAdapter, lab: Lab) -> str:
    for form in (None, "legacy"):
        x = DLPackArray(lab, form=form, byte_offset=16)
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} in the form {form or x.forms} is read as {seen}")
        y = DLPackArray(lab, form=form, byte_offset=16, layout="columns")
        seen = attempt(lambda: c.values(c.copy(c.take(y))))  # noqa: B023 - it is called at once
        told = isinstance(seen, Refusal) or y.holds(seen)
        expect(told, f"{y.values} of columns, in the form {form or y.forms}, is read as {seen}")
    return "read"


@_dlpack(
    "null-strides",
    TENSOR + "strides, since 1.2",
    "a tensor with NULL strides is C-contiguous, if it is legacy or older than version 1.2",
    "it reads through NULL and crashes, or refuses most arrays of such producers",
)
def takes_dlpack_null_strides(c: ConsumerAdapter, lab: Lab) -> str:
    for form in ("legacy", "1.1"):
        x = DLPackArray(lab, form=form, null=("strides",))
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} in the form {form} is read as {seen}")
    return f"{seen}"


@_dlpack(
    "zero-size",
    TENSOR + "data",
    "the consumer takes a tensor without items, whose data pointer is NULL",
    "programs fail when their data happens to be empty",
)
def takes_dlpack_zero_size(c: ConsumerAdapter, lab: Lab) -> str:
    for shape in ((0, 3), (3, 0), (0,)):
        x = DLPackArray(lab, shape)
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"an array of shape {shape} is read as {seen}")
    return "taken"


@_dlpack(
    "scalar",
    TENSOR + "ndim",
    "the consumer takes a tensor without dimensions, with NULL shape and strides, as one item",
    "the consumer refuses the results of reductions",
)
def takes_dlpack_scalar(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, ())
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_dlpack(
    "lanes",
    "C API: DLDataType.lanes",
    "the consumer reads all items of a tensor with two lanes, or refuses it",
    "it reads one item of each pair, and at the wrong offsets",
)
def takes_dlpack_lanes(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, (3, 2), lanes=2)
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_dlpack(
    "foreign-device",
    "C API: DLDevice",
    "the consumer refuses memory of a device type that it does not have",
    "it uses another device's addresses as its own",
)
def takes_dlpack_foreign_device(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, device=(10, 0))
    y = attempt(c.take, x)
    expect(isinstance(y, Refusal), "memory of a ROCm device is taken")
    return f"{y}"


@_dlpack(
    "readonly",
    "C API: DLPACK_FLAG_BITMASK_READ_ONLY",
    "the consumer does not write a tensor with the READ_ONLY flag",
    "it writes to memory that its owner believes constant",
    level="should",
)
def takes_dlpack_readonly(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, readonly=True)
    y = attempt(c.take, x)
    if isinstance(y, Refusal):
        return f"{y}"
    written = attempt(c.fill, y, 9.0)
    lab.synchronize()
    expect(lab.get(x.region) == x.values, f"it was written: it holds {lab.get(x.region)}")
    return f"the write was {written}" if written else "the write went elsewhere"
