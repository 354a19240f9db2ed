"""What the CUDA Array Interface requires of who reads the dict: what it says is what is read."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import ConsumerAdapter
from ..lab import CaiArray, Lab, flat
from ..producer.arrays import collect
from ..requirement import CAI, Check, Level, expect
from .arrays import Refusal, attempt, takes

PYTHON = "Python Interface Specification: "
_OTHERS = "it computes with other numbers than the producer's"


def _cai(
    name: str, section: str, rule: str, why: str, level: Level = "must"
) -> Callable[[Check], Check]:
    return takes("cai", name, CAI, section, rule=rule, why=why, level=level)


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
    "the array that was taken in is the producer's memory, not a copy of it",
    "what one side writes the other does not see, and memory is needed twice",
    "should",
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
    "strides, descr, mask and stream may be left out, be None, or say what holds without them",
    "arrays of producers that are as free as the specification lets them be are refused",
)
def takes_cai_optional_entries(c: ConsumerAdapter, lab: Lab) -> str:
    bare = CaiArray(lab, without=("strides", "stream"))
    none = CaiArray(lab, strides=None, mask=None, stream=None)
    said = CaiArray(lab, strides=(16, 4), descr=[("", "<f4")], mask=None)
    for x in (bare, none, said):
        seen = c.values(c.copy(c.take(x)))
        expect(x.holds(seen), f"{x.values} is read as {seen} by {x.entries}")
    return "with, without, and None"


def _layout(name: str, what: str, why: str = _OTHERS) -> Callable[[Check], Check]:
    rule = f"the items of {what} are read where the strides say, or the array is refused"
    return _cai(name, PYTHON + "strides", rule, why)


@_layout("fortran", "an array in Fortran's order")
def takes_cai_fortran(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, layout="F")
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_layout("columns", "every second column of an array")
def takes_cai_columns(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, layout="columns")
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_layout("reversed", "an array with a negative stride", "it reads what lies before the array")
def takes_cai_reversed(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, layout="reversed")
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_layout("repeated", "an array with a stride of 0", "it reads what lies behind the array")
def takes_cai_repeated(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, layout="repeated")
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    expect(isinstance(seen, Refusal) or x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_cai(
    "zero-size",
    PYTHON + "data: zero-size arrays",
    "an array without items, whose pointer is 0, is taken",
    "programs whose data happens to be empty fail",
)
def takes_cai_zero_size(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, (0, 3))
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"an array of shape (0, 3) is read as {seen}")
    return f"{seen}"


@_cai(
    "scalar",
    PYTHON + "shape",
    "an array without dimensions, which has one item, is taken",
    "the results of reductions are refused",
)
def takes_cai_scalar(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, ())
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{x.values} is read as {seen}")
    return f"{seen}"


@_cai(
    "dtypes",
    PYTHON + "typestr",
    "the items of each type that the consumer has are read as that type",
    _OTHERS,
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
    "byte-order",
    PYTHON + "typestr",
    "items in the other byte order are read as the numbers that they are, or the array is refused",
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
    "an array whose flag is true is not written",
    "it writes into what its owner believes constant",
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
    "unwritten",
    PYTHON + "data",
    "nothing is written by taking an array in and reading it, and nothing around it",
    "the producer's data changes, or its neighbour's",
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
    "mask",
    PYTHON + "mask",
    "items that a mask says are not valid are not taken for valid, or the array is refused",
    "it computes with what is no data",
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
    "a dict of a later version than 3 is refused",
    "entries that it does not know may change what the others mean",
    "should",
)
def takes_cai_version(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, version=4)
    y = attempt(c.take, x)
    expect(isinstance(y, Refusal), "version 4 is taken")
    return f"{y}"


@_cai(
    "one-read",
    "Synchronization: Interface Requirements: work on the data on multiple streams",
    "the attribute is read once",
    "a producer orders its streams anew for each read, and two dicts need not agree",
    "should",
)
def takes_cai_one_read(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab)
    c.take(x)
    expect(x.reads == 1, f"it was read {x.reads} times")
    return "once"
