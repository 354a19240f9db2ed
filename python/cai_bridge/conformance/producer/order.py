"""The requirements of all doors on a producer while work is pending on its arrays."""

from __future__ import annotations

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from .arrays import made
from .doors import TENSOR, NeedsDoor, cai, dlpack, exchange
from .hand_over import HandOver, by_bare_call
from .pending import expect_ordered, expect_read_first

PENDING = {
    "cai": (
        *("entries", "data", "typestr", "shape", "strides", "values", "offset"),
        *("stream", "version", "pending"),
    ),
    "dlpack": (
        *("same-device", "dtype", "shape", "strides", "values", "offset"),
        *("two-exports", "pending"),
    ),
    "exchange": ("table", "values", "two-exports", *TENSOR, "stream"),
}
"""The requirements that reading an array in order rests on, by door."""


@exchange("pending-on-two", rests_on=(*PENDING["exchange"], "pending-elsewhere"))
@dlpack("pending-on-two", rests_on=(*PENDING["dlpack"], "pending-elsewhere"))
@cai("pending-on-two", rests_on=(*PENDING["cai"], "pending-elsewhere"))
@exchange("pending-elsewhere", rests_on=(*PENDING["exchange"], "cai-stream-lifetime"))
@dlpack("pending-elsewhere", rests_on=(*PENDING["dlpack"], "cai-stream-lifetime"))
@cai("pending-elsewhere", rests_on=(*PENDING["cai"], "stream-lifetime"))
@exchange("pending-default", rests_on=(*PENDING["exchange"], "pending-elsewhere"))
@dlpack("pending-default", rests_on=(*PENDING["dlpack"], "pending-elsewhere"))
@cai("pending-default", rests_on=(*PENDING["cai"], "pending-elsewhere"))
@exchange("stream", rests_on=PENDING["exchange"])
@dlpack("pending-unnamed", rests_on=PENDING["dlpack"], hand_over=by_bare_call)
@dlpack("pending", rests_on=PENDING["dlpack"])
@cai("pending", rests_on=PENDING["cai"])
def gives_pending(
    p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, hand_over: HandOver
) -> str:
    needs_door(made(p, lab))
    return expect_ordered(p, lab, case, hand_over)


@exchange("pending-read", rests_on=(*PENDING["exchange"], "pending-default"))
@dlpack("pending-read", rests_on=(*PENDING["dlpack"], "pending-default"))
@cai("pending-read", rests_on=(*PENDING["cai"], "pending-default"))
def gives_pending_read(
    p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, hand_over: HandOver
) -> str:
    needs_door(made(p, lab))
    return expect_read_first(p, lab, case, hand_over)
