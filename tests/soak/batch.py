"""Some programs of a soak, as one of its processes runs them."""

from __future__ import annotations

import gc
import warnings
from collections import Counter

from . import power
from .bridge import Bridge
from .execute import Failure, run
from .generate import program

Found = tuple[int, Failure]


def batch(task: tuple[int, int, str | None]) -> tuple[list[Found], Counter[str]]:
    """Run the programs of some seeds: what failed, and what there was."""
    start, stop, call = task
    warnings.simplefilter("ignore")
    # Cycles are collected where a program says so, and what is old is not looked at.
    gc.disable()
    gc.freeze()
    failed, counted = [], Counter[str]()
    for seed in range(start, stop):
        drawn = program(seed)
        if call is None:
            failure = run(drawn, Bridge())
            counted["steps"] += len(drawn)
        else:
            broken = power.broken(drawn, call, seed)
            counted[broken.result] += 1
            counted.update(f"{broken.result}: {kind}" for kind in broken.kinds)
            failure = None
            if broken.result == "missed":
                what = f"nothing is reported without the {call} of: {broken.step}"
                failure = Failure("missed", f"{what}\n{broken.failure}")
        if failure is not None:
            failed.append((seed, failure))
    gc.enable()
    return failed, counted
