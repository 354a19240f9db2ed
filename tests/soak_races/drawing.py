"""Programs as libraries make them, with what is true of each.

Several streams read the same weights and update in place; two take a half of a buffer each, by an
address or by an offset; an allocator gives blocks out again; some kernels write seldom. The truth
is clocks over the words that each step reads and writes. A careful program has each wait that it
needs; a sloppy one lacks some.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

STREAMS = 3
LENGTH = 40
BLOCK = 4
"""Words of a block."""
BLOCKS = 24
Touches = list[tuple[int, str]]
"""Words, and `r` or `w`."""


@dataclass
class Drawn:
    """A program: its steps, and the pairs of steps that race."""

    steps: list[list[Any]] = field(default_factory=list)
    races: set[tuple[int, int]] = field(default_factory=set)


class _Drawing:
    def __init__(self, seed: int, *, careful: bool) -> None:
        self.choice = random.Random(seed * 2 + careful)
        self.skip = 0.0 if careful else self.choice.choice((0.05, 0.2, 0.5))
        self.drawn = Drawn()
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
        at = len(self.drawn.steps)
        self.drawn.steps.append([kind, stream, *arguments])
        clock[stream] += 1
        for word, how in touches:
            seen = self.seen.setdefault(word, [])
            for older, other, number, old in seen:
                if older != at and clock[other] < number and "w" in (how, old):
                    self.drawn.races.add((older, at))
            seen.append((at, stream, clock[stream], how))

    def order(self, first: int, second: int) -> None:
        self.drawn.steps.append(["order", first, second])
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

    def draw(self) -> Drawn:
        weights = [self.new() for _ in range(2)]
        for one in weights:
            self.step("fill", 0, [self.word(one), self.value()], [(self.word(one), "w")])
        while len(self.drawn.steps) < LENGTH:
            self.one(weights)
        return self.drawn

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
                self.drawn.steps.append(["sync", stream])
                for clock in self.clocks:
                    clock[:] = map(max, clock, self.clocks[stream])
                if len(self.live) > 4:
                    self.free.append(self.live.pop(choice.randrange(len(self.live))))


def draw(seed: int, *, careful: bool) -> Drawn:
    """Draw a program."""
    return _Drawing(seed, careful=careful).draw()
