"""What the soak has to know of the libraries: how programs are drawn over them, judged and run."""

from __future__ import annotations

import argparse
import gc
import logging
import traceback
import warnings
from typing import Any

from ...gpu.driver import why_no_gpu
from .. import steps
from ..child import Outcome
from ..program import Program
from ..worlds import World
from ..zygote import Ready
from . import adapters, discipline
from .adapters.faults import FAULTS
from .draw import WORDS, Setup
from .entering import entered
from .generate import first, program
from .machine import Machine

__all__ = ["FAULTS", "first", "is_right", "program", "ready", "run", "setup", "why_not"]

STEPS = steps.expressed(discipline.Discipline, Machine)
CHUNK, PROGRAMS = 1, 20
"""Each program has a process of its own; and so many make a run."""
WORDS_OF = {"gpu": WORDS, "dry": (16, 64, 256), "simulated": (6, 8)}


def why_not(place: str) -> str | None:
    """Tell why there can be no programs here."""
    reason = why_no_gpu() if place == "gpu" else None
    return reason and f"{reason}; the places device, dry and simulated need none"


def ready(place: str, later: list[str]) -> Ready:
    """Import what programs need."""
    return adapters.imported(later) if place == "gpu" else adapters.stand_ins()


def setup(asked: argparse.Namespace, there: list[str]) -> Setup:
    """Tell what programs are drawn from: of the libraries that are asked for, those there."""
    found = tuple(one for one in there if one in asked.libraries)
    if not set(found) & {"torch", "cupy", "numba"}:
        raise SystemExit("nothing to run: none of torch, CuPy and Numba is there")
    words = WORDS_OF[asked.place]
    return Setup(asked.manner, found, tuple(asked.steps), asked.threads, words)


def is_right(drawn: Program, world: World) -> bool:
    """Whether a program is one."""
    del world
    return discipline.is_right(drawn)


class Impossible(logging.Handler):
    """Counts the warnings that an end could not be ordered."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += getattr(record, "order", None) == "impossible"


def run(drawn: Program, world: World, outcome: Outcome, progress: Any = None) -> None:
    """Run a program, and note what comes of it."""
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
