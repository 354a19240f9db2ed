"""Which work is late in a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .perturbed import Run

_MOST = 12
"""The seeds of the covering design for 64 streams."""


@dataclass(frozen=True)
class Schedule:
    """What is late in a run: the streams of a seed, or one stream alone."""

    seed: int | None = None
    """The seed: each delays other streams."""
    stream: int | None = None
    """The index of the one stream whose work is late."""
    free: tuple[int, ...] = ()
    """The operations that may be late, in the order of their launches: those behind an operation of
    the stream. The host waits around each one before. Empty: all may be late."""

    def asked(self) -> dict[str, object]:
        """Give what the library reads of the environment."""
        said: dict[str, object] = {"seed": self.seed, "stream": self.stream}
        if self.free:
            said["free"] = ranges(self.free)
        return {name: one for name, one in said.items() if one is not None}

    def __str__(self) -> str:
        if self.stream is None:
            return f"seed {self.seed}"
        return f"stream {self.stream} from {self.free[0]}" if self.free else f"stream {self.stream}"


def covering(streams: int) -> int:
    """Tell how many seeds delay each of so many streams against each other one."""
    return min(_MOST, max(2, 2 * math.ceil(math.log2(max(streams, 2)))))


def chosen(streams: int, seeds: int | None) -> list[Schedule]:
    """Choose the runs for a program that uses so many streams at a time.

    Parameters
    ----------
    streams : int
        How many streams the program uses.
    seeds : int or None
        How many seeds to take. None: those that cover the streams, and then each stream alone, as
        one late stream of a seed may hold up the work that should have waited for another one. Of
        two streams the seeds are that already.
    """
    several = [Schedule(seed=seed) for seed in range(covering(streams) if seeds is None else seeds)]
    if seeds is None and streams > 2:
        several += [Schedule(stream=stream) for stream in range(streams)]
    return several


def begun(run: Run) -> list[Schedule]:
    """Choose runs in which a stream is late from the middle of its work on.

    A stream that writes memory, reads it and lets go of it hides the next user's early write if its
    own write is late as well.

    Parameters
    ----------
    run : Run
        A run of which each operation was written down.
    """
    order = run.operations
    places: dict[int, list[int]] = {}
    for place, operation in enumerate(order):
        for told in run.told(operation):
            places.setdefault(told.stream, []).append(place)
    found: dict[tuple[int, int], Schedule] = {}
    for stream, at in sorted(places.items()):
        # Two, as programs alternate between writes and reads.
        for middle in (len(at) // 2, len(at) // 2 + 1):
            if 0 < middle < len(at):
                free = tuple(order[at[middle] :])
                found[stream, at[middle]] = Schedule(stream=stream, free=free)
    return list(found.values())


def thread(operation: int) -> int:
    """Tell an operation's thread, which its number begins with (perturb/src/numbers.rs)."""
    return operation >> 40


def ranges(operations: Sequence[int]) -> str:
    """Write the first and the last of these of each thread, as the library reads it."""
    ends: dict[int, tuple[int, int]] = {}
    for one in sorted(operations):
        ends[thread(one)] = ends.get(thread(one), (one, one))[0], one
    return ",".join(f"{first}-{last + 1}" for first, last in ends.values())
