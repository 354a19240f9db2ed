"""What the CUDA Array Interface requires of a consumer once a dict names a stream."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, Lab
from ..requirement import CAI, expect
from .arrays import Refusal, Takes, attempt, stream_of
from .waiting import WAITS, expect_other_stream_waits, expect_read_kept, expect_waits

SYNCHRONIZATION = "Synchronization: Interface Requirements: "
STREAM = SYNCHRONIZATION + "when stream is an integer"
_RACE = "it reads before the write is done"
_cai = Takes("cai", CAI, ("values", "stream"))


@_cai(
    "stream",
    STREAM,
    "work on the consumer's stream runs after what is pending on the stream that the dict names",
    _RACE,
    over=WAITS,
)
def takes_cai_stream(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    mine, seen = stream_of(c), ""
    for value in lab.values():
        x, theirs = CaiArray(lab, (lab.items,)), lab.stream()
        seen = expect_waits(c, lab, case, x, value, theirs=theirs, mine=mine)
    return seen


@_cai(
    "legacy-stream",
    STREAM + " (1)",
    "the same for a dict that names 1, the legacy default stream",
    _RACE,
    over=WAITS,
)
def takes_cai_legacy_stream(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    mine, seen = stream_of(c), ""
    for value in lab.values():
        x = CaiArray(lab, (lab.items,))
        seen = expect_waits(c, lab, case, x, value, theirs=1, mine=mine)
    return seen


@_cai(
    "per-thread-stream",
    STREAM + " (2)",
    "the same for a dict that names 2, the per-thread default stream",
    _RACE,
    over=WAITS,
)
def takes_cai_per_thread_stream(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    mine, seen = stream_of(c), ""
    for value in lab.values():
        x = CaiArray(lab, (lab.items,))
        seen = expect_waits(c, lab, case, x, value, theirs=2, mine=mine)
    return seen


@_cai(
    "default-stream",
    STREAM,
    "the same for work on the consumer's default stream",
    _RACE,
    over=WAITS,
)
def takes_cai_default_stream(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    seen = ""
    for value in lab.values():
        x, theirs = CaiArray(lab, (lab.items,)), lab.stream()
        seen = expect_waits(c, lab, case, x, value, theirs=theirs, mine=None)
    return seen


@_cai(
    "pending-read",
    STREAM,
    "the same while the producer still reads the array: the consumer's write runs after the read",
    "the producer reads what the consumer has written behind it",
)
def takes_cai_pending_read(c: ConsumerAdapter, lab: Lab) -> str:
    return expect_read_kept(c, lab, CaiArray, c.stream())


@_cai(
    "other-stream",
    STREAM,
    "the same for work on another of the consumer's streams than the one it was taken on",
    _RACE,
    level="should",
)
def takes_cai_other_stream(c: ConsumerAdapter, lab: Lab) -> str:
    return expect_other_stream_waits(c, lab, CaiArray)


@_cai(
    "stream-zero",
    "Python Interface Specification: stream: 0",
    "the consumer refuses a dict that names stream 0",
    "0 may mean None, the legacy or the per-thread default stream",
    level="should",
)
def takes_cai_stream_zero(c: ConsumerAdapter, lab: Lab) -> str:
    x = CaiArray(lab, stream=0)
    y = attempt(c.take, x)
    expect(isinstance(y, Refusal), "stream 0 is taken")
    return f"{y}"
