"""Random programs: a few streams, a few words of memory, and steps between them."""

from __future__ import annotations

import random
from typing import Any

from cai_bridge.testing import simulated_cuda

STREAMS = ("legacy", "blocking", "first", "second")
WORDS = 3
Program = list[list[Any]]


def draw(seed: int) -> Program:
    """Draw a program: fills, copies, waits between streams, and waits of the host."""
    choice = random.Random(seed)
    steps: Program = []
    # Few waits make a race likely, many make it unlikely: both are wanted.
    waits = choice.choice((1, 4, 12))
    for number in range(choice.randint(4, 14)):
        kind = choice.choices(("fill", "copy", "order", "sync"), (4, 4, waits, 1))[0]
        stream, other = choice.sample(range(len(STREAMS)), 2)
        if kind == "fill":
            steps.append([kind, stream, choice.randrange(WORDS), seed * 100 + number + 1])
        elif kind == "copy":
            steps.append([kind, stream, *choice.sample(range(WORDS), 2)])
        elif kind == "order":
            steps.append([kind, stream, other])
        else:
            steps.append([kind, stream])
    return steps


def racy(programs: list[Program]) -> list[bool]:
    """Tell which of them the happens-before check finds a race in."""
    found = []
    with simulated_cuda(check=False) as cuda:
        streams = [cuda.default_stream(0), cuda.stream("blocking", blocking=True)]
        streams += [cuda.stream(name) for name in STREAMS[2:]]
        for program in programs:
            words = [cuda.array([0], dtype="int64", name=f"word {n}") for n in range(WORDS)]
            before = len(cuda.reports)
            for kind, stream, *rest in program:
                one = streams[stream]
                if kind == "fill":
                    one.fill(words[rest[0]], rest[1])
                elif kind == "copy":
                    one.copy(words[rest[0]], words[rest[1]])
                elif kind == "order":
                    streams[rest[0]].wait(one.record())
                else:
                    one.synchronize()
            cuda.synchronize()
            found.append(len(cuda.reports) > before)
    return found
