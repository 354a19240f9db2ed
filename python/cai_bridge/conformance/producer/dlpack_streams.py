"""What the array API standard requires of the stream that ``__dlpack__`` is asked for."""

from __future__ import annotations

from cai_bridge.testing import describe

from ..adapter import ProducerAdapter
from ..lab import Lab
from ..requirement import expect, given, needs
from .arrays import asked_on, export, made, speaks_dlpack
from .doors import dlpack
from .order import PENDING


@dlpack("per-thread-stream", rests_on=PENDING["dlpack"], streams=(2,))
@dlpack("default-stream", rests_on=PENDING["dlpack"], streams=(None, 1))
def dlpack_default_streams(p: ProducerAdapter, lab: Lab, streams: tuple[int | None, ...]) -> str:
    seen, told = None, ""
    for asked in streams:
        for value in lab.values():
            late = p.late(lab, value)
            speaks_dlpack(late.array)
            try:
                with p.on(late.stream):
                    capsule = asked_on(late.array, asked, strict=True)
            except Exception as refused:
                if asked is None:  # others are optional
                    raise
                lab.synchronize()
                told = f"{asked} is refused: {refused}"
                continue
            region, mine = lab.region(describe(capsule)["capsule"]), asked or 1
            seen = lab.expect_read(mine, region, late, f"asked for {asked}, {lab.called(mine)}")
            del capsule, late  # to free it may wait for what the next round holds back
    return given(seen, told)


@dlpack("streams")
def dlpack_streams(p: ProducerAdapter, lab: Lab) -> str:
    x, mine = made(p, lab), lab.stream()
    speaks_dlpack(x)
    for stream in (None, 1, 2, mine.handle):
        try:
            asked_on(x, stream, strict=True)
        except Exception as refused:
            expect(False, f"{stream} is refused: {type(refused).__name__}: {refused}")
    return "all are taken"


@dlpack("no-synchronization")
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
        del capsule, late
    expect(pending, "the host waited for the write")
    return "nothing waited"


@dlpack("stream-zero")
def dlpack_stream_zero(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    export(x, stream=1)
    try:
        export(x, stream=0)
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"
    expect(False, "0 is taken")
    return ""


@dlpack("no-host-wait")
def dlpack_no_host_wait(p: ProducerAdapter, lab: Lab) -> str:
    waited = []
    for value in lab.values():
        late, mine = p.late(lab, value), lab.stream()
        speaks_dlpack(late.array)
        with p.on(late.stream), lab.watched() as watch:
            capsule = asked_on(late.array, mine.handle)
        needs(capsule is not None, "it takes no stream but None")
        waited.append(watch.waited)
        lab.synchronize()
        del capsule, late
    expect(not all(waited), "the host waited for the write")
    return "it does not"
