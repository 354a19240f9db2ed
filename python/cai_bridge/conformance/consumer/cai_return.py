"""What the CUDA Array Interface requires of a consumer at the end: the producer's stream waits."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, Lab, Late
from ..producer.arrays import collect
from .arrays import expect_copied, stream_of, takes
from .waiting import needs_sharing

_cai = takes("cai", "values", "stream", "return")


@_cai("return", over={"work": ("a read", "two reads")})
def takes_cai_return(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    mine = stream_of(c)
    for value in lab.values():
        theirs = lab.stream()
        x = CaiArray(lab, (lab.items,), value=value, stream=theirs)
        with c.on(mine):
            y = c.take(x)
            if case.work == "two reads":
                c.values(c.copy(y))
            hold = c.hold(lab, mine)
            copied = c.copy(y)
        del y
        collect()
        lab.write(theirs.handle, x.region, -value)
        shown = not hold.pending or lab.overtakes(theirs.handle, hold) is not None
        lab.wait(theirs.handle)
        late = Late(x, mine, value, hold)
        seen = expect_copied(*(c, lab, copied, late, "the producer has written again"), shown=shown)
    return seen


@_cai("return-write", over={"work": ("a write", "two writes")})
def takes_cai_return_write(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    needs_sharing(c, lab, CaiArray)
    mine = stream_of(c)
    for value in lab.values():
        theirs = lab.stream()
        x = CaiArray(lab, (lab.items,), value=-value, stream=theirs)
        with c.on(mine):
            y = c.take(x)
            if case.work == "two writes":
                c.fill(y, -2 * value)
                lab.synchronize()
            hold = c.hold(lab, mine)
            c.fill(y, value)
        del y
        collect()
        late = Late(x, mine, value, hold)
        seen = lab.expect_read(theirs.handle, x.region, late, f"{lab.called(theirs.handle)} reads")
    return seen
