"""Whether a pair that nothing orders shows in what the program prints, run the other way round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from . import perturbed
from .perturbed import Program, Run
from .races_pair import Pair
from .schedule import ranges

_RUNS = 2
"""In so many runs the program must differ."""
_DELAYS = 10
"""So many delays are shared by what is late."""
_LONGER = 1.0
"""No delay is made longer than that, in seconds."""
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
        free = order[begin : end + 1]
        if len(streams) == 1 and shows(limited, reference, free, streams.pop(), lambda: None):
            pairs[place] = replace(pair, verdict="race")
    pairs.sort(key=lambda one: ("proven", "race", "suspect").index(one.verdict))
    return ""


def shows(
    program: Program, reference: Run, free: list[int], stream: int, step: Callable[[], None]
) -> bool:
    """Whether the program differs, and never without either of the two at the ends.

    Parameters
    ----------
    program : Program
        What to run.
    reference : Run
        A serial run, of which each operation was written down.
    free : list of int
        The operations from the one to the other. The host waits around each other one.
    stream : int
        The index of the one stream that is late.
    step : callable
        Is called before each run.
    """
    late = sum(any(told.stream == stream for told in reference.told(one)) for one in free)
    # The fewer are late, the longer: the host may be slow between the two.
    delay = max(program.delay, min(program.delay * _DELAYS / max(late, 1), _LONGER))
    longer = replace(program, delay=delay)

    def differs(free: list[int]) -> bool:
        step()
        run = perturbed.run(
            longer, "late", patient=1, free=ranges(free), stream=stream, settled=free[-1]
        )
        return run.status is not None and (
            perturbed.difference(reference, run, program.tolerance) is not None
        )

    return all(differs(free) for _ in range(_RUNS)) and not any(
        differs(shorter) for shorter in (free[1:], free[:-1]) if shorter
    )
