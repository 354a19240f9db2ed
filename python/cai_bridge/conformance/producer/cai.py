"""The CUDA Array Interface's requirements on a producer's dict."""

from __future__ import annotations

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import expect, needs
from .arrays import cai_of, can_be_late, descr_size, is_int, is_typestr, made
from .doors import cai
from .pending import laid_pending
from .values import dict_or_refused, laid_out, taken_of, whole_of


@cai("entries")
def cai_entries(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    entries = dict_or_refused(x, case)
    expect(isinstance(entries, dict), f"__cuda_array_interface__ is a {type(entries).__name__}")
    # Look up the entries as C code does, which calls no method of a subclass.
    missing = {"shape", "typestr", "data", "version"} - dict.keys(entries)
    expect(not missing, f"without {', '.join(sorted(missing))}")
    version = entries["version"]
    expect(is_int(version) and version >= 0, f"version is {version!r}")
    return f"has {', '.join(entries)}"


@cai("shape", rests_on=("entries",))
def cai_shape(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, view = taken_of(p, lab, whole_of(p, lab, case), case)
    shape = dict_or_refused(x, case)["shape"]
    expect(isinstance(shape, tuple), f"shape is {shape!r}, a {type(shape).__name__}")
    expect(all(map(is_int, shape)), f"shape is {shape!r}, with other types than int")
    expect(shape == view.shape, f"shape is {shape!r} for an array of {view.shape!r}")
    return f"{shape!r}"


@cai("typestr", rests_on=("entries",))
def cai_typestr(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, dtype = laid_out(p, lab, case), case.dtype
    typestr: str = dict_or_refused(x, case)["typestr"]
    expect(isinstance(typestr, str), f"typestr of {dtype} is {typestr!r}")
    expect(is_typestr(typestr, dtype), f"typestr of {dtype} is {typestr!r}")
    expect(typestr[0] in "<|" or typestr[-1] == "1", f"typestr of {dtype} is {typestr!r}")
    return typestr


@cai("data", rests_on=("entries",))
def cai_data(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    data = dict_or_refused(x, case)["data"]
    expect(isinstance(data, tuple) and len(data) == 2, f"data is {data!r}")
    expect(is_int(data[0]), f"the pointer is {data[0]!r}, a {type(data[0]).__name__}")
    expect(type(data[1]) is bool, f"the flag is {data[1]!r}, a {type(data[1]).__name__}")
    return f"data is {data!r}"


@cai("pointer", rests_on=("data",))
def cai_pointer(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    ptr = dict_or_refused(x, case)["data"][0]
    device = lab.device_of(ptr)
    expect(device is not None, f"{ptr:#x} is not an address that CUDA knows")
    return f"{ptr:#x} is on {device}"


@cai("version", rests_on=("entries",))
def cai_version(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    version = dict_or_refused(x, case)["version"]
    expect(is_int(version), f"version is {version!r}")
    if version < 3 and can_be_late(p):
        # A producer that waits on the host needs to name no stream.
        late = laid_pending(p, lab, Case(layout="1-D"), 1.0)
        with p.entered(late.current), lab.watched(late.hold) as watch:
            cai_of(late.array)
        lab.synchronize()
        needs(not watch.waited, f"version is {version}, and the host has waited")
    expect(version >= 3, f"version is {version}, which has no stream")
    return f"{version}"


@cai("mask", rests_on=("entries",))
def cai_mask(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    mask = dict_or_refused(x, case).get("mask")
    speaks = hasattr(mask, "__cuda_array_interface__")
    expect(mask is None or speaks, f"mask is a {type(mask).__name__}")
    return "none" if mask is None else "has one"


@cai("descr", rests_on=("entries",))
def cai_descr(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    entries = dict_or_refused(x, case)
    if "descr" not in entries:
        return "none"
    descr, typestr = entries["descr"], entries["typestr"]
    expect(isinstance(descr, list) and descr, f"descr is {descr!r}")
    whole = all(isinstance(one, tuple) and len(one) in (2, 3) for one in descr)
    expect(whole, f"descr is {descr!r}")
    size = descr_size(descr)
    expect(size == int(typestr[2:]), f"descr is {descr!r} for {typestr}")
    kind = descr[0][1][1:2]
    expect(len(descr) > 1 or kind == typestr[1:2], f"descr is {descr!r} for {typestr}")
    return f"{descr!r}"


@cai(
    "stream",
    rests_on=("entries", "data", "pointer", "shape", "typestr", "strides", "values", "offset"),
)
def cai_stream(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = made(p, lab)  # the array may keep the stream alive
    seen = [cai_of(x).get("stream")]
    late = laid_pending(p, lab, case, next(lab.values())) if can_be_late(p) else None
    if late is not None:
        for _ in range(2 if case.moment == "again" else 1):
            with p.entered(late.current):
                seen.append(cai_of(late.array).get("stream"))
        lab.synchronize()
    for stream in seen:
        expect(stream is None or is_int(stream), f"stream is {stream!r}")
        expect(stream is None or stream > 0, f"stream is {stream}")
    names = [lab.called(stream) for stream in seen]
    return f"it names {names[0]}, and with work pending {names[-1]}"


@cai("two-reads", rests_on=("entries", "shape", "data", "strides"))
def cai_two_reads(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, other = laid_out(p, lab, case), made(p, lab, (2, 1, 5))
    first = dict_or_refused(x, case)
    before = {name: first[name] for name in ("shape", "data", "strides") if name in first}
    second = cai_of(other)
    after = {name: first.get(name) for name in before}
    expect(after == before, f"it said {before}, and {after} once another array's dict is read")
    second["shape"] = ()
    third = cai_of(other)["shape"]
    expect(tuple(third) == (2, 1, 5), f"who changes a dict changes the next one: it says {third}")
    return "as it was"
