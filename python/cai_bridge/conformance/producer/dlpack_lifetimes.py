"""What DLPack requires of who keeps the memory, and until when."""

from __future__ import annotations

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import take

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab, flat
from ..layouts import KEPT
from ..requirement import (
    expect,
)
from .arrays import (
    collect,
    expect_gone,
    expect_independent,
    expect_kept,
    export,
    in_another_thread,
    made,
    reference_to,
)
from .doors import dlpack
from .pending import end
from .values import by_dlpack, laid_out


@dlpack("unconsumed", over={"export": ("first", "again")})
def dlpack_unconsumed(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = made(p, lab)
    if case.export == "again":
        export(x, stream=1)
    capsule = export(x, stream=1)
    alive = reference_to(x)
    del x, capsule
    expect_gone(alive)
    return "it is gone"


@dlpack(
    "deleter",
    over={
        "layout": KEPT,
        "export": ("first", "again"),
    },
    rests_on=("values", "unconsumed"),
)
def dlpack_deleter(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    x = laid_out(p, lab, case)
    if case.export == "again":
        end(export(x, stream=1))
    capsule = export(x, stream=1)
    alive = reference_to(x)
    region = lab.region(describe(capsule)["capsule"])
    lab.put(region, 5.0)
    taken = take(capsule)
    del x, capsule
    collect()
    expect_kept(p, lab, region, lambda other: lab.region(by_dlpack(other)), "the capsule")
    taken.delete()
    expect_gone(alive, " after the deleter")
    return "the memory stays until then, and the array is freed"


@dlpack("deleter-anywhere", rests_on=("deleter",))
def dlpack_deleter_anywhere(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    alive = reference_to(x)
    taken = take(export(x, stream=1))
    del x
    in_another_thread(taken.delete)
    lab.synchronize()
    expect_gone(alive)
    return "called from another thread"


@dlpack("two-exports")
def dlpack_two_exports(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    first, second = take(export(x, stream=1)), take(export(x, stream=1))
    before = expect_independent(
        *(first, second), lambda: take(export(made(p, lab, (2, 1, 5)), stream=1))
    )
    region = lab.words(before.data + before.byte_offset, 12)
    lab.put(region, 8.0)
    expect(set(flat(lab.get(region))) == {8.0}, f"then its memory holds {lab.get(region)}")
    return "the other is as it was"
