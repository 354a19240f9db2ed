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
MOST = 20
"""So many suspects are run: those of which one side writes for certain come first."""


def show(program: Program, pairs: list[Pair], step: Callable[[str], None]) -> str:
    """Run each suspect with its first operation late; one that differs is a race.

    The host waits before and behind every operation outside of the stretch from the first one to
    the second, and in it only the first one's stream is late. Returns why none could be run, or "".
    """
    step("serial, to compare with")
    reference = perturbed.run(program, "serial", trace=1)
    step("serial again")
    again = perturbed.run(program, "serial")
    if what := perturbed.difference(reference, again, program.tolerance):
        return f"nothing could be confirmed, as two serial runs differ in {what}"
    order = reference.operations
    limited = replace(program, timeout=perturbed.limit(program, reference))
    tried = 0
    for place, pair in enumerate(pairs):
        first, second = pair.first.operation, pair.second.operation
        if pair.verdict != "suspect" or first is None or second is None or tried == MOST:
            continue
        if first not in order or second not in order:
            continue
        begin, end = sorted((order.index(first), order.index(second)))
        streams = {told.stream for told in reference.told(first)}
        step(f"pair {place + 1} the other way round")
        tried += 1
        if len(streams) == 1 and _shows(limited, reference, order[begin : end + 1], *streams):
            pairs[place] = replace(pair, verdict="race")
    pairs.sort(key=lambda one: ("proven", "race", "suspect").index(one.verdict))
    return ""


def _shows(program: Program, reference: perturbed.Run, free: list[int], stream: int) -> bool:
    """Whether the program differs, and never without either of the two at the ends."""
    return all(_differs(program, reference, free, stream) for _ in range(_RUNS)) and not any(
        _differs(program, reference, shorter, stream)
        for shorter in (free[1:], free[:-1])
        if shorter
    )


def _differs(program: Program, reference: perturbed.Run, free: list[int], stream: int) -> bool:
    run = perturbed.run(
        program, "late", patient=1, free=ranges(free), stream=stream, settled=free[-1]
    )
    return run.status is not None and (
        perturbed.difference(reference, run, program.tolerance) is not None
    )
