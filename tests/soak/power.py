"""Leaves out one order that a program needs: the simulated device must report it.

Which orders are needed is the model's to say, with what the simulated device orders besides, and
for a record with the event taken to stand for any order made before. The orders are the bridge's:
an event and a wait, or a wait of the host.
"""

from __future__ import annotations

import random
from typing import Any

from . import steps as s
from .execute import Failure, run
from .handover import Bridge
from .order import Left, Refused, Unordered

CALLS = ("cuEventRecord", "cuStreamWaitEvent", "cuCtxSynchronize")


def needed(program: s.Program, call: str, make: Any = Bridge) -> list[Left]:
    """List the orders that some later access needs."""
    model = make()
    for step in program:
        model.take(step)
    kind = "host" if call == "cuCtxSynchronize" else "edge"
    lefts, counted = [], dict[int, int]()
    for number, made in model.made:
        nth = counted[number] = counted.get(number, -1) + 1
        # Another thread's orders go by the legacy default stream, which brings more with it.
        if made == kind:
            lefts.append(Left(number, nth, stale=call == "cuEventRecord"))
    return [left for left in lefts if _is_missed(program, left, make())]


def is_elsewhere(step: s.Step) -> bool:
    return getattr(step, "thread", False) or getattr(step, "how", None) in {"thread", "native"}


def _is_missed(program: s.Program, left: Left, model: Bridge) -> bool:
    model.strict, model.without = False, left
    try:
        for step in program:
            model.take(step)
    except Unordered:
        return True
    except Refused:
        return False
    return False


class Without:
    """Suppresses one call of a step, and tells whether the step made those that it has to."""

    def __init__(self, call: str, left: Left, kinds: list[str]) -> None:
        self.call, self.left = call, left
        host = call == "cuCtxSynchronize"
        mine = [(kind == "host") == host for kind in kinds]
        self.wanted, self.nth = sum(mine), sum(mine[: left.nth + 1])
        self.made = False
        self._before = 0

    def __call__(self, cuda: Any, number: int) -> None:
        if number == self.left.step:
            self._before = self._count(cuda)
            cuda.suppress(self.call, self.nth)
        elif number == self.left.step + 1:
            self.made = self._count(cuda) == self._before + self.wanted
            cuda.clear_faults()

    def _count(self, cuda: Any) -> int:
        return sum(made[0] == self.call for made in cuda._session.calls())


def without_faults(step: s.Step) -> tuple[s.Step, ...]:
    """What an attempt orders before it fails is no promise, and may stand in for an order."""
    if not isinstance(step, s.Attempt):
        return (step,)
    return (step.step,) if isinstance(step.step, s.Release | s.Drop) else ()


def broken(program: s.Program, call: str, seed: int) -> tuple[str, s.Step | None, Failure | None]:
    """Run a program without an order that it needs: "found", "missed", or "none" to leave out."""
    program = tuple(step for tried in program for step in without_faults(tried))
    choice = random.Random(seed)
    lefts = needed(program, call)
    choice.shuffle(lefts)
    model = Bridge()
    for step in program:
        model.take(step)
    for left in lefts:
        kinds = [kind for number, kind in model.made if number == left.step]
        without = Without(call, left, kinds)
        failure = run(program, Bridge(), without)
        found = failure is not None and failure.kind.startswith("report")
        # A report may end the run within the step itself, before the call was counted.
        if without.made or found:
            return "found" if found else "missed", program[left.step], failure
    return "none", None, None
