"""The array API standard's requirements on ``__dlpack__``'s stream argument."""

from __future__ import annotations

from cai_bridge.testing import describe

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..refusals import ACCIDENTS
from ..requirement import expect, needs
from .arrays import asked_on, export, speaks_dlpack
from .doors import by_default, dlpack
from .pending import laid_pending
from .values import earlier, laid_out, said_or_refused


@dlpack("streams", rests_on=("versioned",))
def dlpack_streams(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, mine = laid_out(p, lab, case), lab.stream()
    speaks_dlpack(x)
    for stream in (None, 1, 2, mine.handle):
        try:
            asked_on(x, stream, strict=True)
        except Exception as refused:
            expect(False, f"{stream} is refused: {type(refused).__name__}: {refused}")
    return "all are taken"


@dlpack("no-synchronization")
def dlpack_no_synchronization(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    kept_waiting = []
    for _ in range(lab.rounds):
        late, other = laid_pending(p, lab, case, 1.0), lab.stream()
        speaks_dlpack(late.array)
        kept = earlier(case, late.array, asked_on, other.handle)
        with p.entered(late.current), lab.no_waits():
            pending = late.hold.pending
            capsule = asked_on(late.array, -1, case)
        needs(capsule is not None, "-1 is refused, as streams other than None may be")
        if pending:
            kept_waiting.append(not late.hold.pending)
        lab.synchronize()
        del capsule, late, kept
    needs(kept_waiting, "what was held back was done before -1 was asked for")
    # A producer that waits on the host does so each time. In a single round the host may be slow
    # for other reasons.
    expect(not all(kept_waiting), "the host waited for the write")
    return "nothing waited"


@dlpack("failed-wait", rests_on=("values", "pending"))
def dlpack_failed_wait(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    told = ""
    for value in lab.values():
        late, mine = laid_pending(p, lab, case, value), lab.stream()
        speaks_dlpack(late.array)
        with p.entered(late.current), lab.failing_waits():
            capsule = asked_on(late.array, mine.handle, case)
        if capsule is None:
            lab.synchronize()
            told = "it raises"
            continue
        region = lab.region(describe(capsule)["capsule"])
        told = lab.expect_read(mine.handle, region, late, "cuStreamWaitEvent fails")
        del capsule
    return told


@dlpack("stream-zero")
def dlpack_stream_zero(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    kept = earlier(case, x, by_default)
    said_or_refused(lambda x, case: export(x, case, stream=1), x, case)
    try:
        export(x, case, stream=0)
    except ACCIDENTS:
        raise
    except Exception as error:
        del kept
        return f"refused: {type(error).__name__}: {error}"
    expect(False, "0 is taken")
    return ""


@dlpack("no-host-wait")
def dlpack_no_host_wait(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    waited = []
    for value in lab.values():
        late, mine = laid_pending(p, lab, case, value), lab.stream()
        speaks_dlpack(late.array)
        kept = earlier(case, late.array, asked_on, mine.handle)
        pending = late.hold.pending
        with p.entered(late.current), lab.watched(late.hold) as watch:
            capsule = asked_on(late.array, mine.handle, case)
        needs(capsule is not None, "it takes no stream but None")
        if pending:
            waited.append(watch.waited)
        lab.synchronize()
        del capsule, late, kept
    needs(waited, "what was held back was done before the stream was named")
    expect(not all(waited), "the host waited for the write")
    return "it does not"
