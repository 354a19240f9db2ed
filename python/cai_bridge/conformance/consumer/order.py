"""What both protocols require of a consumer while work is pending on what it is handed."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import Lab
from .arrays import stream_of, takes
from .layouts import Handed
from .waiting import WAITS, expect_each_waits, expect_other_stream_waits, expect_read_kept

_cai = takes("cai", "values", "stream")
_dlpack = takes("dlpack", "values", "pending")


@_dlpack("pending", over=WAITS)
@_cai("per-thread-stream", over=WAITS, theirs=2)
@_cai("legacy-stream", over=WAITS, theirs=1)
@_cai("stream", over=WAITS)
def takes_pending(
    c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed], theirs: int | None = None
) -> str:
    return expect_each_waits(c, lab, case, kind, stream_of(c), theirs)


@_dlpack("default-stream", over=WAITS)
@_cai("default-stream", over=WAITS)
def takes_on_default(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_each_waits(c, lab, case, kind, None)


@_dlpack("pending-read")
@_cai("pending-read")
def takes_pending_read(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    return expect_read_kept(c, lab, kind, c.stream())


@_dlpack("other-stream")
@_cai("other-stream")
def takes_on_other(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    return expect_other_stream_waits(c, lab, kind)
