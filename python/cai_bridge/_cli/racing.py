"""The two operations that nothing orders, found by bisection over runs of the program.

Under a seed in which the program differs, many operations are late. The first bisection finds the
late one that the difference needs. The second runs the program serially from some operation on: the
last one from which on that makes it right again is the one that should have waited.

A racy program may differ by itself, on a busy GPU often; and where the host is slower than what is
late, it is right by itself. So what is found has to hold in runs that no bisection saw, and where
it does not, each question is asked again, of more runs, in which what is late is later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from . import perturbed
from .perturbed import Program, Run

_ROUNDS = ((1, 1), (2, 2), (3, 4))
"""In how many runs the program must differ for a yes, and by how many delays what is late is late:
more, if the answers did not hold."""
_DELAYS = 10
"""So many are shared by what is late, if it is less: no host takes so long between two calls."""
_LONGER = 1.0
"""No delay is made longer than that, in seconds."""
_CONFIRMED = 2
"""In how many further runs what was found must hold."""
_FRAMES = 3
"""How many frames of a stack are shown."""
_HAND_OVERS = {
    "from_dlpack(": "DLPack",
    "__dlpack__(": "DLPack",
    "cupy.asarray(": "CAI",
    "cp.asarray(": "CAI",
    "cupy.array(": "CAI",
    "jnp.asarray(": "CAI",
    "torch.as_tensor(": "CAI",
    "torch.asarray(": "CAI",
    "as_cuda_array(": "CAI",
    "__cuda_array_interface__": "CAI",
}


@dataclass(frozen=True)
class Side:
    """One of the two operations."""

    operation: int
    """Its number."""
    stream: int
    """The index of its stream, in the order in which streams were first used."""
    function: str
    """The driver's function."""
    kernel: str
    """The kernel, or the function once more."""
    stack: list[list[Any]]
    """The Python frames, outermost first: file, line, function, source."""
    others: list[Side] = field(default_factory=list)
    """The same operation of other processes, where it is another one: it may be one of these."""

    @property
    def frames(self) -> list[list[Any]]:
        """The frames that are not of installed packages, innermost first."""
        own = [one for one in self.stack if "site-packages" not in one[0] and one[0] != "<string>"]
        return (own or self.stack)[::-1]

    def __str__(self) -> str:
        lines = [f"{self.kernel[:120]} on stream {self.stream}"]
        for path, number, function, source in self.frames[:_FRAMES]:
            lines.append(f"    {path}:{number} in {function}: {source or ''}")
        if not self.frames:
            lines.append("    no Python frame: a library's own thread queued it")
        lines += [f"or, in another process: {one}" for one in self.others]
        return "\n    ".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Give it as data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Race:
    """Two operations that nothing orders."""

    late: Side
    """The one that was late."""
    early: Side | None
    """The one that did not wait for it; None if that was the host, with its own reads or writes."""
    runs: int
    """How many runs it took to find them."""

    def hand_over(self) -> tuple[str, str] | None:
        """Find a call between the two lines that hands an array over, and its protocol."""
        if self.early is None or self.late.others or self.early.others:
            return None
        there = {one[0]: one[1] for one in reversed(self.early.frames)}
        for path, line, *_ in self.late.frames:
            if path in there and (found := _handed_over(path, *sorted((line, there[path])))):
                return found
        return None

    def advice(self) -> str:
        """Say what to write instead."""
        if found := self.hand_over():
            source, protocol = found
            return (
                f"between them: {source}\n"
                f"    an array is handed over by {protocol}, and nobody waits: use "
                "cai_bridge.convert(x, library), which waits there and at the end"
            )
        if self.early is None:
            return "the host did not wait: synchronize the stream, or an event behind the work"
        return (
            "make the second stream wait: torch's wait_stream and record_stream, CuPy's "
            "wait_event, or cai_bridge.convert where an array goes to another library"
        )

    def to_dict(self) -> dict[str, Any]:
        """Give it as data for JSON."""
        return {
            "late": self.late.to_dict(),
            "early": self.early and self.early.to_dict(),
            "advice": self.advice(),
            "runs": self.runs,
        }

    def __str__(self) -> str:
        early = self.early or "the host, which reads or writes without waiting"
        return (
            f"  late:  {self.late}\n  early: {early}\n  {self.advice()}\n"
            f"  (named by {self.runs} runs)"
        )


def _handed_over(path: str, first: int, last: int) -> tuple[str, str] | None:
    """Find the first hand-over in these lines of a file."""
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return None
    for text in lines[first - 1 : last]:
        for call, protocol in _HAND_OVERS.items():
            if call in text:
                return text.strip(), protocol
    return None


class _Search:
    """Questions about runs, each a run or several."""

    def __init__(self, program: Program, reference: Run, step: Callable[[str], None]) -> None:
        self.program, self.reference, self.step = program, reference, step
        self.runs = 0
        self.seed = 0
        self.late: list[int] = []
        self.votes = 1

    def run(self, **asked: object) -> Run:
        self.runs += 1
        self.step(f"naming it, run {self.runs}")
        return perturbed.run(self.program, "late", seed=self.seed, patient=1, **asked)

    def run_with(self, low: int, high: int, **asked: object) -> Run:
        """Run it with only the operations from low to high late: the fewer, the longer each."""
        few = sum(low <= one <= high for one in self.late)
        own = self.program.delay
        delay = max(own, min(own * _DELAYS / few, _LONGER))
        return self.run(only=f"{low}-{high + 1}", delay_us=round(delay * 1e6), **asked)

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

    def is_other(self, run: Run) -> bool:
        tolerance = self.program.tolerance
        return perturbed.difference(self.reference, run, tolerance) is not None

    def differs(self, low: int, high: int, **asked: object) -> bool:
        """Whether the program differs if the seed delays only the operations from low to high."""
        return self.differs_in(self.votes, low, high, **asked)

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
) -> Race | None:
    """Find the two operations; None if the runs do not repeat well enough.

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
    """
    search = _Search(program, reference, step)
    for search.votes, times in _ROUNDS:
        search.program = replace(program, delay=program.delay * times)
        if (traced := search.choose(seeds)) and (found := _search(search, traced)):
            return found
    return None


def _search(search: _Search, traced: Run) -> Race | None:
    late = search.late
    high = first(len(late), lambda n: search.differs(late[0], late[n - 1])) - 1
    low = high
    if not search.differs(late[high], late[high]):
        low = high - first(high, lambda n: search.differs(late[high - n], late[high]))
    ends = late[low], late[high]
    if not search.differs(*ends):
        return None
    rest = [one for one in traced.operations if not ends[0] <= one <= ends[1]]
    other = _early(search, ends, rest)
    # On one stream the second waits for the first: waiting there only helped the host.
    is_host = other is None or _streams(traced, other) == _streams(traced, late[high])
    if not _holds(search, ends, rest, other, is_host=is_host):
        return None
    if is_host:
        other = None
    asked = [late[high]] if other is None else [late[high], other]
    stacks = ",".join(map(str, asked))
    run = search.run_with(*ends, trace=1, stacks=stacks)
    # Taking a stack takes longer than a gate is closed, so this run need not differ.
    if any(_kernels(run, one) != _kernels(traced, one) for one in asked):
        return None
    late_side = _side(run, late[high], late=True)
    early_side = None if other is None else _side(run, other, late=False)
    if late_side is None or (early_side is None) != (other is None):
        return None
    return Race(late_side, early_side, search.runs)


def _thread(operation: int) -> int:
    """Tell an operation's thread; 0 called the driver first, and is most often the main one."""
    return operation >> 40


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
