"""DLPack's requirements on who keeps the memory, and how long."""

from __future__ import annotations

from typing import Any

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import Taken, take

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab, flat
from ..requirement import expect
from ..surroundings import in_another_thread
from .arrays import (
    collect,
    expect_gone,
    expect_independent,
    expect_kept,
    export,
    made,
    reference_to,
)
from .doors import by_default, dlpack
from .values import by_dlpack, earlier, laid_out, said_or_refused, taken_of, whole_of


def asked(x: Any, case: Case) -> Any:
    """Ask for a capsule by the case's route."""
    return said_or_refused(lambda x, case: export(x, case, stream=1), x, case)


@dlpack("unconsumed")
def dlpack_unconsumed(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    kept = earlier(case, x, by_default)
    capsule = asked(x, case)
    alive = reference_to(x)
    del x, capsule, kept
    lab.synchronize()
    expect_gone(p, lab, alive)
    return "it is gone"


@dlpack("deleter", rests_on=("values", "unconsumed"))
def dlpack_deleter(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    whole = whole_of(p, lab, case)
    lab.put(lab.region(by_dlpack(whole)), 5.0)
    x = taken_of(p, lab, whole, case)[0]
    del whole
    kept = earlier(case, x, by_default)
    capsule = asked(x, case)
    alive = reference_to(x)
    region = lab.region(describe(capsule)["capsule"])
    taken = take(capsule)
    del x, capsule, kept
    lab.synchronize()
    collect()
    expect_kept(p, lab, region, lambda other: lab.region(by_dlpack(other)), "the capsule")
    taken.delete()
    expect_gone(p, lab, alive, " after the deleter")
    return "the memory stays until then, and the array is freed"


@dlpack("deleter-anywhere", rests_on=("deleter",))
def dlpack_deleter_anywhere(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    alive = reference_to(x)
    kept = earlier(case, x, by_default)
    taken = take(asked(x, case))
    del x, kept
    in_another_thread(taken.delete, lab, bare=True)
    lab.synchronize()
    expect_gone(p, lab, alive)
    return "called from another thread"


@dlpack("two-exports", rests_on=("shape",))
def dlpack_two_exports(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    kept = earlier(case, x, by_default)
    first, second = take(asked(x, case)), take(asked(x, case))

    def another() -> Taken:
        return take(export(made(p, lab, (2, 1, 5)), stream=1))

    before = expect_independent(first, second, another)
    region = lab.tensor_region(before)
    lab.put(region, 8.0)
    right = not region.size or set(flat(lab.get(region))) == {8.0}
    expect(right, f"then its memory holds {lab.get(region)}")
    del kept
    return "the other is as it was"
