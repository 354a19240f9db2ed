"""Two operations that nothing orders, as a record says it."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from cai_bridge._handed_over import advice

from .perturb_race import FRAMES, WAIT, between, own

_LONGEST = 120
"""So many characters of a kernel's name are shown."""


def _stream(data: Sequence[Any]) -> str:
    """Name a stream by its kind, its handle, and the line of the program that made it."""
    _, name, made = data
    frames = own(made)
    return f"{name}, made at {frames[0][0]}:{frames[0][1]}" if frames else name


def _lines(stack: Sequence[tuple[str, int, str]]) -> list[str]:
    """Show the frames of the program's own files, innermost first, with their source."""
    return [
        f"{file}:{number} in {function}: {linecache.getline(file, number).strip()}"
        for file, number, function in own(stack)[:FRAMES]
    ]


@dataclass(frozen=True)
class Side:
    """One of the two."""

    operation: int | None
    """Its number, as ``cai-bridge perturb`` counts; None: it is none there."""
    how: str
    """``"reads"``, ``"writes"`` or ``"is given"``."""
    why: str
    """Why the bytes of a launch that was looked at are not all known; empty if nobody looked."""
    function: str
    """The driver's function."""
    name: str
    """The kernel, or the function once more."""
    kernels: tuple[str, ...]
    """The kernels of a graph."""
    nodes: tuple[tuple[tuple[str, int, str], ...], ...]
    """The Python frames of the captured calls that made the graph's nodes that touch the bytes."""
    stream: str
    """The kind of its stream, the handle, and the line of the program that made it."""
    stack: tuple[tuple[str, int, str], ...]
    """The Python frames, outermost first: file, line, function."""

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """Read what the check of a record says."""
        return cls(
            operation=data["operation"],
            how=data["how"],
            why=data["why"],
            function=data["function"],
            name=data["name"],
            kernels=tuple(data["kernels"]),
            nodes=tuple(tuple(tuple(frame) for frame in one) for one in data["nodes"]),
            stream=_stream(data["stream"]),
            stack=tuple((file, line, name) for file, line, name in data["stack"]),
        )

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from operations of other lines."""
        return self.name, self.stack

    def to_dict(self) -> dict[str, Any]:
        """Return it as data for JSON, with the source of each line."""
        stack = [[*one, linecache.getline(one[0], one[1]).strip()] for one in self.stack]
        return {
            "operation": self.operation,
            "how": self.how,
            "why": self.why,
            "function": self.function,
            "kernel": self.name,
            "kernels": list(self.kernels),
            "nodes": [[list(frame) for frame in one] for one in self.nodes],
            "stream": self.stream,
            "stack": stack,
        }

    def __str__(self) -> str:
        does = f"{self.how} there"
        if self.how == "is given":
            does = f"is given an address there{f' ({self.why})' if self.why else ''}"
        lines = [f"{self.name[:_LONGEST]} on {self.stream}, {does}"]
        if self.kernels:
            lines.append(f"    with {', '.join(one[:_LONGEST] for one in self.kernels[:3])}")
        lines += [f"    {one}" for one in _lines(self.stack)]
        for node in self.nodes:
            lines += [f"    captured at {one}" for one in _lines(node)]
        if not self.stack:
            lines.append("    no Python frame: a library's own thread queued it")
        return "\n    ".join(lines)


@dataclass(frozen=True)
class Pair:
    """Two lines of a program whose operations nothing orders."""

    verdict: str
    """``"proven"``: both touch the same bytes, and one writes. ``"race"``: the values differ the
    other way round. ``"suspect"``: anything less."""
    writes: bool
    """Whether one of the two writes for certain."""
    count: int
    """How many pairs of operations there are at these lines."""
    low: int
    """Where both touch memory, of the first pair: from here on."""
    high: int
    """To here."""
    first: Side
    """What was queued first."""
    second: Side
    """What did not wait for it."""
    wanted: tuple[str, ...] = ()
    """The launches whose bytes would have to be known."""

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """Read what the check of a record says."""
        return cls(
            verdict=data["verdict"],
            writes=data["writes"],
            count=data["count"],
            low=data["low"],
            high=data["high"],
            first=Side.of(data["first"]),
            second=Side.of(data["second"]),
            wanted=tuple(data["wanted"]),
        )

    @property
    def operations(self) -> tuple[int | None, int | None]:
        """The numbers of both."""
        return self.first.operation, self.second.operation

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from pairs of other lines."""
        return self.first.key, self.second.key

    def has(self, match: str) -> bool:
        """Whether a line of either side has the expression."""
        frames = (*self.first.stack, *self.second.stack)
        return any(re.search(match, f"{file}:{line} in {name}") for file, line, name in frames)

    def joined(self, other: Self) -> Self:
        """Put two of the same lines together: the surer one, and the larger count."""
        surer = (
            other
            if (other.verdict == "proven", other.writes)
            > (
                self.verdict == "proven",
                self.writes,
            )
            else self
        )
        return replace(surer, count=max(self.count, other.count))

    def advice(self) -> str:
        """Say what to write instead."""
        found = between(self.first.stack, self.second.stack)
        return advice(found) if found else WAIT

    def to_dict(self) -> dict[str, Any]:
        """Return it as data for JSON."""
        return {
            "verdict": self.verdict,
            "writes": self.writes,
            "count": self.count,
            "low": self.low,
            "high": self.high,
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "advice": self.advice(),
        }

    def __str__(self) -> str:
        times = f", {self.count} times" if self.count > 1 else ""
        size = self.high - self.low
        return (
            f"{self.verdict}: nothing orders these two{times}\n"
            f"  first:  {self.first}\n"
            f"  second: {self.second}\n"
            f"  both at {self.low:#x}, {size} byte{'s' if size != 1 else ''}\n"
            f"  {self.advice()}"
        )
