"""What the array API standard requires of the stream that ``__dlpack__`` is asked for."""

from __future__ import annotations

from cai_bridge.testing import describe

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import (
    NotApplicableError,
    expect,
    needs,
)
from .arrays import asked_on, export, made, speaks_dlpack
from .dlpack import array_api
from .dlpack_pending import PENDING, STREAM
from .pending import ELSEWHERE, RACE, by_capsule, expect_ordered


@array_api(
    "pending-elsewhere",
    STREAM,
    "the same when another stream is the library's current one",
    RACE,
    over=ELSEWHERE,
    rests_on=PENDING,
)
def dlpack_pending_elsewhere(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    speaks_dlpack(made(p, lab))
    return expect_ordered(p, lab, case, by_capsule, elsewhere=True)


@array_api(
    "pending-on-two",
    STREAM,
    "the same when work on the array is pending on two streams: the array is ready after both",
    RACE,
    rests_on=PENDING,
)
def dlpack_pending_on_two(p: ProducerAdapter, lab: Lab) -> str:
    speaks_dlpack(made(p, lab))
    for value in lab.values():
        late, mine = p.late_on_two(lab, value), lab.stream()
        with p.on(late.stream):
            region, asked, kept = by_capsule(lab, late.array, mine.handle, Case())
        seen = lab.expect_read(mine.handle, region, late, asked)
        del kept
    return seen


@array_api(
    "default-stream",
    STREAM + ": None",
    "stream=None means the legacy default stream, as 1 does: the array is ready on it",
    RACE,
    rests_on=PENDING,
)
def dlpack_default_stream(p: ProducerAdapter, lab: Lab) -> str:
    for asked in (None, 1):
        for value in lab.values():
            late = p.late(lab, value)
            speaks_dlpack(late.array)
            with p.on(late.stream):
                capsule = asked_on(late.array, asked)
            if capsule is None:  # streams other than None are optional
                lab.synchronize()
                continue
            region = lab.region(describe(capsule)["capsule"])
            seen = lab.expect_read(1, region, late, f"asked for {asked}, {lab.called(1)}")
    return seen


@array_api(
    "per-thread-stream",
    STREAM + ": 2",
    "stream=2 means the per-thread default stream: the array is ready on it",
    RACE,
    rests_on=PENDING,
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


@array_api(
    "streams",
    STREAM + ": 1, 2 and handles",
    "stream= takes None, 1, 2 and the handle of any stream",
    "consumers that work on such a stream cannot use the array",
    level="should",
)
def dlpack_streams(p: ProducerAdapter, lab: Lab) -> str:
    x, mine = made(p, lab), lab.stream()
    speaks_dlpack(x)
    for stream in (None, 1, 2, mine.handle):
        try:
            asked_on(x, stream, strict=True)
        except Exception as refused:
            expect(False, f"{stream} is refused: {type(refused).__name__}: {refused}")
    return "all are taken"


@array_api(
    "no-synchronization",
    STREAM + ": -1",
    "stream= takes -1, and then nothing waits",
    "consumers that order the work themselves cannot say so",
)
def dlpack_no_synchronization(p: ProducerAdapter, lab: Lab) -> str:
    pending = False
    for _ in range(lab.rounds):
        late = p.late(lab, 1.0)
        speaks_dlpack(late.array)
        with p.on(late.stream), lab.no_waits():
            capsule = asked_on(late.array, -1)
        needs(capsule is not None, "-1 is refused, as streams other than None may be")
        # A host that waits does so each time; once, it may have had other things to do.
        pending = pending or late.hold.pending
        lab.synchronize()
    expect(pending, "the host waited for the write")
    return "nothing waited"


@array_api(
    "stream-zero",
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
