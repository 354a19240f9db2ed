"""What the CUDA Array Interface requires of a consumer once a dict names a stream."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, Lab
from ..requirement import CAI
from .arrays import (
    Takes,
    expect_refused,
    stream_of,
)
from .waiting import WAITS, expect_each_waits, expect_other_stream_waits, expect_read_kept

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
    return expect_each_waits(c, lab, case, CaiArray, stream_of(c))


@_cai(
    "legacy-stream",
    STREAM + " (1)",
    "the same for a dict that names 1, the legacy default stream",
    _RACE,
    over=WAITS,
)
def takes_cai_legacy_stream(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_each_waits(c, lab, case, CaiArray, stream_of(c), theirs=1)


@_cai(
    "per-thread-stream",
    STREAM + " (2)",
    "the same for a dict that names 2, the per-thread default stream",
    _RACE,
    over=WAITS,
)
def takes_cai_per_thread_stream(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_each_waits(c, lab, case, CaiArray, stream_of(c), theirs=2)


@_cai(
    "default-stream",
    STREAM,
    "the same for work on the consumer's default stream",
    _RACE,
    over=WAITS,
)
def takes_cai_default_stream(c: ConsumerAdapter, lab: Lab, case: Case) -> str:
    return expect_each_waits(c, lab, case, CaiArray, None)


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
    return expect_refused(c, x, "stream 0")
