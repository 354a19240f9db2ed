"""Some programs in a process of their own: what came of each."""

from __future__ import annotations

import faulthandler
import mmap
import os
import pickle
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .program import Program
from .worlds import World

MOST_THREADS = 3
OUTCOMES = ("right", "wrong", "died", "hung", "error")


@dataclass(frozen=True)
class Task:
    """Programs to run: one that is given, or as many as `count` of the seeds from `seed` on."""

    number: int
    world: World
    limit_s: float
    seed: int = 0
    setup: Any = None
    given: Program | None = None
    count: int = 1

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.count)

    def program(self, seed: int) -> Program:
        if self.given is not None:
            return self.given
        drawn: Program = self.world.room.program(seed, self.setup)
        return drawn


@dataclass
class Outcome:
    """What came of a program.

    Attributes
    ----------
    at : int or None
        The step where it went wrong, where that is known.
    raised : str
        What is wrong in a word: of an error, the type of what was raised.
    """

    number: int
    outcome: str
    text: str = ""
    steps: int = 0
    at: int | None = None
    raised: str = ""
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    seed: int = 0

    @property
    def kind(self) -> str:
        """What two failures have in common that are taken for the same."""
        return f"{self.outcome} {self.raised}".strip()


def run(task: Task, progress: Any = None) -> list[Outcome]:
    """Run programs in this process."""
    outcomes = []
    for seed in task.seeds:
        drawn = task.program(seed)
        outcome = Outcome(task.number, "error", steps=len(drawn.steps), seed=seed)
        task.world.room.run(drawn, task.world, outcome, progress)
        outcomes.append(outcome)
    return outcomes


def main(task: Task, folder: Path) -> None:
    """Run programs, write down what came of them, and end the process as it is."""
    log = (folder / f"{task.number}.log").open("wb", buffering=0)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    faulthandler.enable(log, all_threads=True)
    faulthandler.dump_traceback_later(max(0.9 * task.limit_s, task.limit_s - 5), file=log)
    with (folder / f"{task.number}.progress").open("w+b") as file:
        file.write(bytes(8 * MOST_THREADS))
        file.flush()
        progress = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
    outcomes = run(task, progress)
    faulthandler.cancel_dump_traceback_later()
    written = folder / f"{task.number}.written"
    written.write_bytes(pickle.dumps(outcomes))
    written.rename(folder / f"{task.number}.outcome")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
