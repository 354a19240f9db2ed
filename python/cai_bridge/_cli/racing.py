"""The two operations that nothing orders, found by bisection over runs of the program.

Under a seed in which the program differs, many operations are late. The first bisection finds the
first late one that is enough for the difference. The second runs the program serially from some
operation on: the last one from which on that makes it right again is the one that should have
waited. Then the last operation before that one whose delay matters is looked for on each stream.

A racy program may differ by itself, on a busy GPU often; and where the host is slower than what is
late, it is right by itself. So what is found has to hold in runs that no bisection saw, and where
it does not, each question is asked again, of more runs, in which what is late is later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from . import perturbed
from .perturbed import Program, Run
from .race import Race, Side

_ROUNDS = ((1, 1), (2, 2), (3, 4))
"""In how many runs the program must differ for a yes, and by how many delays what is late is late:
more, if the answers did not hold."""
_DELAYS = 10
"""So many are shared by what is late, if it is less: no host takes so long between two calls."""
_LONGER = 1.0
"""No delay is made longer than that, in seconds."""
_MANY = 100
"""For so many delays more than the program's time a run may take in which all are late."""
_CONFIRMED = 2
"""In how many further runs what was found must hold."""
_PATIENCE = 60, 10
"""After so many seconds, and so many times the program's own, a run is ended, if the user gave no
limit: what makes work late, and asks for stacks, may keep a program waiting for itself."""


class UnnamedError(Exception):
    """The two operations could not be named: the message says why."""


class _Search:
    """Questions about runs, each a run or several."""

    def __init__(self, program: Program, reference: Run, step: Callable[[str], None]) -> None:
        self.program, self.reference, self.step = program, reference, step
        self.runs = 0
        self.seed = 0
        self.late: list[int] = []
        self.votes = 1

    def run(self, *, late: int | None = None, delay: float = 0, **asked: object) -> Run:
        """Run it; tell how much is late, if not all, and by how long: the run takes longer.

        Raises UnnamedError if it takes too long: what it printed until then is no answer.
        """
        self.runs += 1
        self.step(f"naming it, run {self.runs}")
        delay = delay or self.program.delay
        least, times = _PATIENCE
        timeout = self.program.timeout or least + times * self.reference.seconds
        timeout += (late or _MANY) * delay
        program = replace(self.program, delay=delay, timeout=timeout)
        run = perturbed.run(program, "late", seed=self.seed, patient=1, **asked)
        if run.status is None:
            raise UnnamedError(f"run {self.runs} of it was ended after {timeout:.0f} s")
        return run

    def run_with(self, low: int, high: int, **asked: object) -> Run:
        """Run it with only the operations from low to high late: the fewer, the longer each."""
        late = [one for one in self.late if low <= one <= high] or [low]
        own = self.program.delay
        delay = max(own, min(own * _DELAYS / len(late), _LONGER))
        only = ",".join(f"{first}-{last + 1}" for first, last in _by_thread(late))
        return self.run(late=len(late), delay=delay, only=only, **asked)

    def choose(self, seeds: Sequence[int]) -> Run | None:
        """Take a seed under which it differs here too, and what is late; returns the run.

        No wait of the host opens a gate in these runs, and where one waits until all are over the
        program is right. What a library queues from a thread of its own has no line of the program,
        so a seed is taken before others if the main thread's late operations do.
        """
        found = []
        for self.seed in seeds:
            traced = self.run(trace=1)
            self.late = sorted(
                one for one in traced.operations if any(told.late for told in traced.told(one))
            )
            if not self.late or not self.is_other(traced):
                continue
            main = [one for one in self.late if _thread(one) == 0]
            if main and (main == self.late or self.differs(main[0], main[-1])):
                self.late = main
                return traced
            found.append((self.seed, self.late, traced))
        if not found:
            return None
        self.seed, self.late, traced = found[0]
        return traced

    def difference(self, run: Run) -> str | None:
        return perturbed.difference(self.reference, run, self.program.tolerance)

    def is_other(self, run: Run) -> bool:
        return self.difference(run) is not None

    def differs(self, low: int, high: int, **asked: object) -> bool:
        """Whether the program differs if the seed delays only the operations from low to high."""
        return self.differs_in(self.votes, low, high, **asked)

    def what(self, operation: int) -> str | None:
        """Tell in what the program differs if this operation alone is late."""
        return self.difference(self.run_with(operation, operation))

    def differs_by_itself(self, serial: str) -> bool:
        """Whether it may if nothing is late."""
        runs = (self.run(late=1, only="0-0", serial_from=serial) for _ in range(_CONFIRMED))
        return any(map(self.is_other, runs))

    def differs_in(self, runs: int, low: int, high: int, **asked: object) -> bool:
        """Whether it does in so many runs."""
        return all(self.is_other(self.run_with(low, high, **asked)) for _ in range(runs))


