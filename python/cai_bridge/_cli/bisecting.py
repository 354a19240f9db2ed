"""The two operations that nothing orders, found by bisection over runs of the program.

Each question is of a window: a stretch of the operations in the order of their launches. In the
window some streams are late; before and behind each operation outside it the host waits until
everything is over, so nothing there races. The shortest window from the start that differs ends
with the operation that should have waited, or the host reads too early behind it. The shortest one
that ends there and differs begins with what it should have waited for.

A racy program may differ by itself, on a busy GPU often; and where the host is slower than what is
late, it is right by itself. So what is found has to hold in runs that no bisection saw, and where
it does not, each question is asked again, of more runs, in which what is late is later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from . import perturbed
from .perturb_race import Race, Side
from .perturbed import Program, Run
from .schedule import Schedule, ranges, thread

_ROUNDS = ((1, 1), (2, 2), (3, 4))
"""In how many runs the program must differ for a yes, and by how many delays what is late is late:
more, if the answers did not hold."""
_SCHEDULES = 2
"""Under so many schedules the two are looked for, if they are not found or have no Python lines."""
_DELAYS = 10
"""So many are shared by what is late, if it is less: no host takes so long between two calls."""
_LONGER = 1.0
"""No delay is made longer than that, in seconds."""
_APART = 0.0002
"""What is late on two streams is so many seconds apart at least; more, as long as a run does not
take twice its time for that."""
_SHORTENED = 2
"""So often a window is shortened: one race may hide another one in the longer window."""
_CONFIRMED = 2
"""In how many further runs what was found must hold."""


class UnnamedError(Exception):
    """The two operations could not be named: the message says why."""


class _Window(NamedTuple):
    """A stretch of operations, and what is late in it."""

    begin: int
    end: int
    settled: bool = False
    """Whether the host waits behind the last one as well, until everything is over."""
    stream: int | None = None
    """The one stream that is late, and not those of the schedule."""


class _Search:
    """Questions about runs, each a run or several, under one schedule."""

    def __init__(
        self,
        program: Program,
        reference: Run,
        schedule: Schedule,
        step: Callable[[str], None],
        runs: int,
    ) -> None:
        self.program, self.reference, self.schedule, self.step = program, reference, schedule, step
        self.runs = runs
        self.votes = 1
        self.traced = self._run(reference.counts["seen"], trace=1)
        self.order = self.traced.operations
        begin = schedule.free[0] if schedule.free else None
        self.begin = self.order.index(begin) if begin in self.order else 0

    def _run(self, late: int, **asked: object) -> Run:
        """Run it, with so many operations late: the fewer, the longer each.

        Raises UnnamedError if it takes too long: what it printed until then is no answer.
        """
        self.runs += 1
        self.step(f"naming it, run {self.runs}")
        own = self.program.delay
        delay = max(own, min(own * _DELAYS / max(late, 1), _LONGER))
        apart = min(delay / 8, max(_APART, max(1, self.reference.seconds) / max(late, 1)))
        timeout = perturbed.limit(self.program, self.reference) + max(late, _DELAYS) * delay
        asked = self.schedule.asked() | asked | {"apart_us": round(apart * 1e6)}
        program = replace(self.program, delay=delay, timeout=timeout)
        run = perturbed.run(program, "late", patient=1, **asked)
        if run.status is None:
            raise UnnamedError(f"run {self.runs} of it was ended after {timeout:.0f} s")
        return run

    def run(self, window: _Window, **asked: object) -> Run:
        """Run it with only a window's operations free: the fewer are late, the longer each."""
        free = self.order[window.begin : window.end]
        if window.settled:
            asked["settled"] = free[-1]
        if window.stream is not None:
            asked["stream"] = window.stream
        late = sum(self.is_late(one, window.stream) for one in free)
        return self._run(late, free=ranges(free), **asked)

    def is_late(self, operation: int, stream: int | None) -> bool:
        """Whether it is late if the schedule says so, or if one stream is."""
        told = self.traced.told(operation)
        return any(one.late if stream is None else one.stream == stream for one in told)

    def streams(self, operation: int) -> set[int]:
        return {told.stream for told in self.traced.told(operation)}

    def is_other(self, run: Run) -> bool:
        return perturbed.difference(self.reference, run, self.program.tolerance) is not None

    def differs(self, window: _Window, runs: int | None = None) -> bool:
        """Whether the program differs, in each of so many runs; by default as this round asks."""
        return all(self.is_other(self.run(window)) for _ in range(runs or self.votes))


