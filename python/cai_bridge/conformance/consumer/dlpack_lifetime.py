"""DLPack's requirements on a consumer that has a capsule: rename it, and call its deleter."""

from __future__ import annotations

from typing import Any

from cai_bridge.testing._kit.dlpack_abi import capsule_name

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import DLPackArray, Lab, flat
from ..producer.arrays import collect
from ..refusals import Refusal, attempt
from ..requirement import expect, needs
from ..surroundings import elsewhere
from .arrays import FORMS, prepared, stream_of, taken, takes
from .layouts import Handed, handed
from .waiting import expect_given_back

_dlpack = takes("dlpack")


@_dlpack("renamed")
def takes_dlpack_renamed(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case, keep=True)
    with prepared(c, lab, x, case):
        y = taken(c, x, case)
    lab.synchronize()  # the consumer may read the array at once
    names = [capsule_name(capsule) for capsule in x.capsules]
    expect(f"{names[-1]}".startswith("used_dltensor"), f"then it is called {names[-1]!r}")
    del y
    return f"{names[-1]}"


@_dlpack("deleter", rests_on=(*FORMS, "renamed"))
def takes_dlpack_deleter(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case)
    with prepared(c, lab, x, case):
        held = [taken(c, x, case)]
        c.values(c.copy(held[0]))
    if case.use == "on another stream":
        # A stream that is destroyed before the end.
        other = stream_of(c)
        lab.synchronize()
        with c.entered(other):
            c.values(c.copy(held[0]))
        del other
        collect()
    elsewhere(lab, case, "the end", held.clear)
    # A second import of the same array.
    with prepared(c, lab, x, case.but(moment="first")):
        held.append(taken(c, x, case))
        c.values(c.copy(held[0]))
    elsewhere(lab, case, "the end", held.clear)
    lab.synchronize()
    collect()
    if not all(x.deleted):
        c.take(DLPackArray(lab))  # the library may call the deleter at the next import
    expect_deleted(lab, x)
    return "once"


def expect_deleted(lab: Lab, x: DLPackArray, told: str = "") -> None:
    """Judge whether each tensor was deleted once, at once or a moment later by another thread.

    Raises
    ------
    UnmetError
        A tensor was not deleted, or was deleted more than once.
    """
    lab.synchronize()
    collect()
    lab.soon(lambda: all(x.deleted))
    lab.synchronize()
    expect(set(x.deleted) <= {1}, f"{told}it was called {x.deleted} times")


@_dlpack("deleter-not-early", rests_on=(*FORMS, "renamed"))
def takes_dlpack_deleter_not_early(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    x = handed(DLPackArray, lab, case)
    with prepared(c, lab, x, case):
        before = len(x.deleted)
        y = taken(c, x, case)
    lab.synchronize()  # the consumer may read the array at once
    collect()
    # A consumer that only read a capsule leaves the tensor to the capsule's destructor.
    if not all(x.deleted[before:]):
        return "not yet called"
    lab.put(x.region, 99.0)
    seen = c.values(c.copy(y))
    expect(set(flat(seen)) != {99.0}, "it was called, and the array still reads the memory")
    return "called, since the consumer has a copy"


ODD: tuple[dict[str, Any], ...] = (
    *({"form": "2.0"}, {"code": 99}, {"device": (10, 0)}, {"lanes": 2}, {"bits": 7}),
    *({"readonly": True}, {"code": 3}),
)


@_dlpack("refused-deleted")
def takes_dlpack_refused_deleted(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    tried = []
    for odd in ODD:
        x = handed(DLPackArray, lab, case, **odd)
        with prepared(c, lab, x, case.but(moment="first")):
            y = attempt(c.take, x)
        if isinstance(y, Refusal) and x.deleted:
            expect_deleted(lab, x, f"with {odd} it is {y}; ")
            tried.append(f"{odd}")
        del y
    needs(tried, "it refused none")
    return ", ".join(tried)


@_dlpack("deleter-queued", rests_on=("values", "deleter"))
def takes_dlpack_deleter_queued(
    c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]
) -> str:
    return expect_given_back(c, lab, case, kind)
