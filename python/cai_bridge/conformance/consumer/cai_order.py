"""What the CUDA Array Interface requires of the order between producer and consumer."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import ConsumerAdapter
from ..lab import CaiArray, Lab, Late
from ..producer.arrays import collect
from ..requirement import CAI, Check, Level, expect
from .arrays import Refusal, attempt, expect_copied, stream_of, takes

SYNCHRONIZATION = "Synchronization: Interface Requirements: "
STREAM = SYNCHRONIZATION + "when stream is an integer"
RETURN = SYNCHRONIZATION + "if the Consumer synchronizes on the provided stream"
_RACE = "it reads before the write is done"


def _cai(
    name: str, section: str, rule: str, why: str, level: Level = "must"
) -> Callable[[Check], Check]:
    return takes("cai", name, CAI, section, rule=rule, why=why, level=level)


@_cai(
    "stream",
    STREAM,
    "work on the consumer's stream runs after what is pending on the stream that the dict names",
    _RACE,
)
def takes_cai_stream(c: ConsumerAdapter, lab: Lab) -> str:
    mine = stream_of(c)
    for value in lab.values():
        x, theirs = CaiArray(lab, (1024,)), lab.stream()
        late = x.write_late(theirs, value)
        with c.on(mine):
            y = c.take(x)
            copied = c.copy(y)
        seen = expect_copied(c, lab, copied, late, f"the dict names {lab.called(theirs.handle)}")
        del y
    return seen


@_cai(
    "legacy-stream",
    STREAM + " (1)",
    "the same for a dict that names 1, the legacy default stream",
    _RACE,
)
def takes_cai_legacy_stream(c: ConsumerAdapter, lab: Lab) -> str:
    mine = stream_of(c)
    for value in lab.values():
        x = CaiArray(lab, (1024,))
        late = x.write_late(1, value)
        with c.on(mine):
            y = c.take(x)
            copied = c.copy(y)
        seen = expect_copied(c, lab, copied, late, f"the dict names {lab.called(1)}")
        del y
    return seen


@_cai(
    "per-thread-stream",
    STREAM + " (2)",
    "the same for a dict that names 2, the per-thread default stream",
    _RACE,
)
def takes_cai_per_thread_stream(c: ConsumerAdapter, lab: Lab) -> str:
    mine = stream_of(c)
    for value in lab.values():
        x = CaiArray(lab, (1024,))
        late = x.write_late(2, value)
        with c.on(mine):
            y = c.take(x)
            copied = c.copy(y)
        seen = expect_copied(c, lab, copied, late, f"the dict names {lab.called(2)}")
        del y
    return seen


@_cai(
    "default-stream",
    STREAM,
    "the same for work on the consumer's default stream",
    _RACE,
)
def takes_cai_default_stream(c: ConsumerAdapter, lab: Lab) -> str:
    for value in lab.values():
        x, theirs = CaiArray(lab, (1024,)), lab.stream()
        late = x.write_late(theirs, value)
        y = c.take(x)
        seen = expect_copied(c, lab, c.copy(y), late, f"the dict names {lab.called(theirs.handle)}")
        del y
    return seen


@_cai(
    "return",
    RETURN,
    "after the end, the producer's work runs after the consumer's reads",
    "the producer overwrites memory that is still being read",
)
def takes_cai_return(c: ConsumerAdapter, lab: Lab) -> str:
    mine = c.stream()
    for value in lab.values():
        theirs = lab.stream()
        x = CaiArray(lab, (1024,), value=value, stream=theirs)
        hold = c.hold(lab, mine)
        with c.on(mine):
            y = c.take(x)
            copied = c.copy(y)
        del y
        collect()
        lab.write(theirs.handle, x.region, -value)
        lab.wait(theirs.handle)
        late = Late(x, mine, value, hold)
        seen = expect_copied(c, lab, copied, late, "the producer has written again")
    return seen


@_cai(
    "return-write",
    RETURN,
    "after the end, the producer's work runs after the consumer's writes",
    "the producer reads before the write is done",
)
def takes_cai_return_write(c: ConsumerAdapter, lab: Lab) -> str:
    mine = c.stream()
    for value in lab.values():
        theirs = lab.stream()
        x = CaiArray(lab, (1024,), value=-value, stream=theirs)
        hold = c.hold(lab, mine)
        with c.on(mine):
            y = c.take(x)
            c.fill(y, value)
        del y
        collect()
        late = Late(x, mine, value, hold)
        seen = lab.expect_read(theirs.handle, x.region, late, f"{lab.called(theirs.handle)} reads")
    return seen


@_cai(
    "stream-zero",
    "Python Interface Specification: stream: 0",
    "the consumer refuses a dict that names stream 0",
    "0 may mean None, the legacy or the per-thread default stream",
    "should",
)
def takes_cai_stream_zero(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, stream=0)
    y = attempt(c.take, x)
    expect(isinstance(y, Refusal), "stream 0 is taken")
    return f"{y}"
