"""Programs, recorded and compared, against what is true of them."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak_perturb import drawing as plain
from tests.soak_perturb.joins import joins
from tests.soak_perturb.judging import HERE as PLAIN
from tests.soak_perturb.judging import Counts, driver

from cai_bridge._cli import perturbed, races, recorded

from .drawing import draw

HERE = Path(__file__).parent
Pairs = list[set[tuple[int, int]]]
LEAST = {"random": 0.85, "shared": 0.85}
"""Of the racy programs so many must be proven: the others' kernels write what is there anyway."""


@dataclass
class Found(Counts):
    """What came of some programs."""

    programs: int = 0
    racy: int = 0
    proven: int = 0
    """Racy programs of which a pair is proven."""
    seen: int = 0
    """Racy programs of which a pair is proven or a suspect."""
    pairs: int = 0
    right: int = 0
    """True pairs, and those of them that are proven."""
    wrong: list[str] = field(default_factory=list)
    """What is proven, and is no race."""

    @property
    def recall(self) -> float:
        """The share of the racy programs that are proven."""
        return self.proven / self.racy if self.racy else 1.0

    def __str__(self) -> str:
        racy, pairs = max(1, self.racy), max(1, self.pairs)
        return (
            f"{self.programs} programs, {self.racy} racy: {self.proven} proven "
            f"({100 * self.proven / racy:.1f} %), {self.seen} with a pair "
            f"({100 * self.seen / racy:.1f} %); {self.right} of {self.pairs} pairs proven "
            f"({100 * self.right / pairs:.1f} %), {len(self.wrong)} wrong"
        )


def hash_of(name: str) -> int:
    """Return the hash of a kernel's name (perturb/src/kernel_arguments.rs)."""
    found = 0xCBF29CE484222325
    for byte in name.encode():
        found = (found ^ byte) * 0x100000001B3 % (1 << 64)
    return found


def accused(
    child: Path, programs: Sequence[list[list[Any]]], kernels: set[str]
) -> tuple[Pairs, Pairs]:
    """Run programs in one process, each launch compared: the pairs that are proven, and all."""
    with driver(), tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.writelines(f"{json.dumps(one)}\n" for one in programs)
        file.flush()
        program = perturbed.Program((sys.executable, str(child), file.name))
        steps = [
            (number, at, step[0])
            for number, one in enumerate(programs)
            for at, step in enumerate(one)
            if step[0] in kernels
        ]
        counts = dict.fromkeys(sorted(kernels), 0)
        wanted = []
        for *_, kind in steps:
            wanted.append(f"{hash_of(kind)} {counts[kind]}")
            counts[kind] += 1
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            runs = [
                recorded.run(program, every=True, keep=Path(one)),
                recorded.run(program, compared=wanted, every=True, keep=Path(other)),
            ]
            looked = recorded.together(Path(one), Path(other), every=True)
    for run in runs:
        if run.status:
            raise RuntimeError(run.errors)
    looked += runs[1].looked
    for process in looked:
        if process["operations"] != len(steps):
            raise RuntimeError(f"{process['operations']} operations, {len(steps)} steps")
    proven: Pairs = [set() for _ in programs]
    every: Pairs = [set() for _ in programs]
    for first, second, is_proven in (pair for process in looked for pair in process["each"]):
        (number, one, _), (other, two, _) = steps[first], steps[second]
        if number != other:
            raise RuntimeError(f"steps of programs {number} and {other}")
        every[number].add((one, two))
        if is_proven:
            proven[number].add((one, two))
    return proven, every


def _judged(
    truth: Pairs, proven: Pairs, every: Pairs, is_true: Callable[[int, tuple[int, int]], bool]
) -> Found:
    found = Found(programs=len(truth))
    for number, (pairs, sure, all_) in enumerate(zip(truth, proven, every, strict=True)):
        found.racy += bool(pairs)
        found.proven += bool(pairs and sure)
        found.seen += bool(pairs and all_)
        found.pairs += len(pairs)
        found.right += len(pairs & sure)
        for pair in sure - pairs:
            if not is_true(number, pair):
                found.wrong.append(f"program {number}: {pair}, and the races are {sorted(pairs)}")
    return found


def judge_random(numbers: Sequence[int]) -> Found:
    """Judge programs of `soak_perturb`: the truth is the simulated device's check."""
    programs = [plain.draw(number) for number in numbers]
    proven, every = accused(PLAIN / "child.py", programs, plain.WORK)
    # A pair that the device does not report beside others is asked for alone.
    return _judged(
        plain.races(programs),
        proven,
        every,
        lambda number, pair: plain.is_race(programs[number], *pair),
    )


KERNELS = {"fill", "copy", "add", "put", "get", "seldom", "noise"}


def judge_shared(numbers: Sequence[int], *, careful: bool) -> Found:
    """Judge programs as libraries make them."""
    drawn = [draw(number, careful=careful) for number in numbers]
    proven, every = accused(HERE / "child.py", [one.steps for one in drawn], KERNELS)
    return _judged([one.races for one in drawn], proven, every, lambda *_: False)


def judge_joins() -> tuple[int, int, list[str]]:
    """Judge each join of `soak_perturb`, whole and without one of its waits.

    Returns
    -------
    tuple of int, int, list of str
        How many joins lack a wait; of how many exactly that is proven; what was judged wrongly.
    """
    racy, right, wrong = 0, 0, []
    for count, forgotten, program in joins():
        verdict = races.judge(program, lambda *_: None)
        certain = verdict.certain
        racy += forgotten is not None
        if forgotten is None:
            wrong += [f"{count} streams: {one}" for one in certain[:1]]
        elif len(certain) == 1 and certain[0].count == 1:
            right += 1
        else:
            wrong.append(f"{count} streams without {forgotten}: {verdict.conclusion}")
    return racy, right, wrong
