"""What DLPack requires of who keeps the memory, and until when."""

from __future__ import annotations

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import take
from cai_bridge.testing._kit.dlpack_fields import fields_of

from ..adapter import ProducerAdapter
from ..lab import Lab, flat
from ..requirement import (
    DLPACK,
    expect,
)
from .arrays import collect, export, in_another_thread, made, reference_to
from .dlpack import dlpack

LIFETIME = "Python Specification: Reference management"


@dlpack(
    "unconsumed",
    DLPACK,
    LIFETIME,
    "a capsule that nobody consumed frees the array with itself",
    "memory is never freed",
)
def dlpack_unconsumed(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    capsule = export(x, stream=1)
    alive = reference_to(x)
    del x, capsule
    collect()
    expect(alive() is None, "the array is still there")
    return "it is gone"


@dlpack(
    "deleter",
    DLPACK,
    LIFETIME,
    "a consumed tensor frees the array when its deleter is called, not when the capsule is deleted",
    "memory is never freed, or freed while the consumer uses it",
)
def dlpack_deleter(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    capsule = export(x, stream=1)
    alive = reference_to(x)
    region = lab.region(describe(capsule)["capsule"])
    lab.put(region, 5.0)
    taken = take(capsule)
    del x, capsule
    collect()
    others = [made(p, lab) for _ in range(4)]
    for other in others:
        lab.put(lab.region(describe(export(other, stream=1))["capsule"]), 6.0)
    seen = lab.read(1, region)
    lab.wait(1)
    expect(set(flat(seen.value)) == {5.0}, f"with the capsule gone it holds {seen.value}")
    taken.delete()
    collect()
    expect(alive() is None, "the array is still there after the deleter")
    return "the memory stays until then, and the array is freed"


@dlpack(
    "deleter-anywhere",
    DLPACK,
    "C API: DLManagedTensor.deleter",
    "the deleter works from any thread, without the interpreter lock",
    "consumers that delete in threads of their own crash or deadlock",
)
def dlpack_deleter_anywhere(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    alive = reference_to(x)
    taken = take(export(x, stream=1))
    del x
    in_another_thread(taken.delete)
    lab.synchronize()
    collect()
    expect(alive() is None, "the array is still there")
    return "called from another thread"


@dlpack(
    "two-exports",
    DLPACK,
    LIFETIME,
    "two capsules of one array are independent: deleting one leaves the other usable",
    "the second consumer reads freed structures",
)
def dlpack_two_exports(p: ProducerAdapter, lab: Lab) -> str:
    x = made(p, lab)
    first, second = take(export(x, stream=1)), take(export(x, stream=1))
    before = fields_of(second.struct)
    first.delete()
    collect()
    after = fields_of(second.struct)
    expect(after == before, f"then the other says {after}")
    region = lab.words(before.data + before.byte_offset, 12)
    lab.put(region, 8.0)
    expect(set(flat(lab.get(region))) == {8.0}, f"then its memory holds {lab.get(region)}")
    return "the other is as it was"
