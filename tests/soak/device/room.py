"""What the soak has to know of the simulated device: how programs are drawn, judged and run there.

Each place of `program.ROOMS` has a room with these functions.
"""

from __future__ import annotations

import argparse
import gc
import warnings
from collections import Counter
from typing import Any

from .. import steps
from ..crew import Outcome, Ready
from ..program import Program, Refused, World
from . import machine, power, scenes
from .handover import Bridge, know_nobody
from .machine import Machine
from .planted import FAULTS as PLANTED
from .planted import NOTHING

__all__ = ["FAULTS", "first", "is_right", "model", "program", "ready", "run", "setup", "why_not"]

STEPS = steps.expressed(Bridge, Machine)
FAULTS = {"device": tuple(PLANTED)}
CHUNK, PROGRAMS = 500, 100_000
"""So many programs of a process, and of a run."""


def why_not(place: str) -> str | None:
    """Tell why there can be no programs here."""


def ready(place: str, later: list[str]) -> Ready:
    return Ready()


def setup(asked: argparse.Namespace, there: list[str]) -> World:
    """Tell what programs are drawn from: a model that promises too much draws others."""
    return World("device", fault=asked.plant, strangers=asked.strangers)


def first(setup: World) -> None:
    """Nothing has to be started."""


def program(seed: int, setup: World | None = None) -> Program:
    world = setup or World("device")
    return Program("", (), 1, scenes.program(seed, model(world)))


def model(world: World) -> Bridge:
    """Make the model to draw and judge by, where the bridge knows as many libraries as it does."""
    if world.strangers:
        know_nobody()
    return PLANTED.get(world.fault, NOTHING).model()


def is_right(drawn: Program, world: World) -> bool:
    """Whether the model refuses nothing in a program."""
    judged = model(world)
    try:
        for step in drawn.steps:
            judged.take(step)
    except (Refused, KeyError):
        # A key is missing where a step needs what another, now left out, had made.
        return False
    return judged.capture is None


def run(drawn: Program, world: World, outcome: Outcome, progress: Any = None) -> None:
    warnings.simplefilter("ignore")
    if gc.isenabled():
        # Cycles are collected where a program says so, and what is old is not looked at.
        gc.disable()
        gc.freeze()
    if world.without:
        _run_without(drawn, world.without, outcome)
        return

    def watch(_: Any, number: int) -> None:
        if progress is not None:
            progress[0] = number

    with PLANTED.get(world.fault, NOTHING).planted():
        failure = machine.run(drawn.steps, model(world), watch)
    outcome.outcome = "right"
    if failure is not None:
        outcome.outcome, outcome.raised, outcome.text = "wrong", failure.kind, failure.text
    outcome.counts = {"steps": Counter(type(step).__name__ for step in drawn.steps)}


def _run_without(drawn: Program, call: str, outcome: Outcome) -> None:
    """Run a program without an order that it needs, which has to be reported."""
    broken = power.broken(drawn.steps, call, outcome.seed)
    found = Counter([f"{call}: {broken.result}"])
    found.update(f"{call}: {broken.result}: {kind}" for kind in broken.kinds)
    outcome.outcome, outcome.counts = "right", {"others": found}
    if broken.result == "missed":
        outcome.outcome, outcome.raised = "wrong", "missed"
        what = f"nothing is reported without the {call} of: {broken.step}"
        outcome.text = f"{what}\n{broken.failure}"
