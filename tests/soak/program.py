"""A program, and how it is written down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from . import steps as s


@dataclass(frozen=True)
class Program:
    """Steps of some threads, in an order that they may come in.

    Attributes
    ----------
    manner : str
        How libraries are told streams: ``"told"`` names them by objects, ``"handles"`` by bare
        handles, ``"unsaid"`` not at all. On the simulated device, where there are no libraries,
        each step says it.
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
    steps: tuple[Any, ...]
    collects: bool = False
    listens: bool = False

    def of(self, steps: tuple[Any, ...]) -> Program:
        return replace(self, steps=steps)

    def plainer(self) -> list[Program]:
        """List the same without what is about the whole program."""
        found = []
        if self.threads > 1:
            alone = (replace(one, thread=0) for one in self.steps if not hasattr(one, "other"))
            found.append(replace(self, threads=1, steps=tuple(alone)))
        if self.collects or self.listens:
            found.append(replace(self, collects=False, listens=False))
        return found


def listing(program: Program) -> str:
    """Write a program down, one step a line."""
    if not program.libraries:
        return s.listing(program.steps)
    head = f"# {program.manner}; {', '.join(program.libraries)}; {program.threads} thread(s)"
    head += "; gc.enable()" if program.collects else "; gc.disable()"
    head += "; logging at DEBUG" if program.listens else ""
    lines = [head]
    for number, step in enumerate(program.steps):
        who = f"thread {step.thread}: " if program.threads > 1 else ""
        lines.append(f"{number:4}  {who}{step}")
    return "\n".join(lines)
