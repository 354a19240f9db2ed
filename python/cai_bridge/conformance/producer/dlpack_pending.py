"""What the array API standard requires of ``__dlpack__`` while work is pending on the array."""

from __future__ import annotations

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import expect, needs
from .arrays import asked_on, made, speaks_dlpack
from .dlpack import METHOD, array_api
from .pending import RACE, by_capsule, expect_ordered, expect_read_first, writes

STREAM = METHOD + "stream"
READABLE = ("dtype", "shape", "strides", "values", "offset", "two-exports")
PENDING = (*READABLE, "pending")
EXPORTS = (
    *("first", "again", "between writes", "after an end"),
    *("legacy", "max_version 1.0", "dl_device", "copy=False"),
)


@array_api(
    "pending",
    STREAM,
    "the array is ready on the stream that stream= names",
    RACE,
    over=writes(("its own", "moved"), EXPORTS),
    rests_on=READABLE,
)
def dlpack_pending(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    speaks_dlpack(made(p, lab))
    return expect_ordered(p, lab, case, by_capsule)


@array_api(
    "pending-default",
    STREAM,
    "the same while the work is pending on a default stream",
    RACE,
    over=writes(("default",), EXPORTS),
    rests_on=PENDING,
)
def dlpack_pending_default(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    speaks_dlpack(made(p, lab))
    return expect_ordered(p, lab, case, by_capsule)


@array_api(
    "pending-read",
    STREAM,
    "the same while the library still reads the array: operations that write are not safe either",
    "the consumer writes before the read is done",
    over={"stream": ("its own", "default"), "export": ("first", "again")},
    rests_on=(*PENDING, "pending-default"),
)
def dlpack_pending_read(p: ProducerAdapter, lab: Lab, case: Case) -> str:
    speaks_dlpack(made(p, lab))
    return expect_read_first(p, lab, case, by_capsule)


@array_api(
    "no-host-wait",
    STREAM,
    "the consumer's stream waits for what is pending, and the host does not",
    "the host can queue nothing meanwhile",
    level="should",
)
def dlpack_no_host_wait(p: ProducerAdapter, lab: Lab) -> str:
    waited = []
    for value in lab.values():
        late, mine = p.late(lab, value), lab.stream()
        speaks_dlpack(late.array)
        with p.on(late.stream), lab.watched() as watch:
            capsule = asked_on(late.array, mine.handle)
        needs(capsule is not None, "it takes no stream but None")
        waited.append(watch.waited)
        lab.synchronize()
    expect(not all(waited), "the host waited for the write")
    return "it does not"
