"""Programs with a race that shows: are the two operations that are named a race of the model's?"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cai_bridge._cli import bisecting, perturb, perturbed
from cai_bridge._cli.perturb_race import Race

from .drawing import WORK, Program, draw, is_race, races
from .judging import HERE, driver

DELAY = 0.02
"""Seconds: naming takes many runs."""


@dataclass(frozen=True)
class Named:
    """What came of some programs with a race that shows.

    Attributes
    ----------
    right : int
        How many were named rightly.
    unnamed, wrong : dict of int to str
        Why the others were not named, and what was named wrongly, by their numbers.
    """

    right: int
    unnamed: dict[int, str]
    wrong: dict[int, str]

    def __str__(self) -> str:
        return f"{self.right} named rightly, {len(self.unnamed)} not, {len(self.wrong)} wrongly"


def name(numbers: Sequence[int], processes: int = 2) -> Named:
    """Name the races of the programs of these numbers."""
    programs = {number: draw(number) for number in numbers}
    pairs = dict(zip(numbers, races(list(programs.values())), strict=True))
    racy = [number for number in numbers if pairs[number]]
    with driver(), ThreadPoolExecutor(processes) as pool:
        found = zip(racy, pool.map(lambda one: _named(programs[one]), racy), strict=True)
        right = 0
        unnamed, wrong = {}, {}
        for number, said in found:
            if said is None:
                continue
            if isinstance(said, str):
                unnamed[number] = said
            elif len(steps := _steps(said, programs[number])) == 2 and is_race(
                programs[number], *steps
            ):
                right += 1
            else:
                wrong[number] = f"{steps}, and the races are {sorted(pairs[number])}"
    return Named(right, unnamed, wrong)


def _named(program: Program) -> Race | str | None:
    """Run the command on a program by itself; why it is not named; None if it does not differ."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps(program))
        file.flush()
        command = (sys.executable, str(HERE / "child.py"), file.name)
        asked = perturbed.Program(command, delay=DELAY)
        verdict = perturb.judge(asked, None, lambda *_: None)
        if not verdict.schedules:
            return None
        try:
            return bisecting.bisect(asked, verdict.rows[0].run, verdict.schedules, lambda _: None)
        except bisecting.UnnamedError as why:
            return str(why)


def _steps(race: Race, program: Program) -> tuple[int, ...]:
    """Find the steps that the two operations are; one alone if the host is said to be early."""
    work = [at for at, (kind, *_) in enumerate(program) if kind in WORK]
    sides = [race.late, race.early] if race.early else [race.late]
    return tuple(sorted(work[one.operation] for one in sides))
