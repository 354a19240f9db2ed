"""Leaves out one order that a program needs: the simulated device must report it.

Which orders are needed is the model's to say, with the order of blocking streams as the simulated
device has it, and for a record with the event taken to stand for any order made before.
"""

from __future__ import annotations

import random
from typing import Any

from . import steps as s
from .execute import Failure, run
from .handover import Bridge
from .order import Refused, Unordered

HANDOVERS = (s.ToCai, s.FromCai, s.Export, s.Copy, s.Consume, s.Release, s.Drop, s.Collect)
CALLS = ("cuEventRecord", "cuStreamWaitEvent")


def needed(program: s.Program, call: str, make: Any = Bridge) -> list[int]:
    """List the steps whose one order some later access needs."""
    model = make()
    for step in program:
        model.take(step)
    # Another thread's orders go by the legacy default stream, which brings more with it.
    single = [
        number
        for number in sorted(set(model.edges))
        if model.edges.count(number) == 1
        and isinstance(program[number], HANDOVERS)
        and not getattr(program[number], "thread", False)
    ]
    return [number for number in single if _is_missed(program, number, call, make())]


def _is_missed(program: s.Program, number: int, call: str, model: Bridge) -> bool:
    model.strict, model.without, model.stale = False, number, call == "cuEventRecord"
    try:
        for step in program:
            model.take(step)
    except Unordered:
        return True
    except Refused:
        return False
    return False


class Without:
    """Suppresses the one call of a step, and tells whether there was one."""

    def __init__(self, call: str, number: int) -> None:
        self.call, self.number = call, number
        self.made = False
        self._before = 0

    def __call__(self, cuda: Any, number: int) -> None:
        if number == self.number:
            self._before = self._count(cuda)
            cuda.suppress(self.call, 1)
        elif number == self.number + 1:
            self.made = self._count(cuda) == self._before + 1
            cuda.clear_faults()

    def _count(self, cuda: Any) -> int:
        return sum(made[0] == self.call for made in cuda._session.calls())


def without_faults(step: s.Step) -> tuple[s.Step, ...]:
    """What an attempt orders before it fails is no promise, and may stand in for an order."""
    if not isinstance(step, s.Attempt):
        return (step,)
    return (step.step,) if isinstance(step.step, s.Release) else ()


def broken(program: s.Program, call: str, seed: int) -> tuple[str, s.Step | None, Failure | None]:
    """Run a program without an order that it needs: "found", "missed", or "none" to leave out."""
    program = tuple(step for tried in program for step in without_faults(tried))
    choice = random.Random(seed)
    numbers = needed(program, call)
    choice.shuffle(numbers)
    for number in numbers:
        without = Without(call, number)
        failure = run(program, Bridge(), without)
        found = failure is not None and failure.kind.startswith("report")
        # A report may end the run within the step itself, before the call was counted.
        if without.made or found:
            return "found" if found else "missed", program[number], failure
    return "none", None, None
