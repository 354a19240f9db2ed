"""A program, and how it is written down."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .bridging import Collect, Cycle, Drop, Export, FromCai, Release, Take, ToCai
from .calling import Call
from .step import LIBRARIES, Step
from .work import Enter, Leave, Make, Meet, NewStream, Read, Reuse, Sync, Write

__all__ = [
    "LIBRARIES",
    "MANNERS",
    "Call",
    "Collect",
    "Cycle",
    "Drop",
    "Enter",
    "Export",
    "FromCai",
    "Leave",
    "Make",
    "Meet",
    "NewStream",
    "Program",
    "Read",
    "Release",
    "Reuse",
    "Step",
    "Sync",
    "Take",
    "ToCai",
    "Write",
    "listing",
]

MANNERS = ("told", "handles", "unsaid")


@dataclass(frozen=True)
class Program:
    """Steps of some threads, in an order that they may come in.

    Attributes
    ----------
    manner : str
        ``"told"`` names streams by objects, ``"handles"`` by bare handles, ``"unsaid"`` not at all.
    libraries : tuple of str
        Those that work in it.
    collects : bool
        Whether Python's collector runs by itself, too.
    listens : bool
        Whether somebody listens to the bridge's log records.
    """

    manner: str
    libraries: tuple[str, ...]
    threads: int
    steps: tuple[Step, ...]
    collects: bool = False
    listens: bool = False

    def of(self, steps: tuple[Step, ...]) -> Program:
        return replace(self, steps=steps)


def listing(program: Program) -> str:
    """Write a program down, one step a line."""
    head = f"# {program.manner}; {', '.join(program.libraries)}; {program.threads} thread(s)"
    head += "; gc.enable()" if program.collects else "; gc.disable()"
    head += "; logging at DEBUG" if program.listens else ""
    lines = [head]
    for number, step in enumerate(program.steps):
        who = f"thread {step.thread}: " if program.threads > 1 else ""
        lines.append(f"{number:4}  {who}{step}")
    return "\n".join(lines)
