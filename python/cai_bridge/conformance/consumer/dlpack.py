"""What DLPack requires of who takes a capsule: what its tensor says is what is read."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import ConsumerAdapter
from ..lab import DLPackArray, Lab, flat
from ..producer.arrays import collect
from ..requirement import ARRAY_API, DLPACK, Check, Level, expect, needs
from .arrays import Refusal, attempt, takes

TENSOR = "C API: DLTensor."
_OTHERS = "it computes with other numbers than the producer's"


def _dlpack(
    name: str, section: str, rule: str, why: str, level: Level = "must"
) -> Callable[[Check], Check]:
    return takes("dlpack", name, DLPACK, section, rule=rule, why=why, level=level)


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


@takes(
    "dlpack",
    "shared",
    ARRAY_API,
    "from_dlpack: copy",
    rule="the array that was taken in is the producer's memory, not a copy of it",
    why="what one side writes the other does not see, and memory is needed twice",
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
    'a capsule called "dltensor" is read as the structure without a version',
    "that structure has other fields at the same places",
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
    "a tensor of version 1.0 is taken",
    "libraries that were built before DLPack 1.1 are refused",
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
    "a tensor of a later minor version than the consumer knows is taken",
    "minor versions only add to what is there, and every later library is refused",
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
    "a tensor of another major version is refused",
    "its fields are at other places",
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
    "the first item is byte_offset behind the data pointer",
    "it reads another part of the producer's memory",
)
def takes_dlpack_byte_offset(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, byte_offset=16)
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_dlpack(
    "null-strides",
    TENSOR + "strides, since 1.2",
    "legacy tensors, and those before version 1.2, whose strides are NULL are C-contiguous",
    "it reads through NULL, which ends the process, or refuses most arrays of such producers",
)
def takes_dlpack_null_strides(c: ConsumerAdapter, lab: Lab) -> str:
    for form in ("legacy", "1.1"):
        x = DLPackArray(lab, form=form, null=("strides",))
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} in the form {form} is read as {seen}")
    return f"{seen}"


def _layout(name: str, what: str, why: str = _OTHERS) -> Callable[[Check], Check]:
    rule = f"the items of {what} are read where the strides say, or the array is refused"
    return _dlpack(name, TENSOR + "strides", rule, why)


@_layout("fortran", "an array in Fortran's order")
def takes_dlpack_fortran(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, layout="F")
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_layout("columns", "every second column of an array")
def takes_dlpack_columns(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, layout="columns")
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_layout("reversed", "an array with a negative stride", "it reads what lies before the array")
def takes_dlpack_reversed(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, layout="reversed")
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_layout("repeated", "an array with a stride of 0", "it reads what lies behind the array")
def takes_dlpack_repeated(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, layout="repeated")
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_dlpack(
    "zero-size",
    TENSOR + "data",
    "a tensor without items, whose data pointer is NULL, is taken",
    "programs whose data happens to be empty fail",
)
def takes_dlpack_zero_size(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, (0, 3))
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"an array of shape (0, 3) is read as {seen}")
    return f"{seen}"


@_dlpack(
    "scalar",
    TENSOR + "ndim",
    "a tensor without dimensions, whose shape and strides are NULL, has one item",
    "the results of reductions are refused",
)
def takes_dlpack_scalar(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, ())
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_dlpack(
    "dtypes",
    "C API: DLDataType",
    "the items of each type that the consumer has are read as that type",
    _OTHERS,
)
def takes_dlpack_dtypes(c: ConsumerAdapter, lab: Lab) -> str:
    for dtype in c.dtypes:
        x = DLPackArray(lab, (5,), dtype)
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} of {dtype} is read as {seen}")
    return ", ".join(c.dtypes)


@_dlpack(
    "lanes",
    "C API: DLDataType.lanes",
    "all items of a tensor of two lanes are read, or it is refused",
    "it reads one item of each pair, and those at the wrong places",
)
def takes_dlpack_lanes(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, (3, 2), lanes=2)
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_dlpack(
    "foreign-device",
    "C API: DLDevice",
    "memory of a type of device that the consumer does not have is refused",
    "it takes another device's addresses for its own",
)
def takes_dlpack_foreign_device(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab, device=(10, 0))
    y = attempt(c.take, x)
    expect(isinstance(y, Refusal), "memory of a ROCm device is taken")
    return f"{y}"


@_dlpack(
    "readonly",
    "C API: DLPACK_FLAG_BITMASK_READ_ONLY",
    "a tensor with the READ_ONLY flag is not written",
    "it writes into what its owner believes constant",
    "should",
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


@_dlpack(
    "unwritten",
    TENSOR + "data",
    "nothing is written by taking an array in and reading it, and nothing around it",
    "the producer's data changes, or its neighbour's",
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