def first(count: int, holds: Callable[[int], bool]) -> int:
    """Find the smallest number from 1 to `count` that holds, if all from some number on do."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def name(
    program: Program, reference: Run, seeds: Sequence[int], step: Callable[[str], None]
) -> Race:
    """Find the two operations.

    Parameters
    ----------
    program : Program
        What differs.
    reference : Run
        The serial run.
    seeds : sequence of int
        The seeds under which it differs.
    step : callable
        Is told what is run next.

    Raises
    ------
    UnnamedError
        The runs do not repeat well enough, or one took too long.
    """
    search = _Search(program, reference, step)
    for search.votes, times in _ROUNDS:
        search.program = replace(program, delay=program.delay * times)
        if (traced := search.choose(seeds)) and (found := _search(search, traced)):
            return found
    raise UnnamedError("on an idle machine its runs may be more alike")


def _search(search: _Search, traced: Run) -> Race | None:
    late = search.late
    high = first(len(late), lambda n: search.differs(late[0], late[n - 1])) - 1
    low = high
    if not search.differs(late[high], late[high]):
        low = high - first(high, lambda n: search.differs(late[high - n], late[high]))
    ends = late[low], late[high]
    if not search.differs(*ends):
        return None
    ranges = _by_thread(late[low : high + 1])
    rest = [
        one for one in traced.operations if not any(begin <= one <= end for begin, end in ranges)
    ]
    other = _early(search, ends, rest)
    # On one stream the second waits for the first: waiting there only helped the host.
    is_host = other is None or _streams(traced, other) == _streams(traced, late[high])
    if not _holds(search, ends, rest, other, is_host=is_host):
        return None
    if is_host:
        other = None
    if low == high:
        ends = (_last(search, traced, late[low], other),) * 2
        if ends[0] != late[low] and not search.differs_in(_CONFIRMED, *ends):
            return None
    asked = [ends[1]] if other is None else [ends[1], other]
    stacks = ",".join(map(str, asked))
    run = search.run_with(*ends, trace=1, stacks=stacks)
    # Taking a stack takes longer than a gate is closed, so this run need not differ.
    if any(_kernels(run, one) != _kernels(traced, one) for one in asked):
        return None
    late_side = _side(run, ends[1], late=True)
    early_side = None if other is None else _side(run, other, late=False)
    if late_side is None or (early_side is None) != (other is None):
        return None
    return Race(late_side, early_side, search.runs, len(run.processes))


def _last(search: _Search, traced: Run, late: int, early: int | None) -> int:
    """Find the last operation before the early one whose delay alone makes the program differ.

    What is late holds up all that is behind it, on its stream and on those that wait for that one.
    So the first that was found may only come before the one that races. Behind that one no delay
    matters on its stream; on another, the last that matters is as near or nearer. All behind the
    early one are serial, or a later round would differ. If the host is early, the last is asked for
    under which it reads the same wrong values.
    """
    order = traced.operations
    end = len(order) if early is None else order.index(early)
    between, serial = order[order.index(late) : end], _serial(order[end + 1 :])
    streams: dict[int, list[int]] = {}
    for one in between:
        for told in traced.told(one):
            streams.setdefault(told.stream, []).append(one)
    own = {told.stream for told in traced.told(late if early is None else early)}
    what = search.what(late) if early is None else None
    known = found = late, search.seed
    for stream, operations in streams.items():
        if (stream in own) == (early is not None):
            continue
        # Seed 0 delays the streams of odd index, and seed 1 the others (perturb/src/design.rs).
        search.seed = 1 - stream % 2

        def matters(n: int, of: Sequence[int] = operations) -> bool:
            if early is None:
                return search.what(of[n]) == what
            return search.differs(of[n], of[n], serial_from=serial)

        if operations[0] == late or matters(0):
            last = operations[first(len(operations), lambda n: not matters(n)) - 1]
            if order.index(last) > order.index(found[0]):
                found = last, search.seed
    # What differs by itself says yes to anything.
    if found != known and search.differs_by_itself(serial):
        found = known
    operation, search.seed = found
    return operation


def _thread(operation: int) -> int:
    """Tell an operation's thread; 0 called the driver first, and is most often the main one.

    A number is the thread's and a count of 40 bits (perturb/src/launch.rs).
    """
    return operation >> 40


def _by_thread(operations: Sequence[int]) -> list[tuple[int, int]]:
    """Find the first and the last of these of each thread."""
    ends: dict[int, tuple[int, int]] = {}
    for one in sorted(operations):
        ends[_thread(one)] = ends.get(_thread(one), (one, one))[0], one
    return list(ends.values())


def _serial(operations: Sequence[int]) -> str:
    """Ask for a run in which each of these threads is serial from its first one of these on."""
    firsts: dict[int, int] = {}
    for one in operations:
        firsts.setdefault(_thread(one), one)
    return ",".join(map(str, firsts.values()))


def _early(search: _Search, ends: tuple[int, int], rest: Sequence[int]) -> int | None:
    """Find the last operation from which on a serial run makes the program right again.

    The last in time, over all threads: a thread that is held up earlier may hold up others.
    None if that does not help: then it is the host that is early.
    """

    def still(n: int) -> bool:
        return n >= len(rest) or search.differs(*ends, serial_from=_serial(rest[n:]))

    return None if not rest or still(0) else rest[first(len(rest), still) - 1]


def _holds(
    search: _Search,
    ends: tuple[int, int],
    rest: Sequence[int],
    other: int | None,
    *,
    is_host: bool,
) -> bool:
    """Whether what was found is so as often as the program is run.

    It differs where only those of `rest` behind `other` are serial; where nobody is early, all of
    them. Where they are serial from `other` on it does not, or not always, as it may differ by
    itself; the host is named only if it never does.
    """
    at = -1 if other is None else rest.index(other)
    if not search.differs_in(_CONFIRMED, *ends, serial_from=_serial(rest[at + 1 :])):
        return False
    if other is None:
        return True
    helps = (
        not search.differs_in(1, *ends, serial_from=_serial(rest[at:])) for _ in range(_CONFIRMED)
    )
    return all(helps) if is_host else any(helps)


def _streams(run: Run, operation: int) -> set[int]:
    return {told.stream for told in run.told(operation)}


def _kernels(run: Run, operation: int) -> set[tuple[str, str]]:
    return {(told.function, told.kernel) for told in run.told(operation)}


def _side(run: Run, operation: int, *, late: bool) -> Side | None:
    """Tell what an operation is, in each process that has it; of the late one, has it late."""
    sides: list[Side] = []
    for process in run.processes:
        told = process.traced.get(operation)
        if told and (told.late or not late):
            stack = process.stacks.get(operation, [])
            side = Side(operation, told.stream, told.function, told.kernel, stack)
            if side not in sides:
                sides.append(side)
    return replace(sides[0], others=sides[1:]) if sides else None
