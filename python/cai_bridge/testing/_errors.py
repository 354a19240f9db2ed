"""The reports of the simulated device, its driver calls, and the exceptions that it raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class SimulatedError(RuntimeError):
    """The simulated device was used wrongly, such as one inside another."""


class RaceError(AssertionError):
    """The simulated device found accesses that nothing orders, or that are wrong in another way.

    Attributes
    ----------
    reports : tuple of Report
        The reports, in program order: the first 10,000.
    left_out : int
        How many more there were.
    """

    def __init__(self, reports: Sequence[Report], left_out: int = 0) -> None:
        self.reports = tuple(reports)
        self.left_out = left_out
        lines = "\n".join(f"  {number}. {report}" for number, report in enumerate(reports, 1))
        what = "1 report" if len(reports) == 1 else f"{len(reports)} reports"
        more = f"\n  and {left_out} more" if left_out else ""
        super().__init__(f"the simulated device has {what}:\n{lines}{more}")

    def __reduce__(self) -> Any:
        # Of the message alone an exception cannot be made again.
        return type(self), (self.reports, self.left_out), self.__dict__


@dataclass(frozen=True)
class Side:
    """One operation of a report.

    Attributes
    ----------
    operation : str
        The operation's name, as it was launched.
    place : str
        Where it runs: the host or a stream, as in ``stream 'p' (device 0, non-blocking)``.
    sequence : int
        Its number among all operations and host accesses, from 1; 0 for a driver call.
    allocation : str or None
        The array that it touches, by name; None outside every allocation.
    start, stop : int
        The bytes that it touches, counted from the allocation's start.
    access : str or None
        ``"read"``, ``"write"`` or ``"free"``; None where it touches no memory.
    """

    operation: str
    place: str
    sequence: int
    allocation: str | None
    start: int
    stop: int
    access: str | None


@dataclass(frozen=True)
class Report:
    """One thing that is wrong.

    Attributes
    ----------
    kind : str
        ``"race"``, ``"use after free"``, ``"invalid free"``, ``"out of bounds"``,
        ``"dead stream"``, ``"dead event"``, ``"another thread's stream"`` or ``"failed kernel"``.
    message : str
        The report in one line, with both sides.
    first : Side or None
        The earlier side, if there are two.
    second : Side
        The later side, or the only one.
    """

    kind: str
    message: str
    first: Side | None
    second: Side

    def __str__(self) -> str:
        return self.message

    @classmethod
    def _of(cls, made: tuple[str, str, Any, Any]) -> Report:
        kind, message, first, second = made
        return cls(kind, message, None if first is None else Side(*first), Side(*second))


@dataclass(frozen=True)
class CallRecord:
    """One call of the driver.

    Attributes
    ----------
    call : str
        The entry point, such as ``cuEventRecord``.
    outcome : str
        ``"done"``, ``"suppressed"``, or the error's name, such as ``"CUDA_ERROR_OUT_OF_MEMORY"``.
    stream : int or None
        Its stream: 1, 2 or a handle.
    event, context : int or None
        Its event and its context.
    """

    call: str
    outcome: str
    stream: int | None
    event: int | None
    context: int | None

    def __repr__(self) -> str:
        shown = [f"call={self.call!r}", f"outcome={self.outcome!r}"]
        for name in ("stream", "event", "context"):
            handle = getattr(self, name)
            shown.append(f"{name}={handle if handle is None else format(handle, '#x')}")
        return f"CallRecord({', '.join(shown)})"
