"""What all doors require of a producer while work is pending on its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import Check, Door
from .arrays import made
from .doors import TENSOR, NeedsDoor, cai, dlpack, exchange
from .pending import ELSEWHERE, HandOver, expect_ordered, expect_read_first, writes

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
"""What it takes to read an array in order, by door."""

_EXPORTS = {
    "cai": ("first", "again", "between writes"),
    "dlpack": (
        *("first", "again", "between writes", "after an end"),
        *("legacy", "max_version 1.0", "dl_device", "copy=False"),
    ),
    "exchange": ("first", "again", "between writes", "after an end"),
}


def _of_writes(door: Door, name: str, *streams: str) -> Callable[[Check], Check]:
    """Make a function the check of what is required of writes on some streams by a door."""
    return door(name, over=writes(streams, _EXPORTS[door.name]), rests_on=PENDING[door.name])


@_of_writes(exchange, "pending-default", "default")
@_of_writes(dlpack, "pending-default", "default")
@_of_writes(cai, "pending-default", "default")
@_of_writes(exchange, "stream", "its own", "moved")
@_of_writes(dlpack, "pending", "its own", "moved")
@_of_writes(cai, "pending", "its own", "moved")
def gives_pending(
    p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, hand_over: HandOver
) -> str:
    needs_door(made(p, lab))
    return expect_ordered(p, lab, case, hand_over)


@exchange("pending-elsewhere", over=ELSEWHERE, rests_on=PENDING["exchange"])
@dlpack("pending-elsewhere", over=ELSEWHERE, rests_on=PENDING["dlpack"])
@cai("pending-elsewhere", over=ELSEWHERE, rests_on=PENDING["cai"])
def gives_pending_elsewhere(
    p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, hand_over: HandOver
) -> str:
    needs_door(made(p, lab))
    return expect_ordered(p, lab, case, hand_over, elsewhere=True)


def _of_read(door: Door, **given: Any) -> Callable[[Check], Check]:
    """Make a function the check of what is required by a door of a read that is pending."""
    over = {"stream": ("its own", "default"), "export": ("first", "again")}
    rests_on = (*PENDING[door.name], "pending-default")
    return door("pending-read", over=over, rests_on=rests_on, **given)


@_of_read(exchange, elsewhere=True)
@_of_read(dlpack)
@_of_read(cai)
def gives_pending_read(  # noqa: PLR0917
    p: ProducerAdapter,
    lab: Lab,
    case: Case,
    needs_door: NeedsDoor,
    hand_over: HandOver,
    elsewhere: bool = False,
) -> str:
    needs_door(made(p, lab))
    return expect_read_first(p, lab, case, hand_over, elsewhere=elsewhere)


@exchange("pending-on-two", rests_on=PENDING["exchange"])
@dlpack("pending-on-two", rests_on=PENDING["dlpack"])
@cai("pending-on-two", rests_on=PENDING["cai"])
def gives_pending_on_two(
    p: ProducerAdapter, lab: Lab, needs_door: NeedsDoor, hand_over: HandOver
) -> str:
    needs_door(made(p, lab))
    for value in lab.values():
        late, mine = p.late_on_two(lab, value), lab.stream()
        with p.on(late.stream):
            region, named, kept = hand_over(lab, late.array, mine.handle, Case())
        seen = lab.expect_read(mine.handle, region, late, named)
        del kept, late
    return seen
