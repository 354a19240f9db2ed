"""What the array API standard requires of the stream that ``__dlpack__`` is asked for."""

from __future__ import annotations

from cai_bridge.testing import describe

from ..adapter import ProducerAdapter
from ..lab import Lab
from ..requirement import (
    ARRAY_API,
    NotApplicableError,
    expect,
    needs,
)
from .arrays import export, made, speaks_dlpack
from .dlpack import METHOD, dlpack

STREAM = METHOD + "stream"
_RACE = "the consumer reads before the write is done"


@dlpack(
    "pending",
    ARRAY_API,
    STREAM,
    "the array is ready on the stream that stream= names, and the host does not wait",
    _RACE,
)
def dlpack_pending(p: ProducerAdapter, lab: Lab) -> str:
    waited = []
    for value in lab.values():
        late, mine = p.late(lab, value), lab.stream()
        with p.on(late.stream), lab.watched() as watch:
            capsule = export(late.array, stream=mine.handle)
        waited.append(watch.waited)
        region = lab.region(describe(capsule)["capsule"])
        seen = lab.expect_read(mine.handle, region, late, f"asked for {lab.called(mine.handle)}")
    expect(not all(waited), "the host waited for the write")
    return seen


@dlpack(
    "pending-elsewhere",
    ARRAY_API,
    STREAM,
    "the same when another stream is the library's current one",
    _RACE,
)
def dlpack_pending_elsewhere(p: ProducerAdapter, lab: Lab) -> str:
    for value in lab.values():
        late, mine, other = p.late(lab, value), lab.stream(), p.stream()
        needs(late.stream is not None, "the library's streams have no names")
        with p.on(other):
            capsule = export(late.array, stream=mine.handle)
        region = lab.region(describe(capsule)["capsule"])
        seen = lab.expect_read(mine.handle, region, late, f"asked for {lab.called(mine.handle)}")
    return seen


@dlpack(
    "pending-on-two",
    ARRAY_API,
    STREAM,
    "the same when work on the array is pending on two streams: the array is ready after both",
    _RACE,
)
def dlpack_pending_on_two(p: ProducerAdapter, lab: Lab) -> str:
    speaks_dlpack(made(p, lab))
    for value in lab.values():
        late, mine = p.late_on_two(lab, value), lab.stream()
        with p.on(late.stream):
            capsule = export(late.array, stream=mine.handle)
        region = lab.region(describe(capsule)["capsule"])
        seen = lab.expect_read(mine.handle, region, late, f"asked for {lab.called(mine.handle)}")
    return seen


@dlpack(
    "default-stream",
    ARRAY_API,
    STREAM + ": None",
    "stream=None means the legacy default stream: the array is ready on it",
    _RACE,
)
def dlpack_default_stream(p: ProducerAdapter, lab: Lab) -> str:
    for value in lab.values():
        late = p.late(lab, value)
        with p.on(late.stream):
            capsule = export(late.array, stream=None)
        region = lab.region(describe(capsule)["capsule"])
        seen = lab.expect_read(1, region, late, f"asked for None, {lab.called(1)}")
    return seen


@dlpack(
    "per-thread-stream",
    ARRAY_API,
    STREAM + ": 2",
    "stream=2 means the per-thread default stream: the array is ready on it",
    _RACE,
)
def dlpack_per_thread_stream(p: ProducerAdapter, lab: Lab) -> str:
    for value in lab.values():
        late = p.late(lab, value)
        speaks_dlpack(late.array)
        with p.on(late.stream):
            try:
                capsule = export(late.array, stream=2)
            except Exception as refused:
                # Of that dlpack-streams tells.
                raise NotApplicableError(f"2 is refused: {refused}") from None
        region = lab.region(describe(capsule)["capsule"])
        seen = lab.expect_read(2, region, late, f"asked for 2, {lab.called(2)}")
    return seen


@dlpack(
    "streams",
    ARRAY_API,
    STREAM + ": 1, 2 and handles",
    "stream= takes None, 1, 2 and the handle of any stream",
    "consumers that work on such a stream cannot use the array",
)
def dlpack_streams(p: ProducerAdapter, lab: Lab) -> str:
    x, mine = made(p, lab), lab.stream()
    speaks_dlpack(x)
    for stream in (None, 1, 2, mine.handle):
        try:
            export(x, stream=stream)
        except Exception as refused:
            expect(False, f"{stream} is refused: {type(refused).__name__}: {refused}")
    return "all are taken"


@dlpack(
    "no-synchronization",
    ARRAY_API,
    STREAM + ": -1",
    "stream= takes -1, and then nothing waits",
    "consumers that order the work themselves cannot say so",
)
def dlpack_no_synchronization(p: ProducerAdapter, lab: Lab) -> str:
    pending = False
    for _ in range(lab.rounds):
        late = p.late(lab, 1.0)
        with p.on(late.stream), lab.no_waits():
            export(late.array, stream=-1)
        # A host that waits does so each time; once, it may have had other things to do.
        pending = pending or late.hold.pending
        lab.synchronize()
    expect(pending, "the host waited for the write")
    return "nothing waited"


@dlpack(
    "stream-zero",
    ARRAY_API,
    STREAM + ": 0",
    "0 is refused",
    "it may mean None, the legacy or the per-thread default stream",
    level="should",
)
def dlpack_stream_zero(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    export(x, stream=1)
    try:
        export(x, stream=0)
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"
    expect(False, "0 is taken")
    return ""
