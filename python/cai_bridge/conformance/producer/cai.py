"""What the CUDA Array Interface requires of the dict that a producer hands out."""

from __future__ import annotations

from collections.abc import Callable

from cai_bridge.testing import describe

from ..adapter import ProducerAdapter
from ..lab import Lab, flat
from ..requirement import CAI, Check, Level, expect, requires
from .arrays import (
    backwards,
    cai_of,
    can_be_late,
    descr_size,
    host_values,
    is_int,
    is_typestr,
    items,
    made,
    numbered,
    sliced,
    strided,
)

PYTHON = "Python Interface Specification: "


def cai(
    name: str, section: str, rule: str, why: str, level: Level = "must"
) -> Callable[[Check], Check]:
    """Make a function the check of what is required of a dict."""
    return requires("producer", f"cai-{name}", CAI, section, rule=rule, why=why, level=level)


@cai(
    "entries",
    PYTHON + "the dictionary",
    "the dict has shape, typestr, data and version",
    "consumers read them without checking that they exist",
)
def cai_entries(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    entries = cai_of(x)
    expect(isinstance(entries, dict), f"__cuda_array_interface__ is a {type(entries).__name__}")
    # What C code finds, which calls no method of a subclass.
    missing = {"shape", "typestr", "data", "version"} - dict.keys(entries)
    expect(not missing, f"without {', '.join(sorted(missing))}")
    return f"has {', '.join(entries)}"


@cai(
    "shape",
    PYTHON + "shape",
    "shape is a tuple of integers, one for each dimension",
    "consumers index it, and some compare it with tuples",
)
def cai_shape(p: ProducerAdapter, lab: Lab) -> str:
    for extents in ((3, 4), (), (2, 1, 5)):
        x = made(p, lab, extents)
        shape = cai_of(x)["shape"]
        expect(isinstance(shape, tuple), f"shape is {shape!r}, a {type(shape).__name__}")
        expect(all(map(is_int, shape)), f"shape is {shape!r}, with other types than int")
        expect(shape == extents, f"shape is {shape!r} for an array of {extents!r}")
    return f"the last one is {shape!r}"


@cai(
    "typestr",
    PYTHON + "typestr",
    "typestr is NumPy's: byte order, kind and item size",
    "nothing else says how long an item is",
)
def cai_typestr(p: ProducerAdapter, lab: Lab) -> str:
    seen = [cai_of(made(p, lab))["typestr"]]
    for dtype in p.dtypes:
        x = made(p, lab, dtype=dtype)
        try:
            typestr = x.__cuda_array_interface__["typestr"]
        except Exception:
            seen.append(f"{dtype} is refused")
            continue
        expect(isinstance(typestr, str), f"typestr of {dtype} is {typestr!r}")
        expect(is_typestr(typestr, dtype), f"typestr of {dtype} is {typestr!r}")
        expect(typestr[0] in "<|" or typestr[-1] == "1", f"typestr of {dtype} is {typestr!r}")
        seen.append(typestr)
    return ", ".join(map(str, seen))


@cai(
    "data",
    PYTHON + "data",
    "data is a tuple of an int, the pointer, and a bool, the read-only flag",
    "consumers unpack it and pass the pointer to C",
)
def cai_data(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    data = cai_of(x)["data"]
    expect(isinstance(data, tuple) and len(data) == 2, f"data is {data!r}")
    expect(is_int(data[0]), f"the pointer is {data[0]!r}, a {type(data[0]).__name__}")
    expect(type(data[1]) is bool, f"the flag is {data[1]!r}, a {type(data[1]).__name__}")
    return f"data is {data!r}"


@cai(
    "pointer",
    PYTHON + "data: device-accessible",
    "the pointer is to memory that CUDA knows and a GPU can use",
    "a kernel that reads it faults and breaks the context",
)
def cai_pointer(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab, (5,))
    ptr = cai_of(x)["data"][0]
    device = lab.device_of(ptr)
    expect(device is not None, f"{ptr:#x} is not an address that CUDA knows")
    return f"{ptr:#x} is on {device}"


@cai(
    "zero-size",
    PYTHON + "data: zero-size arrays",
    "the pointer of an array without items is 0",
    "consumers ask the driver about any other pointer, and fail",
)
def cai_zero_size(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab, (0, 3))
    entries = cai_of(x)
    expect(entries["data"][0] == 0, f"the pointer is {entries['data'][0]:#x}")
    expect(tuple(entries["shape"]) == (0, 3), f"the shape is {entries['shape']!r}")
    return "0"


@cai(
    "strides",
    PYTHON + "strides",
    "strides is absent, None, or a tuple of integers, one for each dimension; only a "
    "C-contiguous array may leave it out",
    "consumers read an array without strides as C-contiguous",
)
def cai_strides(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    y = strided(p, lab, x)
    seen = []
    for entries in (cai_of(x), cai_of(y)):
        strides = entries.get("strides")
        if strides is not None:
            expect(isinstance(strides, tuple), f"strides is {strides!r}")
            expect(all(map(is_int, strides)), f"strides is {strides!r}")
            expect(len(strides) == 2, f"strides is {strides!r} for an array of two dimensions")
        seen.append(f"{strides!r}")
    # Libraries without strides copy what is indexed.
    shared = 0 <= cai_of(y)["data"][0] - cai_of(x)["data"][0] < 48
    expect(seen[1] != "None" or not shared, "strides is None for every second column")
    return " and ".join(seen)


@cai(
    "values",
    PYTHON + "shape, typestr, data, strides",
    "together they say where the array's items are",
    "a consumer computes with other numbers",
)
def cai_values(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    base = lab.region(describe(cai_of(x))["CAI"])
    rows = numbered()
    lab.put(base, rows)
    own = host_values(x)
    expect(own in (None, [*flat(rows)]), f"the library itself reads {own}, the dict says {rows}")
    y = strided(p, lab, x)
    seen = items(lab, lab.region(describe(cai_of(y))["CAI"]), base)
    expect(seen == [row[::2] for row in rows], f"every second column of {rows} is read as {seen}")
    return f"every second column is read as {seen}"


@cai(
    "offset",
    PYTHON + "data",
    "the pointer of a slice is the address of its first item",
    "a consumer computes with items before the slice",
)
def cai_offset(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    rows = numbered()
    base = lab.region(describe(cai_of(x))["CAI"])
    lab.put(base, rows)
    y = sliced(p, lab, x)
    seen = items(lab, lab.region(describe(cai_of(y))["CAI"]), base)
    expect(seen == rows[1:], f"all rows but the first of {rows} are read as {seen}")
    return f"all rows but the first are read as {seen}"


@cai(
    "reversed",
    PYTHON + "strides",
    "the strides of a slice with a negative step are negative, and the pointer is that of its "
    "first item; or the slice is refused",
    "a consumer reads the items in another order, or reads past the end of the array",
)
def cai_reversed(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    rows = numbered()
    base = lab.region(describe(cai_of(x))["CAI"])
    lab.put(base, rows)
    y = backwards(p, lab, x)
    try:
        entries = cai_of(y)
    except Exception as refused:
        return f"refused: {type(refused).__name__}: {refused}"
    seen = items(lab, lab.region(describe(entries)["CAI"]), base)
    expect(seen == rows[::-1], f"the rows of {rows}, from the last, are read as {seen}")
    return f"the rows, from the last, are read as {seen}"


@cai(
    "version",
    PYTHON + "version",
    "version is an int, and at least 3",
    "a dict before version 3 has no stream, so consumers may read before the write is done",
)
def cai_version(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    version = cai_of(x)["version"]
    expect(is_int(version), f"version is {version!r}")
    expect(version >= 3, f"version is {version}, which has no stream")
    return f"{version}"


@cai(
    "mask",
    PYTHON + "mask",
    "mask is absent, None, or an object with __cuda_array_interface__",
    "a consumer cannot tell which items are valid",
)
def cai_mask(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    mask = cai_of(x).get("mask")
    speaks = hasattr(mask, "__cuda_array_interface__")
    expect(mask is None or speaks, f"mask is a {type(mask).__name__}")
    return "none" if mask is None else "has one"


@cai(
    "descr",
    PYTHON + "descr",
    "descr is absent, or a list of fields with the same size and types as typestr says",
    "consumers that read descr see other items than consumers that read typestr",
)
def cai_descr(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    entries = cai_of(x)
    if "descr" not in entries:
        return "none"
    descr = entries["descr"]
    expect(isinstance(descr, list) and descr, f"descr is {descr!r}")
    whole = all(isinstance(one, tuple) and len(one) in (2, 3) for one in descr)
    expect(whole, f"descr is {descr!r}")
    size = descr_size(descr)
    expect(size == int(entries["typestr"][2:]), f"descr is {descr!r} for {entries['typestr']}")
    return f"{descr!r}"


@cai(
    "readonly",
    PYTHON + "data: the read-only flag",
    "the flag is true for a read-only array",
    "a consumer writes to memory that its owner believes constant",
)
def cai_readonly(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    ptr, flag = cai_of(p.readonly(x))["data"]
    expect(flag is True, f"the flag of a read-only array at {ptr:#x} is {flag!r}")
    return "true"


@cai(
    "stream",
    PYTHON + "stream",
    "stream is absent, None, 1, 2 or a handle; never 0",
    "0 may mean no stream, the legacy or the per-thread default stream",
)
def cai_stream(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)  # which may be what keeps its stream
    seen = [cai_of(x).get("stream")]
    late = p.late(lab, next(lab.values())) if can_be_late(p) else None
    if late is not None:
        with p.on(late.stream):
            seen.append(cai_of(late.array).get("stream"))
        lab.synchronize()
    for stream in seen:
        expect(stream is None or is_int(stream), f"stream is {stream!r}")
        expect(stream is None or stream > 0, f"stream is {stream}")
    names = [lab.called(stream) for stream in seen]
    return f"it names {names[0]}, and with work pending {names[-1]}"
