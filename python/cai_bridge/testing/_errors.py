"""The reports of the simulated device, its driver calls, and the exceptions that it raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cai_bridge._core import _Session
from cai_bridge._handed_over import advice, handed_over

from . import _lines
from ._lines import Line


class SimulatedError(RuntimeError):
    """The simulated device was used wrongly, for example one inside another."""


class RaceError(AssertionError):
    """The simulated device found accesses that nothing orders, or other mistakes.

    Attributes
    ----------
    reports : tuple of Report
        The reports, in program order: the first 10,000.
    left_out : int
        The number of further reports.
    """

    def __init__(self, reports: Sequence[Report], left_out: int = 0) -> None:
        self.reports = tuple(reports)
        self.left_out = left_out
        told = (str(report).replace("\n", "\n  ") for report in reports)
        lines = "\n".join(f"  {number}. {report}" for number, report in enumerate(told, 1))
        what = "1 report" if len(reports) == 1 else f"{len(reports)} reports"
        more = f"\n  and {left_out} more" if left_out else ""
        super().__init__(f"the simulated device has {what}:\n{lines}{more}")

    def __reduce__(self) -> Any:
        # Without this, a copy would be made from the message only.
        return type(self), (self.reports, self.left_out), self.__dict__


@dataclass(frozen=True)
class Side:
    """One operation in a report.

    Attributes
    ----------
    operation : str
        The operation's name at its launch.
    place : str
        Where it runs: the host or a stream, as in ``stream 'p' (device 0, non-blocking)``.
    sequence : int
        Its number among all operations and host accesses, from 1; 0 for a driver call.
    allocation : str or None
        The name of the array that it accesses; None outside every allocation.
    start, stop : int
        The accessed bytes, counted from the allocation's start.
    access : str or None
        ``"read"``, ``"write"`` or ``"free"``; None if it accesses no memory.
    line : Line or None
        The line of the program that queued it, with ``path``, ``number`` and ``function``; None for
        work that the bridge or a library queued, and for a driver call.
    """

    operation: str
    place: str
    sequence: int
    allocation: str | None
    start: int
    stop: int
    access: str | None
    line: Line | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Report:
    """One mistake that the simulated device found.

    Attributes
    ----------
    kind : str
        ``"race"``, ``"use after free"``, ``"invalid free"``, ``"out of bounds"``,
        ``"dead stream"``, ``"dead event"``, ``"another thread's stream"`` or ``"failed kernel"``.
    message : str
        The report in one line, with both sides. ``str`` of the report adds the lines of the
        program, and the hand-over between them.
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
        sides = [one for one in (self.first, self.second) if one and one.line]
        lines = [f"    #{one.sequence}: {one.line}" for one in sides]
        if found := self._hand_overs():
            lines.append(f"    {advice(found)}")
        return "\n".join([self.message, *lines])

    def _hand_overs(self) -> dict[str, str]:
        """For a race, find the calls between the two lines that may hand the array over."""
        first = self.first.line if self.first else None
        second = self.second.line
        if self.kind != "race" or first is None or second is None:
            return {}
        if (first.path, first.function) != (second.path, second.function):
            return {}
        return handed_over(first.path, first.number, second.number)

    @classmethod
    def _of(cls, made: tuple[str, str, Any, Any], session: _Session) -> Report:
        kind, message, first, second = made

        def side(one: Any) -> Side:
            return Side(*(*one, _lines.line(session, one[2])))

        return cls(kind, message, None if first is None else side(first), side(second))


@dataclass(frozen=True)
class CallRecord:
    """One driver call.

    Attributes
    ----------
    call : str
        The entry point, such as ``cuEventRecord``.
    outcome : str
        ``"done"``, ``"suppressed"``, or the error's name, such as ``"CUDA_ERROR_OUT_OF_MEMORY"``.
    stream : int or None
        The call's stream: 1, 2 or a handle.
    event, context : int or None
        The call's event and context.
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
