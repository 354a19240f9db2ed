"""What the CUDA Array Interface requires of the stream that a dict names, and of lifetimes."""

from __future__ import annotations

from cai_bridge.testing import describe

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import expect, needs
from .arrays import cai_of, collect, is_int, made, reference_to
from .doors import cai


@cai("stream-lifetime")
def cai_stream_lifetime(p: ProducerAdapter, lab: Lab) -> str:
    # Touching a stream that is gone ends the process, on a GPU.
    needs(lab.expendable, "judged only in a process that may crash, as `cai-bridge check` starts")
    late, mine = p.late(lab, next(lab.values())), lab.stream()
    with p.on(late.stream):
        said = describe(cai_of(late.array))["CAI"]
    needs(is_int(said.stream), f"the dict names {lab.called(said.stream)}")
    named = lab.called(said.stream)
    late.stream = None
    collect()
    try:
        lab.order(int(said.stream or 0), mine.handle)
        lab.wait(mine.handle)
    except Exception as dead:
        expect(False, f"the dict names {named}, which is gone with its object: {dead}")
    lab.synchronize()
    return f"the dict names {named}, which is still there"


@cai("lifetime", over={"export": ("first", "again")})
def cai_lifetime(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x, unread = made(p, lab), made(p, lab)
    entries = [cai_of(x) for _ in range(2 if case.export == "again" else 1)]
    alive, also = reference_to(x), reference_to(unread)
    del x, unread
    if also() is not None:  # one that was never read waits for the collector, too
        collect()
    expect(alive() is None, "the object is still there while its dict is")
    return f"gone, with the dict at hand: {entries[0]['shape']}"
