"""Whether a pair that nothing orders shows in what the program prints, run the other way round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from . import perturbed
from .pair import Pair
from .perturbed import Program
from .schedule import ranges

_RUNS = 2
"""In so many runs the program must differ."""


def show(program: Program, pairs: list[Pair], step: Callable[[str], None]) -> None:
    """Run each suspect with its first operation late; one that differs is a race.

    The host waits before and behind every operation outside of the stretch from the first one to
    the second, and in it only the first one's stream is late.
    """
    step("serial, to compare with")
    reference = perturbed.run(program, "serial", trace=1)
    step("serial again")
    again = perturbed.run(program, "serial")
    if reference.status is None or perturbed.difference(reference, again, program.tolerance):
        return
    order = reference.operations
    limited = replace(program, timeout=perturbed.limit(program, reference))
    for place, pair in enumerate(pairs):
        first, second = pair.first.operation, pair.second.operation
        if pair.verdict != "suspect" or first is None or second is None:
            continue
        if first not in order or second not in order:
            continue
        begin, end = sorted((order.index(first), order.index(second)))
        streams = {told.stream for told in reference.told(first)}
        step(f"pair {place + 1} the other way round")
        if len(streams) == 1 and all(
            _differs(limited, reference, order[begin : end + 1], *streams) for _ in range(_RUNS)
        ):
            pairs[place] = replace(pair, verdict="race")
    pairs.sort(key=lambda one: ("proven", "race", "suspect").index(one.verdict))


def _differs(program: Program, reference: perturbed.Run, free: list[int], stream: int) -> bool:
    run = perturbed.run(
        program, "late", patient=1, free=ranges(free), stream=stream, settled=free[-1]
    )
    return run.status is not None and (
        perturbed.difference(reference, run, program.tolerance) is not None
    )
