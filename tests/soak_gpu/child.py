"""One program in a process of its own: what came of it."""

from __future__ import annotations

import faulthandler
import gc
import logging
import mmap
import os
import pickle
import sys
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .discipline import expected
from .draw import Setup
from .generate import program
from .machine import Machine
from .program import Program
from .worlds import World, entered

MOST_THREADS = 3
OUTCOMES = ("right", "wrong", "died", "hung", "error")


@dataclass(frozen=True)
class Task:
    """A program to run: given, or drawn from a seed."""

    number: int
    world: World
    limit_s: float
    seed: int = 0
    setup: Setup = field(default_factory=Setup)
    given: Program | None = None

    def program(self) -> Program:
        return program(self.seed, self.setup) if self.given is None else self.given


@dataclass
class Outcome:
    """What came of a program.

    Attributes
    ----------
    at : int or None
        The step where it went wrong, where that is known.
    raised : str
        The type of what was raised, of an error.
    """

    number: int
    outcome: str
    text: str = ""
    steps: int = 0
    at: int | None = None
    raised: str = ""
    counts: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What two failures have in common that are taken for the same."""
        return f"{self.outcome} {self.raised}".strip()


class Impossible(logging.Handler):
    """Counts the warnings that an end could not be ordered."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += getattr(record, "order", None) == "impossible"


def run(task: Task, progress: Any = None) -> Outcome:
    """Run a program in this process."""
    drawn = task.program()
    outcome = Outcome(task.number, "error", steps=len(drawn.steps))
    warnings.simplefilter("ignore")
    impossible = _listen(drawn)
    if not drawn.collects:
        gc.disable()
    try:
        with entered(task.world, drawn) as inside:
            machine = Machine(drawn, inside.libraries, inside.doors, expected(drawn), progress)
            machine.run()
            wrong = [*machine.reads.wrong, *inside.reports()]
            for adapter in inside.libraries.values():
                machine.counts.kinds["others"] += adapter.counts
    except Exception as error:
        outcome.text, outcome.raised = traceback.format_exc(), type(error).__name__
        return outcome
    outcome.counts, outcome.at = machine.counts.kinds, machine.at
    outcome.counts["others"]["ends that could not be ordered, with a warning"] = impossible.count
    outcome.raised = next(iter(machine.raised), "")
    outcome.text = "\n".join([*machine.errors, *wrong])
    outcome.outcome = "error" if machine.errors else "wrong" if wrong else "right"
    return outcome


def _listen(drawn: Program) -> Impossible:
    logger, impossible = logging.getLogger("cai_bridge"), Impossible()
    logger.propagate = False
    logger.addHandler(impossible)
    if drawn.listens:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(logging.NullHandler())
    return impossible


def main(task: Task, folder: Path) -> None:
    """Run a program, write down what came of it, and end the process as it is."""
    log = (folder / f"{task.number}.log").open("wb", buffering=0)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    faulthandler.enable(log, all_threads=True)
    faulthandler.dump_traceback_later(max(0.9 * task.limit_s, task.limit_s - 5), file=log)
    with (folder / f"{task.number}.progress").open("w+b") as file:
        file.write(bytes(8 * MOST_THREADS))
        file.flush()
        progress = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
    outcome = run(task, progress)
    faulthandler.cancel_dump_traceback_later()
    written = folder / f"{task.number}.written"
    written.write_bytes(pickle.dumps(outcome))
    written.rename(folder / f"{task.number}.outcome")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
