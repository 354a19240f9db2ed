"""What the soak has to know of the libraries: how programs are drawn over them, judged and run."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cai_bridge.testing import simulated_cuda

from ...gpu.driver import why_no_gpu
from .. import doors, steps
from ..crew import Outcome, Ready
from ..program import Program, World
from ..steps import STREAMS
from . import adapters, discipline
from .adapters import FAULTS
from .draw import WORDS, Setup, first, program
from .machine import Machine


@dataclass(frozen=True)
class Inside:
    """The libraries of a program, what is between them, and who reports what went wrong."""

    libraries: dict[str, Any]
    doors: Any
    reports: Callable[[], list[str]] = list


@contextlib.contextmanager
def entered(world: World, drawn: Program) -> Iterator[Inside]:
    """Start the libraries of a program; nothing is compiled or loaded for the first time later."""
    if world.place == "simulated":
        from .adapters import simulated

        between = simulated.Nothing() if world.control else simulated.Bridge(world.fault)
        with simulated_cuda(devices=1, check=False) as cuda:
            late = {name: simulated.Adapter(name, cuda) for name in drawn.libraries}
            yield Inside(late, between, lambda: [str(one) for one in cuda.reports[:1]])
        return
    libraries = {name: adapters.load(name)() for name in drawn.libraries}
    for adapter in libraries.values():
        adapter.use_memory(world.memory)
    for words in sorted({getattr(step, "words", 0) for step in drawn.steps} - {0}):
        for name, adapter in libraries.items():
            adapter.warm_up(words, STREAMS.get(name, {}))
    yield Inside(libraries, doors.Nothing() if world.control else doors.Bridge())


__all__ = ["FAULTS", "first", "is_right", "program", "ready", "run", "setup", "why_not"]

STEPS = steps.expressed(discipline.Discipline, Machine)
CHUNK, PROGRAMS = 1, 20
"""Each program has a process of its own; and so many make a run."""
WORDS_OF = {"gpu": WORDS, "simulated": (6, 8)}


def why_not(place: str) -> str | None:
    reason = why_no_gpu() if place == "gpu" else None
    return reason and f"{reason}; the places device and simulated need none"


def ready(place: str, later: list[str]) -> Ready:
    return adapters.imported(later) if place == "gpu" else adapters.stand_ins()


def setup(asked: argparse.Namespace, there: list[str]) -> Setup:
    """Tell what programs are drawn from: of the libraries that are asked for, those there."""
    found = tuple(one for one in there if one in asked.libraries)
    if not set(found) & {"torch", "cupy", "numba"}:
        raise SystemExit("nothing to run: none of torch, CuPy and Numba is there")
    words = WORDS_OF[asked.place]
    return Setup(asked.manner, found, tuple(asked.steps), asked.threads, words)


def is_right(drawn: Program, world: World) -> bool:
    return discipline.is_right(drawn)


class Impossible(logging.Handler):
    """Counts the warnings that an end could not be ordered."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += getattr(record, "order", None) == "impossible"


def run(drawn: Program, world: World, outcome: Outcome, progress: Any = None) -> None:
    warnings.simplefilter("ignore")
    impossible = _listen(drawn)
    if not drawn.collects:
        gc.disable()
    try:
        with entered(world, drawn) as inside:
            wanted = discipline.expected(drawn)
            machine = Machine(drawn, inside.libraries, inside.doors, wanted, progress)
            machine.run()
            wrong = [*machine.reads.wrong, *inside.reports()]
            for adapter in inside.libraries.values():
                machine.counts.kinds["others"] += adapter.counts
    except Exception as error:
        outcome.text, outcome.raised = traceback.format_exc(), type(error).__name__
        return
    outcome.counts, outcome.at = machine.counts.kinds, machine.at
    outcome.counts["others"]["ends that could not be ordered, with a warning"] = impossible.count
    outcome.raised = next(iter(machine.raised), "")
    outcome.text = "\n".join([*machine.errors, *wrong])
    outcome.outcome = "error" if machine.errors else "wrong" if wrong else "right"


def _listen(drawn: Program) -> Impossible:
    logger, impossible = logging.getLogger("cai_bridge"), Impossible()
    logger.propagate = False
    logger.addHandler(impossible)
    if drawn.listens:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(logging.NullHandler())
    return impossible
