"""What both protocols require of a consumer while work is pending on what it is handed."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import ARRAY_API, CAI
from .arrays import stream_of, takes
from .layouts import Handed
from .waiting import WAITS, expect_each_waits, expect_other_stream_waits, expect_read_kept

SYNCHRONIZATION = "Synchronization: Interface Requirements: "
_NAMED = SYNCHRONIZATION + "when stream is an integer"
_ASKED = "array.__dlpack__: stream"
_RACE = "it reads before the write is done"
_cai = takes("cai", CAI, "values", "stream")
_dlpack = takes("dlpack", ARRAY_API, "values", "pending")


@_dlpack(
    *("pending", _ASKED),
    *("the consumer names its stream, and its work runs after what is pending", _RACE),
    over=WAITS,
)
@_cai(
    *("per-thread-stream", _NAMED + " (2)"),
    *("the same for a dict that names 2, the per-thread default stream", _RACE),
    over=WAITS,
    theirs=2,
)
@_cai(
    *("legacy-stream", _NAMED + " (1)"),
    *("the same for a dict that names 1, the legacy default stream", _RACE),
    over=WAITS,
    theirs=1,
)
@_cai(
    *("stream", _NAMED),
    "work on the consumer's stream runs after what is pending on the stream that the dict names",
    _RACE,
    over=WAITS,
)
def takes_pending(
    c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed], theirs: int | None = None
) -> str:
    return expect_each_waits(c, lab, case, kind, stream_of(c), theirs)


_DEFAULT = ("the same for work on the consumer's default stream", _RACE)


@_dlpack("default-stream", _ASKED + ": None, 1 and 2", *_DEFAULT, over=WAITS)
@_cai("default-stream", _NAMED, *_DEFAULT, over=WAITS)
def takes_on_default(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_each_waits(c, lab, case, kind, None)


_READ = (
    "the same while the producer still reads the array: the consumer's write runs after the read",
    "the producer reads what the consumer has written behind it",
)


@_dlpack("pending-read", _ASKED, *_READ)
@_cai("pending-read", _NAMED, *_READ)
def takes_pending_read(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    return expect_read_kept(c, lab, kind, c.stream())


_OTHER = (
    "the same for work on another of the consumer's streams than the one it was taken on",
    _RACE,
)


@_dlpack("other-stream", _ASKED, *_OTHER, level="should")
@_cai("other-stream", _NAMED, *_OTHER, level="should")
def takes_on_other(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    return expect_other_stream_waits(c, lab, kind)
