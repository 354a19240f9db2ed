"""Random programs: a few streams, a few words of memory, and steps between them."""

from __future__ import annotations

import random
from typing import Any

from cai_bridge.testing import simulated_cuda

STREAMS = ("legacy", "blocking", "first", "second")
WORDS = 3
WORK = {"fill", "copy"}
"""The kinds of steps that are operations."""
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


def is_race(program: Program, first: int, second: int) -> bool:
    """Tell whether two steps race, whatever else does."""
    # What the check says of others may say it of these as well: it leaves that out.
    return bool(races([program], {first, second})[0])


def races(programs: list[Program], only: set[int] | None = None) -> list[set[tuple[int, int]]]:
    """Find races of each, by the happens-before check: pairs of steps, in their order.

    If it is given, only these steps touch the words.
    """
    found = []
    with simulated_cuda(check=False) as cuda:
        streams = [cuda.default_stream(0), cuda.stream("blocking", blocking=True)]
        streams += [cuda.stream(name) for name in STREAMS[2:]]
        for program in programs:
            words = [cuda.array([0], dtype="int64", name=f"word {n}") for n in range(WORDS)]
            kept: list[Any] = []
            before = len(cuda.reports)
            for at, (kind, stream, *rest) in enumerate(program):
                one = streams[stream]
                if only is not None and at not in only and kind in WORK:
                    kept.append(cuda.array([0], dtype="int64"))
                    one.fill(kept[-1], 0, name=str(at))
                elif kind == "fill":
                    one.fill(words[rest[0]], rest[1], name=str(at))
                elif kind == "copy":
                    one.copy(words[rest[0]], words[rest[1]], name=str(at))
                elif kind == "order":
                    streams[rest[0]].wait(one.record())
                else:
                    one.synchronize()
            cuda.synchronize()
            sides = [(one.first, one.second) for one in cuda.reports[before:]]
            found.append({(int(a.operation), int(b.operation)) for a, b in sides if a})
    return found
