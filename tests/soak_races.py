"""`python -m tests.soak_races`: what `cai-bridge races` proves is a race, and which it proves.

    python -m tests.soak_races [--programs N] [--shared N] [--seed N] [--no-joins]

Random programs: what is proven must be a race, and of the racy programs most must have a pair that
is proven. Programs as libraries make them: of careful ones nothing is proven. And each join of up
to six streams, whole and without one of its waits. Exits with 1 if that is not so.

In a program as libraries make it several streams read the same weights and update in place; two
take a half of a buffer each, by an address or by an offset; an allocator gives blocks out again;
some kernels write seldom. The truth is clocks over the words that each step reads and writes. A
careful program has each wait that it needs; a sloppy one lacks some.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import soak_perturb as plain

from cai_bridge._cli import races, recorded

STREAMS = 3
LENGTH = 40
BLOCK = 4
"""Words of a block."""
BLOCKS = 24
Touches = list[tuple[int, str]]
"""Words, and `r` or `w`."""


class Drawing:
    """A program in the making: its steps, and the pairs of steps that race."""

    def __init__(self, seed: int, *, careful: bool) -> None:
        self.choice = random.Random(seed * 2 + careful)
        self.skip = 0.0 if careful else self.choice.choice((0.05, 0.2, 0.5))
        self.steps: plain.Program = []
        self.races: set[tuple[int, int]] = set()
        self.clocks = [[0] * STREAMS for _ in range(STREAMS)]
        self.seen: dict[int, list[tuple[int, int, int, str]]] = {}
        """Of each word, who touched it: the step, its stream, its number there, and how."""
        self.free = list(range(BLOCKS))
        self.live: list[int] = []
        self.values = seed * 10_000

    def step(self, kind: str, stream: int, arguments: list[int], touches: Touches) -> None:
        """Add a kernel, with the waits that it needs, or without some."""
        clock = self.clocks[stream]
        for word, how in touches:
            for _, other, number, old in self.seen.get(word, []):
                late = clock[other] < number and "w" in (how, old)
                if late and self.choice.random() >= self.skip:
                    self.order(other, stream)
        at = len(self.steps)
        self.steps.append([kind, stream, *arguments])
        clock[stream] += 1
        for word, how in touches:
            seen = self.seen.setdefault(word, [])
            for older, other, number, old in seen:
                if older != at and clock[other] < number and "w" in (how, old):
                    self.races.add((older, at))
            seen.append((at, stream, clock[stream], how))

    def order(self, first: int, second: int) -> None:
        self.steps.append(["order", first, second])
        to, other = self.clocks[second], self.clocks[first]
        to[:] = map(max, to, other)

    def value(self) -> int:
        """Choose a value that is there nowhere else, but for a tenth."""
        self.values += 1
        return 7 if self.choice.random() < 0.1 else self.values

    def word(self, block: int, offset: int = 0) -> int:
        return block * BLOCK + offset

    def new(self) -> int:
        block = self.free.pop(0) if self.free else self.live.pop(0)
        self.live.append(block)
        return block

    def draw(self) -> Drawing:
        weights = [self.new() for _ in range(2)]
        for one in weights:
            self.step("fill", 0, [self.word(one), self.value()], [(self.word(one), "w")])
        while len(self.steps) < LENGTH:
            self.one(weights)
        return self

    def one(self, weights: list[int]) -> None:
        choice = self.choice
        stream = choice.randrange(STREAMS)
        other = (stream + 1) % STREAMS
        block = choice.choice(self.live)
        base = self.word(block)
        match choice.choices(range(9), (3, 4, 2, 2, 2, 1, 1, 1, 1))[0]:
            case 0:
                word = self.word(self.new())
                self.step("fill", stream, [word, self.value()], [(word, "w")])
            case 1:
                source = self.word(choice.choice([*weights, *self.live]))
                word = self.word(self.new())
                if word != source:
                    self.step("copy", stream, [word, source], [(word, "w"), (source, "r")])
            case 2:
                source = self.word(choice.choice(weights))
                if base != source:
                    self.step("add", stream, [base, source], [(base, "w"), (source, "r")])
            case 3:  # two streams, each with its half of a buffer, by one address
                for at, on in ((1, stream), (2, other)):
                    arguments = [base, at, self.value()]
                    self.step("put", on, arguments, [(base + at, "w")])
            case 4:  # one writes its half, the other reads its own
                self.step("put", stream, [base, 1, self.value()], [(base + 1, "w")])
                word = self.word(self.new())
                if word != base:
                    self.step("get", other, [word, base, 2], [(word, "w"), (base + 2, "r")])
            case 5:  # by two addresses
                self.step("fill", stream, [base + 1, self.value()], [(base + 1, "w")])
                self.step("fill", other, [base + 2, self.value()], [(base + 2, "w")])
            case 6:  # it may write or not: it is said to, as the check's truth is what it may do
                word = self.word(self.new())
                if word != base:
                    arguments = [word, base, self.value()]
                    self.step("seldom", stream, arguments, [(word, "w"), (base, "r")])
            case 7:  # another value each time; the second address is left alone
                word = self.word(self.new())
                if word != base:
                    self.step("noise", stream, [word, base], [(word, "w")])
            case _:
                self.steps.append(["sync", stream])
                for clock in self.clocks:
                    clock[:] = map(max, clock, self.clocks[stream])
                if len(self.live) > 4:
                    self.free.append(self.live.pop(choice.randrange(len(self.live))))


Pairs = list[set[tuple[int, int]]]
LEAST = {"random": 0.85, "shared": 0.85}
"""Of the racy programs so many must be proven: the others' kernels write what is there anyway."""


