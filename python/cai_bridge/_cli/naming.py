"""The two operations that nothing orders, of a program that differs: by a record, or by bisection.

A recorded run finds the pairs that nothing orders. One of which the program differs if it runs the
other way round is the pair. Where no pair does so, as if the host reads too early, the program is
run again and again with less of its work late (`bisecting`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from . import bisecting, finding, perturbed, showing
from .bisecting import UnnamedError
from .perturb_race import Race
from .perturbed import Program, Run
from .races_pair import Pair
from .schedule import Schedule

__all__ = ["UnnamedError", "name"]

_MOST = 6
"""So many pairs are tried: the surest first."""


def name(
    program: Program,
    reference: Run,
    schedules: Sequence[Schedule],
    step: Callable[[str], None],
) -> Race:
    """Find the two operations.

    Parameters
    ----------
    program : Program
        What differs.
    reference : Run
        The serial run.
    schedules : sequence of Schedule
        Those under which it differs.
    step : callable
        Is told what is run next.

    Raises
    ------
    UnnamedError
        The runs do not repeat well enough, or one took too long.
    """
    limited = replace(program, timeout=perturbed.limit(program, reference))
    runs = 0

    def next_run(_: str = "") -> None:
        nonlocal runs
        runs += 1
        step(f"naming it, run {runs}")

    pair, traced = _pair(limited, next_run)
    if pair is not None and traced is not None:
        first, second = pair.first.operation, pair.second.operation
        if first is not None and second is not None:
            late, early = (bisecting.side(traced, one, late=False) for one in (first, second))
            late = replace(late, stream_name=pair.first.stream)
            early = replace(early, stream_name=pair.second.stream)
            return Race(late, early, runs, len(traced.processes))
    race = bisecting.bisect(program, reference, schedules, step)
    return replace(race, runs=race.runs + runs)


def _pair(program: Program, step: Callable[[str], None]) -> tuple[Pair | None, Run | None]:
    """Find a pair of which the program differs if it runs the other way round.

    Returns also a serial run with what its operations are.
    """
    found = finding.find(program, step)
    pairs = [one for one in found.pairs if None not in one.operations][:_MOST]
    if not pairs:
        return None, None
    asked = {str(operation) for one in pairs for operation in one.operations}
    step("serial, written down")
    traced = perturbed.run(program, "serial", trace=1, stacks=",".join(asked))
    for pair in pairs:
        if free := _between(pair, traced):
            (stream,) = {told.stream for told in traced.told(free[0])}
            if showing.shows(program, traced, free, stream, lambda: step("the other way round")):
                return pair, traced
    return None, None


def _between(pair: Pair, traced: Run) -> list[int]:
    """List the operations from the first to the second; none if the numbers are others' here."""
    order = traced.operations
    for side in (pair.first, pair.second):
        told = traced.told(side.operation or 0)
        lines = {
            tuple((file, line) for file, line, *_ in process.stacks.get(side.operation or 0, []))
            for process in traced.processes
        }
        is_same = {one.kernel for one in told} == {side.name} and len(
            {one.stream for one in told}
        ) == 1
        if not is_same or tuple(one[:2] for one in side.stack) not in lines:
            return []
    begin, end = (order.index(one.operation or 0) for one in (pair.first, pair.second))
    return order[begin : end + 1] if begin < end else []
