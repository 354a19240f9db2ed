"""A race that was found: its two operations, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cai_bridge._handed_over import advice, handed_over

FRAMES = 3
"""How many frames of a stack are shown."""
_INSTALLED = ("site-packages", "dist-packages", "/lib/python3", "<string>", "<frozen")
"""What the paths of files have that are not the program's own."""


WAIT = (
    "make the second stream wait: torch's wait_stream and record_stream, CuPy's wait_event, or "
    "cai_bridge.convert where an array goes to another library"
)
"""What to write instead, where no hand-over is seen."""


def between(first: Sequence[Sequence[Any]], second: Sequence[Sequence[Any]]) -> dict[str, str]:
    """Find the calls between two lines that may hand an array over, and their protocols.

    The lines are those of the function from which both stacks, outermost frame first, were reached.
    """
    found = None
    for one, other in zip(first, second, strict=False):
        if (one[0], one[2]) != (other[0], other[2]):
            break
        found = one[0], one[1], other[1]
        if one[1] != other[1]:
            break
    return handed_over(*found) if found else {}


def own(stack: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return the frames of the program's own files, innermost first; all if there are none."""
    found = [one for one in stack if not any(part in one[0] for part in _INSTALLED)]
    return list(found or stack)[::-1]


@dataclass(frozen=True)
class Side:
    """One of the two operations."""

    operation: int
    """Its number."""
    stream: int
    """The index of its stream, in the order in which streams were first used."""
    stream_name: str = field(compare=False)
    """The kind of its stream, and the handle, which is another one in each process."""
    function: str
    """The driver's function."""
    kernel: str
    """The kernel, or the function once more."""
    stack: list[list[Any]]
    """The Python frames, outermost first: file, line, function, source."""
    place: int
    """Which one it was of the same on that stream, from 1 on."""
    count: int
    """How many of the same there were on that stream."""
    others: list[Side] = field(default_factory=list)
    """The same operation of other processes, where it is another one: it may be one of these."""

    @property
    def frames(self) -> list[Sequence[Any]]:
        """The frames of the program's own files, innermost first."""
        return own(self.stack)

    def __str__(self) -> str:
        where = f"{self.stream_name}, {self.place} of {self.count} there"
        lines = [f"{self.kernel[:120]} on {where}"]
        for path, number, function, source in self.frames[:FRAMES]:
            lines.append(f"    {path}:{number} in {function}: {source or ''}")
        if not self.frames:
            lines.append("    no Python frame: a library's own thread queued it")
        lines += [f"or, in another process: {one}" for one in self.others]
        return "\n    ".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Give it as data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Race:
    """Two operations that nothing orders."""

    late: Side
    """The one that was late."""
    early: Side | None
    """The one that did not wait for it; None if that was the host, with its own reads or writes."""
    runs: int
    """How many runs it took to find them."""
    processes: int = 1
    """How many processes used the GPU: none is ordered with another one here."""

    def hand_overs(self) -> dict[str, str]:
        """Find the calls between the two lines that may hand the array over, and their protocols.

        The lines are those of the function from which both were reached.
        """
        if self.early is None or self.late.others or self.early.others:
            return {}
        return between(self.late.stack, self.early.stack)

    def advice(self) -> str:
        """Say what to write instead."""
        if found := self.hand_overs():
            return advice(found)
        if self.early is None:
            return "the host did not wait: synchronize the stream, or an event behind the work"
        return WAIT

    def to_dict(self) -> dict[str, Any]:
        """Give it as data for JSON."""
        return {
            "late": self.late.to_dict(),
            "early": self.early and self.early.to_dict(),
            "advice": self.advice(),
            "runs": self.runs,
        }

    def __str__(self) -> str:
        host = "the host" if self.processes == 1 else "the host, or another process"
        early = self.early or f"{host}, which reads or writes without waiting"
        return (
            f"  late:  {self.late}\n  early: {early}\n  {self.advice()}\n"
            f"  (named by {self.runs} runs)"
        )
