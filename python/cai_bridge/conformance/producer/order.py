"""What all doors require of a producer while work is pending on its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab
from ..requirement import Check, Door
from .arrays import made
from .doors import METHOD, TENSOR, NeedsDoor, array_api, cai, exchange
from .pending import ELSEWHERE, RACE, HandOver, expect_ordered, expect_read_first, writes

_SYNCHRONIZATION = "Synchronization: Interface Requirements: "
_SECTIONS = {
    "cai": _SYNCHRONIZATION + "synchronization on the provided stream is sufficient",
    "dlpack": METHOD + "stream",
    "exchange": "current_work_stream",
}
PENDING = {
    "cai": (
        *("entries", "data", "typestr", "shape", "strides", "values", "offset"),
        *("stream", "version", "pending"),
    ),
    "dlpack": ("dtype", "shape", "strides", "values", "offset", "two-exports", "pending"),
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


_MakesCheck = Callable[[Check], Check]


def _of_work(door: Door, name: str, rule: str, *streams: str, **row: Any) -> _MakesCheck:
    """Make a function the check of what is required of work, on some streams, by a door."""
    over = {"over": writes(streams, _EXPORTS[door.name])} if streams else {}
    known = {"section": _SECTIONS[door.name], "why": RACE, "rests_on": PENDING[door.name]}
    return door(name, rule=rule, **{**known, **over, **row})


_READY = "the array is ready on the stream that {}"
_CAI_READY = (
    "while work on the array is pending on the library's current stream, the dict names a stream "
    "that is behind it"
)
_DEFAULT = "the same while the work is pending on a default stream"


@_of_work(exchange, "pending-default", _DEFAULT, "default")
@_of_work(array_api, "pending-default", _DEFAULT, "default")
@_of_work(cai, "pending-default", f"{_DEFAULT}: None and 0 say that there is none", "default")
@_of_work(exchange, "stream", _READY.format("the table names"), "its own", "moved")
@_of_work(array_api, "pending", _READY.format("stream= names"), "its own", "moved")
@_of_work(cai, "pending", _CAI_READY, "its own", "moved")
def gives_pending(
    p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, hand_over: HandOver
) -> str:
    needs_door(made(p, lab))
    return expect_ordered(p, lab, case, hand_over)


def _elsewhere(door: Door, when: str, **row: Any) -> _MakesCheck:
    rule = f"the same when {when}another stream is the library's current one"
    return _of_work(door, "pending-elsewhere", rule, over=ELSEWHERE, **row)


@_elsewhere(exchange, "", level="should")
@_elsewhere(array_api, "")
@_elsewhere(cai, "the dict is read while ")
def gives_pending_elsewhere(
    p: ProducerAdapter, lab: Lab, case: Case, needs_door: NeedsDoor, hand_over: HandOver
) -> str:
    needs_door(made(p, lab))
    return expect_ordered(p, lab, case, hand_over, elsewhere=True)


_READING = "the same while the library still reads the array"


def _of_read(door: Door, rule: str, **row: Any) -> _MakesCheck:
    """Make a function the check of what is required of a read that is pending by a door."""
    over = {"stream": ("its own", "default"), "export": ("first", "again")}
    rests_on = (*PENDING[door.name], "pending-default")
    why = "the consumer writes before the read is done"
    return _of_work(door, "pending-read", rule, why=why, over=over, rests_on=rests_on, **row)


@_of_read(exchange, _READING, level="should", elsewhere=True)
@_of_read(array_api, f"{_READING}: operations that write are not safe either")
@_of_read(cai, f"{_READING}: a read is work, too")
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


_ON_TWO = "the same when work on the array is pending on two streams"


@_of_work(exchange, "pending-on-two", _ON_TWO)
@_of_work(array_api, "pending-on-two", f"{_ON_TWO}: the array is ready after both")
@_of_work(
    *(cai, "pending-on-two"),
    "if several streams have work on the array, the dict names one that waits for all of them",
    section=_SYNCHRONIZATION + "work on the data on multiple streams",
)
def gives_pending_on_two(
    p: ProducerAdapter, lab: Lab, needs_door: NeedsDoor, hand_over: HandOver
) -> str:
    needs_door(made(p, lab))
    for value in lab.values():
        late, mine = p.late_on_two(lab, value), lab.stream()
        with p.on(late.stream):
            region, named, kept = hand_over(lab, late.array, mine.handle, Case())
        seen = lab.expect_read(mine.handle, region, late, named)
        del kept
    return seen