def first(count: int, holds: Callable[[int], bool]) -> int:
    """Find the smallest number from 1 to `count` that holds, if all from some number on do."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def bisect(
    program: Program,
    reference: Run,
    schedules: Sequence[Schedule],
    step: Callable[[str], None],
) -> Race:
    """Find the two operations by further runs alone; the rest is as for `naming.name`."""
    runs, found = 0, None
    threads: set[int] = set()
    for votes, times in _ROUNDS:
        longer = replace(program, delay=program.delay * times)
        searched = 0
        for schedule in schedules:
            search = _Search(longer, reference, schedule, step, runs)
            threads.update(map(thread, search.order))
            # No wait of the host opens a gate here, and where one waits until all are over the
            # program is right.
            if search.order and search.is_other(search.traced):
                search.votes, searched = votes, searched + 1
                one = _search(search)
                found = found or one
                # What a library queues from a thread of its own has no line of the program.
                if one and one.late.stack and (one.early is None or one.early.stack):
                    return one
            runs = search.runs
            if searched == _SCHEDULES:
                break
        if found:
            return found
    unlike = "its runs are not alike"
    if len(threads) > 1:
        unlike += ", maybe as its threads come to the GPU in another order each time"
    raise UnnamedError(
        f"{unlike}; or the delay of one always delays the other; an idle machine or --seeds 20 "
        "may help"
    )


def _search(search: _Search) -> Race | None:
    begin, end = search.begin, len(search.order)
    for _ in range(_SHORTENED):
        shortest = _shortest(search, begin, end)
        window = _held_up(search, shortest)
        if _holds(search, window):
            break
        begin, end = shortest.begin, shortest.end
    else:
        return None
    late = search.order[window.begin]
    # What differs though it is not late does so by itself: another schedule tells more.
    if not search.is_late(late, window.stream):
        return None
    early = search.order[window.end - 1] if window.settled else None
    asked = [late] if early is None else [late, early]
    stacks = ",".join(map(str, asked))
    # Taking a stack takes longer than a gate is closed, so these runs need not differ.
    run, again = (search.run(window, trace=1, stacks=stacks) for _ in range(2))
    # In a run that did something else before, a number is another operation's.
    threads = set(map(thread, asked))
    for one in search.order[: window.end]:
        kernels = _kernels(search.traced, one)
        if thread(one) in threads and not kernels == _kernels(run, one) == _kernels(again, one):
            return None
    if any(_lines(run, one) != _lines(again, one) for one in asked):
        return None
    early_side = None if early is None else side(run, early, late=False)
    return Race(side(run, late, late=True), early_side, search.runs, len(run.processes))


def _shortest(search: _Search, begin: int, end: int) -> _Window:
    """Find the window that differs: the shortest from its begin, then the shortest to that end."""
    end = begin + first(end - begin, lambda n: search.differs(_Window(begin, begin + n)))
    # If a wait behind the last operation helps, it is the host that is early.
    settled = search.differs(_Window(begin, end, settled=True))
    size = first(end - begin, lambda n: search.differs(_Window(end - n, end, settled)))
    return _Window(end - size, end, settled)


def _held_up(search: _Search, window: _Window) -> _Window:
    """Find what races if the operation that is late only holds that one up, on another stream.

    On its own stream nothing behind it matters, or the window would have begun there. So each other
    one is asked: the last operation whose delay alone makes the program differ.
    """
    order = search.order
    apart = search.streams(order[window.begin])
    if window.settled:
        apart |= search.streams(order[window.end - 1])
    places: dict[int, list[int]] = {}
    for place in range(window.begin + 1, window.end):
        for stream in search.streams(order[place]) - apart:
            places.setdefault(stream, []).append(place)
    found = window
    for stream, at in places.items():
        if at[-1] < found.begin or search.is_late(order[at[0]], None):
            continue

        def differs(n: int, at: Sequence[int] = at, stream: int = stream) -> bool:
            return search.differs(window._replace(begin=at[-n], stream=stream))

        if differs(len(at)):
            begin = at[-first(len(at), differs)]
            if begin > found.begin:
                found = window._replace(begin=begin, stream=stream)
    return found


def _holds(search: _Search, window: _Window) -> bool:
    """Whether what was found is so as often as the program is run.

    It differs with both in the window, and never with one.
    """
    shorter = [window._replace(begin=window.begin + 1)]
    # A wait before the last one, or behind it, if it is the host that is early.
    end = window.end - 1 if window.settled else window.end
    shorter.append(window._replace(end=end, settled=not window.settled))
    differs = partial(search.differs, runs=1)
    return search.differs(window, _CONFIRMED) and not any(
        differs(one) for one in shorter if one.begin < one.end
    )


def _kernels(run: Run, operation: int) -> set[tuple[str, str]]:
    return {(told.function, told.kernel) for told in run.told(operation)}


def _lines(run: Run, operation: int) -> set[tuple[tuple[object, ...], ...]]:
    """Find where the program queued it, in each process."""
    stacks = [process.stacks.get(operation, []) for process in run.processes]
    return {tuple(tuple(frame[:3]) for frame in stack) for stack in stacks}


def side(run: Run, operation: int, *, late: bool) -> Side:
    """Tell what an operation is, in each process that has it; of the late one, has it late."""
    having = [one for one in run.processes if operation in one.traced]
    if late:
        having = [one for one in having if one.traced[operation].late] or having
    sides: list[Side] = []
    for process in having:
        told = process.traced[operation]
        stack = process.stacks.get(operation, [])
        alike = [
            number
            for number, one in process.traced.items()
            if (one.stream, one.kernel) == (told.stream, told.kernel)
        ]
        place = alike.index(operation) + 1, len(alike)
        what = told.stream, told.stream_name, told.function, told.kernel
        side = Side(operation, *what, stack, *place)
        if side not in sides:
            sides.append(side)
    return replace(sides[0], others=sides[1:])
