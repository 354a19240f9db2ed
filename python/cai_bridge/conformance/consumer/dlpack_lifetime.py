"""What DLPack requires of a consumer once it has a capsule: of its name, and of its deleter."""

from __future__ import annotations

from cai_bridge.testing._kit.dlpack_abi import capsule_name

from ..adapter import ConsumerAdapter
from ..lab import DLPackArray, Lab, Late, flat
from ..producer.arrays import collect
from ..requirement import expect, needs
from .arrays import Refusal, attempt, expect_copied, stream_of, takes

_dlpack = takes("dlpack")


@_dlpack("renamed")
def takes_dlpack_renamed(c: ConsumerAdapter, lab: Lab) -> str:
    for form in (None, "legacy"):
        x = DLPackArray(lab, form=form, keep=True)
        y = c.take(x)
        lab.synchronize()  # it may look at what it takes, at once
        names = [capsule_name(capsule) for capsule in x.capsules]
        expect(f"{names[-1]}".startswith("used_dltensor"), f"then it is called {names[-1]!r}")
        del y
    return f"{names[-1]}"


@_dlpack("deleter")
def takes_dlpack_deleter(c: ConsumerAdapter, lab: Lab) -> str:
    for form in (None, "legacy"):
        x = DLPackArray(lab, form=form)
        y = c.take(x)
        c.values(c.copy(y))
        del y
        # One more of the same array.
        z = c.take(x)
        c.values(c.copy(z))
        del z
        lab.synchronize()
        collect()
        expect(set(x.deleted) == {1}, f"it was called {x.deleted} times")
    return "once"


@_dlpack("deleter-not-early")
def takes_dlpack_deleter_not_early(c: ConsumerAdapter, lab: Lab) -> str:
    x = DLPackArray(lab)
    y = c.take(x)
    lab.synchronize()  # it may look at what it takes, at once
    collect()
    if not any(x.deleted):
        return "not yet called"
    lab.put(x.region, 99.0)
    seen = c.values(c.copy(y))
    expect(set(flat(seen)) != {99.0}, "it was called, and the array still reads the memory")
    return "called, since the consumer has a copy"


@_dlpack("refused-deleted")
def takes_dlpack_refused_deleted(c: ConsumerAdapter, lab: Lab) -> str:
    tried = []
    for odd in ({"form": "2.0"}, {"code": 99}, {"device": (10, 0)}):
        x = DLPackArray(lab, **odd)
        y = attempt(c.take, x)
        if isinstance(y, Refusal) and x.deleted:
            lab.synchronize()
            collect()
            expect(set(x.deleted) == {1}, f"with {odd} it was called {x.deleted} times, and {y}")
            tried.append(f"{odd}")
        del y
    needs(tried, "it refused none")
    return ", ".join(tried)


@_dlpack("deleter-queued", rests_on=("values", "deleter"))
def takes_dlpack_deleter_queued(c: ConsumerAdapter, lab: Lab) -> str:
    mine = stream_of(c)
    for value in lab.values():
        x, theirs = DLPackArray(lab, (1024,), value=value), lab.stream()
        hold = c.hold(lab, mine)
        with c.on(mine):
            y = c.take(x)
            copied = c.copy(y)
        del y
        collect()
        if not any(x.deleted):
            return "it is not called yet"
        lab.write(theirs.handle, x.region, -value)
        shown = not hold.pending or lab.overtakes(theirs.handle, hold) is not None
        lab.wait(theirs.handle)
        late = Late(x, mine, value, hold)
        what = "the deleter was called, and the producer has written again"
        seen = expect_copied(c, lab, copied, late, what, shown=shown)
    return seen
