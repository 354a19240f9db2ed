"""What DLPack and the array API standard require of the arguments of ``__dlpack__``."""

from __future__ import annotations

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import capsule_name, read_capsule
from cai_bridge.testing._values import nested

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..layouts import FROZEN
from ..places import BEFORE
from ..requirement import NotApplicableError, expect
from .arrays import can_be_late, expect_unwritten, export, made, on_host, stream_taken
from .doors import dlpack
from .pending import by_capsule, expect_ordered, pending
from .values import is_copy, numbers, taken_of, whole_of


@dlpack("legacy")
def dlpack_legacy(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    readonly = read_capsule(export(x, stream=1)).readonly
    own = stream_taken(x)
    name: str | None = ""
    for wish in ({}, {"max_version": None}, {"max_version": (0, 8)}):
        try:
            name = capsule_name(x.__dlpack__(**own, **wish))
        except BufferError as refused:
            # Only a versioned capsule can say that memory is read-only.
            expect(readonly, f"with {wish} refused: {refused}")
            return f"read-only memory is refused: {refused}"
        except TypeError as unknown:
            expect(wish, f"raised TypeError: {unknown}")
            continue
        expect(name == "dltensor", f"with {wish} it is called {name!r}")
    return f"{name!r}"


@dlpack("versioned")
def dlpack_versioned(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    for newest in ((1, 3), (1, 0), (2, 0)):
        name = capsule_name(export(x, stream=1, max_version=newest))
        expect(name == "dltensor_versioned", f"for {newest} it is called {name!r}")
    return "it is"


@dlpack("readonly", over={"layout": FROZEN})
def dlpack_readonly(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = whole_of(p, lab, case)
    base = read_capsule(export(x, stream=1))
    region = lab.region(describe(export(x, stream=1))["capsule"])
    expect_unwritten(p, lab, x, region, readonly=bool(base.readonly))
    frozen, before = p.readonly(x), base.readonly
    y = taken_of(p, lab, frozen, case)[0]
    try:
        fields = read_capsule(export(y, stream=1))
    except BufferError as error:
        return f"refused: {error}"
    if is_copy(case, fields.ptr, base.ptr):
        return "a copy"
    expect(fields.flags is not None, "a legacy capsule, which cannot say it")
    expect(fields.readonly, f"flags are {fields.flags}")
    after = read_capsule(export(x, stream=1)).readonly
    expect(frozen is x or after == before, "then the array itself is told as read-only")
    try:
        name = capsule_name(y.__dlpack__(**stream_taken(y)))
    except Exception as refused:
        return f"flags are {fields.flags}, and legacy capsules are refused: {refused}"
    expect(name != "dltensor", "without max_version it is a legacy capsule, which cannot say it")
    return f"flags are {fields.flags}"


@dlpack("copy", rests_on=("values", "pending", "two-exports", "flags"))
def dlpack_copy(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    own = lab.region(describe(export(x, stream=1))["capsule"])
    lab.put(own, 3.0)
    fields = read_capsule(export(x, stream=1, copy=False))
    ptr = fields.data + fields.byte_offset
    expect(ptr == own.ptr, f"copy=False is at {ptr:#x}, the array at {own.ptr:#x}")
    expect(not (fields.flags or 0) & 2, "with copy=False the tensor says it is a copy")
    try:
        capsule = export(x, stream=1, copy=True)
    except BufferError as error:
        return f"copy=True is refused: {error}"
    copied, flags = lab.region(describe(capsule)["capsule"]), read_capsule(capsule).flags
    expect(copied.ptr != own.ptr, f"copy=True is at {own.ptr:#x}, where the array is")
    lab.synchronize()
    expect(lab.get(copied) == lab.get(own), f"the copy holds {lab.get(copied)}")
    expect(flags is None or flags & 2, f"flags of the copy are {flags}")
    if can_be_late(p):
        expect_ordered(p, lab, Case(export="copy=True"), by_capsule)
    return "both as asked"


@dlpack("dl-device", over={"layout": ("whole", "columns", "transposed")}, rests_on=("values",))
def dlpack_dl_device(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = whole_of(p, lab, case)
    own = lab.region(describe(export(x, stream=1))["capsule"])
    lab.put(own, 3.0)
    device = read_capsule(export(x, stream=1)).device
    served = read_capsule(export(x, stream=1, dl_device=device)).device
    expect(served == device, f"dl_device={device} is served with {served}")
    told, y = [], taken_of(p, lab, x, case)[0]
    # A ROCm device, another one of CUDA, managed memory, and the CPU, for which no stream is named.
    wishes_of: list[tuple[int, int]] = [(10, 0), (device[0], 63), (13, 0), (1, 0)]
    for wanted in wishes_of:
        wishes = {} if wanted[0] == 1 else {"stream": 1}
        try:
            capsule = export(y, dl_device=wanted, **wishes)
        except BufferError as error:
            told.append(f"{wanted} is refused: {error}")
            continue
        fields = read_capsule(capsule)
        expect(fields.device == wanted, f"dl_device={wanted} is served with {fields.device}")
        kind, _ = lab.device_of(fields.ptr) or (1, 0)
        expect(wanted[0] == 1 and kind != 2, f"dl_device={wanted} is served with memory of CUDA")
        values = on_host(describe(capsule)["capsule"])
        expect(set(values) == {3.0}, f"dl_device={wanted} is served with {values}")
        told.append(f"{wanted} is served")
    return "; ".join(told)


@dlpack(
    "host-copy",
    over={"layout": ("whole", "columns", "transposed", "rows"), "stream": ("its own", "default")},
    rests_on=("dl-device",),
)
def dlpack_host_copy(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = whole_of(p, lab, case)
    base = lab.region(describe(export(x, stream=1))["capsule"])
    wanted: list[float] = []
    items = numbers(case, [*range(base.size)])
    late = None
    if case.layout == Case().layout and can_be_late(p):
        late = pending(p, lab, case, next(lab.values()))
    if late is None:
        lab.put(base, nested(iter(items), base.shape))
        y, view = taken_of(p, lab, x, case)
        wanted = numbers(case, view.places())
    else:
        y, wanted = late.array, [late.value]
    try:
        with p.entered(late.stream if late else None):
            capsule = export(y, dl_device=(1, 0))
    except Exception as refused:
        raise NotApplicableError(f"refused: {refused}") from refused
    seen = on_host(describe(capsule)["capsule"])
    same = seen == wanted or (len(wanted) == 1 and set(seen) == {*wanted})
    # What nothing has written differs each time.
    held = {*wanted, *items, BEFORE}
    what = f"{seen[:12]}" if held & {*seen} else "memory that nothing had written"
    expect(same, f"it holds {what}, and the array {wanted[:12]}")
    return "it holds the array's items"
