"""The requirements of DLPack and the array API standard on ``__dlpack__``'s arguments."""

from __future__ import annotations

from typing import Any

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import capsule_name, read_capsule, take
from cai_bridge.testing._values import nested

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab, flat
from ..places import BEFORE
from ..refusals import ACCIDENTS
from ..requirement import NotApplicableError, expect, needs
from ..surroundings import elsewhere
from .arrays import (
    CPU,
    MANAGED,
    can_be_late,
    expect_freed,
    expect_unwritten,
    export,
    has_versioned,
    is_readable,
    made,
    on_host,
    speaks_dlpack,
    stream_taken,
)
from .dlpack import fields_by
from .doors import by_default, dlpack
from .pending import laid_pending
from .values import by_dlpack, earlier, is_copy, laid_out, numbers, region_in, taken_of, whole_of


@dlpack("legacy", rests_on=("readonly",))
def dlpack_legacy(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    readonly = fields_by(x, case).readonly
    own = stream_taken(x)
    name: str | None = ""
    for wish in ({}, {"max_version": None}, {"max_version": (0, 8)}):
        try:
            capsule = x.__dlpack__(**own, **wish)
        except BufferError as refused:
            # A producer may refuse all legacy capsules, and none has a read-only flag.
            plain = has_legacy(made(p, lab))
            expect(readonly or not plain, f"with {wish} refused, as others are not: {refused}")
            needs(plain or has_versioned(x), f"refused: {refused}")
            return f"legacy capsules are refused: {refused}"
        except TypeError as unknown:
            expect(wish, f"raised TypeError: {unknown}")
            continue
        name = capsule_name(capsule)
        expect(name == "dltensor", f"with {wish} it is called {name!r}")
        lab.synchronize()  # the capsule of read-only memory may hold a copy
    return f"{name!r}"


def has_legacy(x: Any) -> bool:
    """Return whether the array gives a legacy capsule."""
    try:
        return capsule_name(x.__dlpack__(**stream_taken(x))) == "dltensor"
    except BufferError:
        return False


@dlpack("versioned")
def dlpack_versioned(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    fields_by(x, case)
    for newest in ((1, 3), (1, 0), (2, 0)):
        name = capsule_name(export(x, stream=1, max_version=newest))
        expect(name == "dltensor_versioned", f"for {newest} it is called {name!r}")
    return "it is"


@dlpack("readonly")
def dlpack_readonly(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = whole_of(p, lab, case)
    base = read_capsule(export(x, stream=1))
    if case == Case():
        region = lab.region(describe(export(x, stream=1))["capsule"])
        expect_unwritten(p, lab, x, region, readonly=bool(base.readonly))
    frozen, before = p.readonly(x), base.readonly
    y = taken_of(p, lab, frozen, case)[0]
    kept = earlier(case.but(flag="read-only"), y, by_default)
    try:
        fields = read_capsule(export(y, case, stream=1))
    except BufferError as error:
        return f"refused: {error}"
    if is_copy(case, fields.ptr, base.ptr):
        return "a copy"
    expect(fields.flags is not None, "a legacy capsule, which cannot say it")
    expect(fields.readonly, f"flags are {fields.flags}")
    after = read_capsule(export(x, stream=1)).readonly
    expect(frozen is x or after == before, "then the array itself is told as read-only")
    try:
        capsule = y.__dlpack__(**stream_taken(y))
        name = capsule_name(capsule)
    except Exception as refused:
        return f"flags are {fields.flags}, and legacy capsules are refused: {refused}"
    copied = name == "dltensor" and read_capsule(capsule).ptr != fields.ptr
    lab.synchronize()
    unsaid = name == "dltensor" and not copied
    expect(not unsaid, "without max_version it is a legacy capsule, which cannot say it")
    del kept
    return f"flags are {fields.flags}"


@dlpack("copy", rests_on=("values", "two-exports", "flags", "deleter"))
def dlpack_copy(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    speaks_dlpack(whole := whole_of(p, lab, case))
    base = region_in(lab, by_dlpack(whole), case)
    items = nested(iter(numbers(case, [*range(base.size)])), base.shape)
    lab.put(base, items)
    x, view = taken_of(p, lab, whole, case)
    kept, wanted = earlier(case, x, by_default), numbers(case, view.places())
    own = fields_by(x, case.but(moment="first"))
    for _ in range(2):
        fields = read_capsule(export(x, stream=1, copy=False))
        expect(
            fields.ptr == own.ptr, f"copy=False is at {fields.ptr:#x}, the array at {own.ptr:#x}"
        )
        expect(not (fields.flags or 0) & 2, "with copy=False the tensor says it is a copy")
        expect(fields.readonly == own.readonly, "copy=False and None differ in READ_ONLY")
        try:
            capsule = export(x, stream=1, copy=True)
        except BufferError as error:
            return f"copy=True is refused: {error}"
        copied = region_in(lab, describe(capsule)["capsule"], case)
        flags = read_capsule(capsule).flags
        same = wanted and copied.ptr == own.ptr
        expect(not same, f"copy=True is at {own.ptr:#x}, where the array is")
        expect(copied.shape == view.shape, f"the copy has the shape {copied.shape}")
        lab.synchronize()
        seen = [*flat(lab.get(copied))]
        expect(seen == wanted, f"the copy holds {seen}, and the array {wanted}")
        expect(flags is None or flags & 2, f"flags of the copy are {flags}")
    del kept
    if case == Case():
        expect_freed(lab, lambda: take(export(x, stream=1, copy=True)), "copy=True")
    return "both as asked"


@dlpack("dl-device", rests_on=("values",))
def dlpack_dl_device(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    speaks_dlpack(x := whole_of(p, lab, case))
    base = region_in(lab, by_dlpack(x), case)
    lab.put(base, nested(iter(numbers(case, [*range(base.size)])), base.shape))
    y, view = taken_of(p, lab, x, case)
    wanted_items = numbers(case, view.places())
    kept = earlier(case, y, by_default)
    own = fields_by(y, case.but(moment="first"))
    served = read_capsule(export(y, stream=1, dl_device=own.device)).device
    expect(served == own.device, f"dl_device={own.device} is served with {served}")
    told = []
    # A ROCm device, another CUDA device, managed memory, and the CPU, for which no stream is named.
    for wanted in {(10, 0), (2, 63), (13, 0), (CPU, 0)} - {own.device}:
        wishes: dict[str, Any] = {} if CPU in (wanted[0], own.device[0]) else {"stream": 1}
        try:
            capsule = export(y, dl_device=wanted, **wishes)
        except BufferError as error:
            told.append(f"{wanted} is refused: {error}")
            continue
        fields = read_capsule(capsule)
        expect(fields.device == wanted, f"dl_device={wanted} is served with {fields.device}")
        managed = own.device[0] == MANAGED
        expect(wanted[0] == CPU or managed, f"dl_device={wanted} is served with memory of CUDA")
        readable = is_readable(lab, fields, own.device)
        expect(readable, f"dl_device={wanted} is served with memory of CUDA")
        values = on_host(lab, describe(capsule)["capsule"])
        expect(values == wanted_items, f"dl_device={wanted} holds {values}, not {wanted_items}")
        copied = wanted_items and fields.ptr != own.ptr
        said = fields.flags is None or not copied or fields.flags & 2
        expect(said, f"dl_device={wanted} is served with a copy, whose flags are {fields.flags}")
        if wanted_items:
            expect_no_copy(y, wanted, own.ptr, wishes)
        told.append(f"{wanted} is served")
    del kept
    return "; ".join(sorted(told))


def expect_no_copy(y: Any, device: tuple[int, int], ptr: int, wishes: dict[str, Any]) -> None:
    """Ask for an array's own memory on another device; the producer may refuse.

    Raises
    ------
    UnmetError
        The producer made a copy.
    """
    try:
        capsule = export(y, dl_device=device, copy=False, **wishes)
    except ACCIDENTS:
        raise
    except Exception:
        return
    got = read_capsule(capsule).ptr
    expect(got == ptr, f"dl_device={device} with copy=False is served with a copy")


@dlpack("host-copy-on-two", rests_on=("dl-device", "host-copy"))
@dlpack("host-copy", rests_on=("dl-device",))
def dlpack_host_copy(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    needs(can_be_late(p), "the adapter does not say how work comes to be pending")
    late = laid_pending(p, lab, case, next(lab.values()))
    speaks_dlpack(late.array)

    def asked() -> Any:
        with p.entered(late.current):
            return export(late.array, dl_device=(CPU, 0))

    try:
        kept = earlier(case, late.array, lambda x: export(x, dl_device=(CPU, 0)))
        capsule = elsewhere(lab, case, "the hand-over", asked)
    except ACCIDENTS:
        raise
    except Exception as refused:
        raise NotApplicableError(f"refused: {refused}") from refused
    seen = on_host(lab, describe(capsule)["capsule"])
    # Uninitialised memory differs each time.
    told = (
        f"{seen[:12]}" if {late.value, BEFORE, 0.0} & {*seen} else "memory that nothing had written"
    )
    expect({*seen} == {late.value}, f"it holds {told}, and the array {late.value}")
    del kept
    return "it holds the array's items"
