"""The requirements of both protocols on a consumer while work is pending on the array."""

from __future__ import annotations

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import Lab
from .arrays import takes
from .layouts import Handed
from .waiting import expect_read_kept, expect_waits

_cai = takes("cai", "values", "stream")
_dlpack = takes("dlpack", "values", "pending")


@_dlpack("pending")
@_cai("stream")
def takes_pending(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_waits(c, lab, case, kind)


@_dlpack("pending-read")
@_cai("pending-read")
def takes_pending_read(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_read_kept(c, lab, case, kind)


@_dlpack("other-stream")
@_cai("other-stream")
def takes_on_other(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    return expect_waits(c, lab, case, kind, on_another=True)
