"""Leaves out one order that a program needs: the simulated device must report it.

Which orders are needed is the model's to say, with what the simulated device orders besides, and
for a record with the event taken to stand for any order made before. The orders are the bridge's:
an event and a wait, or a wait of the host.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import steps as s
from ..program import Refused
from .handover import Bridge
from .machine import Failure, run
from .order import Left, Made, Unordered

CALLS = ("cuEventRecord", "cuStreamWaitEvent", "cuModuleUnload")


class Need(NamedTuple):
    """An order that some later access needs, and what is special about it."""

    left: Left
    kinds: frozenset[str]


class Broken(NamedTuple):
    """What came of a program without an order that it needs.

    "found", "missed", or "none" to leave out.
    """

    result: str
    step: s.Step | None = None
    kinds: frozenset[str] = frozenset()
    failure: Failure | None = None


def needed(program: s.Steps, call: str, orders: list[Made], draw: random.Random) -> Iterator[Need]:
    """Give those of a program's orders that some later access needs, in an order that is drawn."""
    whose, made_in = "host" if call == "cuModuleUnload" else "edge", dict[int, list[Made]]()
    for one in orders:
        made_in.setdefault(one.step, []).append(one)
    if not any(one.whose == whose for one in orders):
        return iter(())
    model, needs = Bridge(), list[Need]()
    for number, step in enumerate(program):
        here = made_in.get(number, [])
        before = model.copy() if any(made.whose == whose for made in here) else model
        model.take(step)
        for nth, made in enumerate(here):
            if made.whose == whose:
                left = Left(number, nth, stale=call == "cuEventRecord")
                needs.append(Need(left, kinds(step, made, before)))
    draw.shuffle(needs)
    return (need for need in needs if _is_missed(program, need.left, Bridge()))


def kinds(step: s.Step, made: Made, model: Bridge) -> frozenset[str]:
    """Tell what is special about an order that a step makes, in the state before the step."""
    found = {type(step).__name__}
    if made.captured:
        found.add("capture")
    if len({model.lanes[stream].device for stream in made.streams}) > 1:
        found.add("two GPUs")
    if getattr(step, "elsewhere", False) or getattr(step, "how", None) in {"thread", "native"}:
        found.add("another thread")
    about = [getattr(step, field, None) for field in ("source", "view", "what")]
    for view in [model.views[name] for name in about if name in model.views]:
        found |= {"unnamed"} if view.user.kind in {"unread", "unnamed"} else set()
        found |= {"nested"} if model.arrays[view.array].root else set()
        found |= {"a copy"} if view.copy else set()
    return frozenset(found)


def _is_missed(program: s.Steps, left: Left, model: Bridge) -> bool:
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

    def __init__(self, call: str, left: Left, made: list[Made]) -> None:
        self.call, self.left = call, left
        host = call == "cuModuleUnload"
        mine = [(one.whose == "host") == host for one in made if one.step == left.step]
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


def broken(program: s.Steps, call: str, seed: int) -> Broken:
    """Run a program without an order that it needs."""
    program = tuple(step for tried in program for step in without_faults(tried))
    model = Bridge()
    for step in program:
        model.take(step)
    for left, special in needed(program, call, model.made, random.Random(seed)):
        without = Without(call, left, list(model.made))
        failure = run(program, Bridge(), without)
        # A capture that lacks an order fails by itself, too: what was forked is not joined.
        found = failure is not None and (failure.kind.startswith("report") or "capture" in special)
        # A report may end the run within the step itself, before the call was counted.
        if without.made or found:
            return Broken("found" if found else "missed", program[left.step], special, failure)
    return Broken("none")
