"""The CUDA Array Interface's requirements on a dict's stream, and on lifetimes."""

from __future__ import annotations

from cai_bridge.testing import describe

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import expect, needs
from .arrays import cai_of, collect, is_int, reference_to
from .doors import cai
from .pending import laid_pending
from .values import earlier, laid_out


@cai("stream-lifetime", rests_on=("data", "values", "stream"))
def cai_stream_lifetime(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    # On a GPU, using a destroyed stream kills the process.
    needs(lab.expendable, "judged only in a process that may crash, as `cai-bridge check` starts")
    late, mine = laid_pending(p, lab, case, next(lab.values())), lab.stream()
    with p.entered(late.current):
        for _ in range(2 if case.moment == "again" else 1):
            said = describe(cai_of(late.array))["CAI"]
    needs(is_int(said.stream), f"the dict names {lab.called(said.stream)}")
    named = lab.called(said.stream)
    late.stream = late.current = late.keep = None
    collect()
    try:
        lab.order(int(said.stream or 0), mine.handle)
        lab.wait(mine.handle)
    except Exception as dead:
        expect(False, f"the dict names {named}, which is gone with its object: {dead}")
    lab.synchronize()
    return f"the dict names {named}, which is still there"


@cai("lifetime")
def cai_lifetime(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, unread = laid_out(p, lab, case), laid_out(p, lab, case)
    kept = earlier(case, x, cai_of)
    entries = cai_of(x)
    alive, also = reference_to(x), reference_to(unread)
    del x, unread
    if also() is not None:  # an array that was never read waits for the collector, too
        collect()
    expect(lab.soon(lambda: alive() is None), "the object is still there while its dict is")
    del kept
    return f"gone, with the dict at hand: {entries['shape']}"
