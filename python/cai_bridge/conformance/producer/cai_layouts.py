"""The CUDA Array Interface's requirements on the entries that describe the items' places."""

from __future__ import annotations

from cai_bridge.testing import describe

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..layouts import View
from ..requirement import expect
from .arrays import cai_of, collect, expect_kept, expect_unwritten, is_int
from .doors import cai
from .values import by_cai, dict_or_refused, earlier, is_copy, taken_of, whole_of


@cai("zero-size", rests_on=("data",))
def cai_zero_size(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, view = taken_of(p, lab, whole_of(p, lab, case), case)
    entries = dict_or_refused(x, case)
    expect(entries["data"][0] == 0, f"the pointer is {entries['data'][0]:#x}")
    expect(tuple(entries["shape"]) == view.shape, f"the shape is {entries['shape']!r}")
    return "0"


@cai("strides", rests_on=("shape",))
def cai_strides(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = whole_of(p, lab, case)
    y, view = taken_of(p, lab, x, case)
    begin, entries = dict_or_refused(x, case)["data"][0], dict_or_refused(y, case)
    strides, size = entries.get("strides"), int(entries["typestr"][2:])
    if strides is None:
        # Libraries without strides copy an indexed array.
        nbytes = size * len(View.of(cai_of(x)["shape"]).places())
        copied = not begin <= entries["data"][0] < begin + nbytes
        expect(view.compact or copied, f"strides is None for {case.layout!r}")
        return "None"
    expect(isinstance(strides, tuple), f"strides is {strides!r}")
    expect(all(map(is_int, strides)), f"strides is {strides!r}")
    expect(len(strides) == len(view.shape), f"strides is {strides!r} for the shape {view.shape}")
    items = [step for step, n in zip(view.strides, view.shape, strict=True) if n > 1]
    told = [step for step, n in zip(strides, view.shape, strict=True) if n > 1]
    look = size > 1 and any(items) and told == items
    expect(not look, f"strides is {strides!r}, which look like item counts, for {size}-byte items")
    return f"{strides!r}"


@cai("readonly", rests_on=("data",))
def cai_readonly(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = whole_of(p, lab, case)
    base, before = dict_or_refused(x, case)["data"]
    if case == Case():
        region = lab.region(describe(cai_of(x))["CAI"])
        expect_unwritten(p, lab, x, region, readonly=before is True)
    y = p.readonly(x)
    z = taken_of(p, lab, y, case)[0]
    ptr, flag = dict_or_refused(z, case)["data"]
    copied = is_copy(case, ptr, base)
    expect(flag is True or copied, f"the flag of a read-only array at {ptr:#x} is {flag!r}")
    after = cai_of(x)["data"][1]
    expect(y is x or after == before, f"then the flag of the array itself is {after!r}")
    return "a copy" if copied else "true"


@cai("memory", rests_on=("values", "offset"))
def cai_memory(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = whole_of(p, lab, case)
    base = lab.region(by_cai(x))
    lab.put(base, 5.0)
    y = taken_of(p, lab, x, case)[0]
    del x
    kept = earlier(case, y, cai_of)
    region = lab.region(by_cai(y))
    collect()
    expect_kept(p, lab, region, lambda other: lab.region(by_cai(other)), "its array")
    del y, kept
    return "kept"
