"""The CUDA Array Interface's requirement at a consumer's end: the producer's stream waits."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, Lab, Late, handle_of
from ..producer.arrays import collect
from ..surroundings import elsewhere
from .arrays import takes
from .layouts import Handed, handed
from .waiting import expect_given_back, held, imported, needs_sharing, sides, took_before, uses

_cai = takes("cai", "values", "stream", "return")


@_cai("return")
def takes_cai_return(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_given_back(c, lab, case, kind)


@_cai("return-write")
def takes_cai_return_write(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    needs_sharing(c, lab, CaiArray)
    for value in lab.values():
        streams = sides(c, lab, case)
        x = handed(CaiArray, lab, case, value=0.0, stream=streams.theirs)
        kept = took_before(c, lab, x, case, streams)
        y = imported(c, lab, x, case, streams.mine)
        if case.work == "two writes":
            with c.entered(streams.mine):
                c.fill(y, -2 * value)
            lab.synchronize()
        [stream] = uses(c, lab, case, streams)
        hold = held(c, lab, stream)
        with c.entered(stream):
            c.fill(y, value)
        held_by = [y]
        del y, kept
        elsewhere(lab, case, "the end", held_by.clear)
        collect()
        late, theirs = Late(x, stream, value, hold), handle_of(streams.theirs)
        seen = lab.expect_read(theirs, x.region, late, f"{lab.called(theirs)} reads")
    return seen