@dataclass
class Found(plain.Counts):
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
    programs: Sequence[plain.Program], kernels: set[str], *options: str
) -> tuple[Pairs, Pairs]:
    """Run programs in one process, each launch compared: the pairs that are proven, and all."""
    with plain.driver(), plain.running(programs, *options) as program:
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
    proven, every = accused(programs, plain.WORK)

    def is_true(number: int, pair: tuple[int, int]) -> bool:
        # A pair that the device does not report beside others is asked for alone.
        return plain.is_race(programs[number], *pair)

    return _judged(plain.races(programs), proven, every, is_true)


KERNELS = {"fill", "copy", "add", "put", "get", "seldom", "noise"}


def judge_shared(numbers: Sequence[int], *, careful: bool) -> Found:
    """Judge programs as libraries make them."""
    drawn = [Drawing(number, careful=careful).draw() for number in numbers]
    proven, every = accused([one.steps for one in drawn], KERNELS, "shared")
    return _judged([one.races for one in drawn], proven, every, lambda *_: False)


def judge_joins() -> tuple[int, int, list[str]]:
    """Judge each join of `soak_perturb`, whole and without one of its waits.

    Returns
    -------
    tuple of int, int, list of str
        How many joins lack a wait; of how many exactly that is proven; what was judged wrongly.
    """
    racy, right, wrong = 0, 0, []
    for count, forgotten, program in plain.joins():
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


BATCH = 100


def judged(what: str, count: int, seed: int, judge: Callable[[range], Found]) -> Found:
    found = Found()
    for start in range(0, count, BATCH):
        found += judge(range(seed + start, seed + min(start + BATCH, count)))
    print(f"{what}: {found}", *found.wrong[:20], sep="\n  ", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_races")
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--shared", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-joins", action="store_true")
    asked = parser.parse_args()
    drawn = judged("random", asked.programs, asked.seed, judge_random)
    careful = judged("careful", asked.shared, asked.seed, lambda n: judge_shared(n, careful=True))
    sloppy = judged("sloppy", asked.shared, asked.seed, lambda n: judge_shared(n, careful=False))
    racy, right, joins = (0, 0, []) if asked.no_joins else judge_joins()
    print(f"joins without one of their waits: {right} of {racy} proven", *joins, sep="\n  ")
    wrong = drawn.wrong or careful.wrong or sloppy.wrong or careful.racy or joins
    few = drawn.recall < LEAST["random"] or sloppy.recall < LEAST["shared"]
    sys.exit(bool(wrong or few))


if __name__ == "__main__":
    main()
