"""A program: where it runs, how it is written down, and how one is made step by step."""

from __future__ import annotations

import importlib
import random
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from . import steps as s
from .steps import Step

# The room that knows each place: how programs are drawn there, judged and run.
ROOMS = {
    "device": f"{__package__}.device.room",
    "gpu": f"{__package__}.libraries.room",
    "simulated": f"{__package__}.libraries.room",
}

# Where the libraries get their memory: what each is told, for PyTorch and JAX before its import.
MEMORY: dict[str, dict[str, str]] = {
    "pools": {},
    "async": {
        "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync",
        "XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async",
    },
    "segments": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
}


@dataclass(frozen=True)
class World:
    """A place, and what is between the libraries there."""

    # "device": arrays of the simulated device, with a model of all that it has to do; "gpu": the
    # libraries; "simulated": stand-ins for them on the simulated device.
    place: str = "gpu"
    # Whether arrays are handed over without a bridge, between libraries.
    control: bool = False
    # What is planted, one of the room's faults.
    fault: str = ""
    # Where the libraries get memory from on a GPU: "pools", their own; "async", the driver's pool
    # (`cuMemAllocAsync`), by PyTorch, CuPy and JAX; or "segments", PyTorch's expandable segments.
    memory: str = "pools"
    # On the device alone: the call of the driver of which each program leaves a needed one out, and
    # whether the bridge knows no library.
    without: str = ""
    strangers: bool = False

    @property
    def room(self) -> ModuleType:
        """What knows the place: a module with the functions that `device` has."""
        return importlib.import_module(ROOMS[self.place])


@dataclass(frozen=True)
class Program:
    """Steps of some threads, in an order that they may come in."""

    # How libraries are told streams: "told" names them by objects, "handles" by bare handles,
    # "unsaid" not at all. On the simulated device, which has no libraries, each step says it.
    manner: str
    libraries: tuple[str, ...]
    threads: int
    steps: tuple[Any, ...]
    # Whether Python's collector runs by itself, too; whether somebody listens to log records.
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


class Refused(Exception):
    """The program does what nobody promises, or what cannot be done."""


class Lacking(Refused):
    """Something has to come first, which the program itself can do."""


def wants(condition: object, why: str = "cannot be done") -> None:
    """Refuse the step unless that is so."""
    if not condition:
        raise Refused(why)


class Making:
    """A program in the making, of the steps that its model takes."""

    tries = 4
    """So often is a step tried, with one more thing before it each time."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.steps: list[Step] = []
        self.made = 0

    def take(self, step: Step) -> None:
        """Have the model take a step, or refuse it, and stay as it was."""
        raise NotImplementedError

    def mend(self, lacking: Lacking, step: Step) -> bool:
        """Add what has to come before a step; False where nothing does."""
        raise NotImplementedError

    def push(self, step: Step | None) -> bool:
        """Add a step, with what it needs before it; False where the model refuses it."""
        if step is None:
            return False
        for _ in range(self.tries):
            try:
                self.take(step)
            except Lacking as lacking:
                if not self.mend(lacking, step):
                    return False
            except Refused:
                return False
            else:
                self.steps.append(step)
                return True
        return False

    def pushed(self, step: Step | None) -> str | None:
        return step.makes() if step is not None and self.push(step) else None

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def value(self) -> int:
        """Make a value that no other write of the program has."""
        self.made += 1
        return self.made
