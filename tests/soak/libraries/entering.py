"""The libraries of a program on a GPU, or one of two sets of stand-ins for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..program import Program
from ..step import STREAMS
from ..worlds import World
from . import doors


@dataclass(frozen=True)
class Inside:
    """The libraries of a program, what is between them, and who reports what went wrong."""

    libraries: dict[str, Any]
    doors: Any
    reports: Callable[[], list[str]] = list


@contextlib.contextmanager
def entered(world: World, drawn: Program) -> Iterator[Inside]:
    """Start the libraries of a program; nothing is compiled or loaded for the first time later."""
    between = doors.Nothing() if world.control else doors.Bridge()
    if world.place == "dry":
        from .adapters import dry

        made = {name: dry.Adapter(name, world.fault) for name in drawn.libraries}
        yield Inside(made, between if world.control else dry.Bridge(world.fault))
    elif world.place == "simulated":
        from .adapters import simulated

        with simulated.device() as cuda:
            late = {name: simulated.Adapter(name, cuda) for name in drawn.libraries}
            yield Inside(
                late, simulated.Bridge(world.fault), lambda: [str(one) for one in cuda.reports[:1]]
            )
    else:
        yield Inside(_warmed_up(drawn, world.memory), between)


def _warmed_up(drawn: Program, memory: str) -> dict[str, Any]:
    from .adapters import load

    libraries = {name: load(name)() for name in drawn.libraries}
    for adapter in libraries.values():
        adapter.use_memory(memory)
    for words in sorted({getattr(step, "words", 0) for step in drawn.steps} - {0}):
        for name, adapter in libraries.items():
            adapter.warm_up(words, STREAMS.get(name, {}))
    return libraries
