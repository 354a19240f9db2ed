"""What the discipline keeps account of: blocks of memory, who has a handle, and what goes back.

Threads run side by side, so each moment is a clock: one number a thread. A step counts its thread's
number up; `Meet` takes the larger of two clocks. An earlier step is over for certain only if its
clock is before that of the later one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..program import Lacking
from ..steps import OF_STREAM, ORDERED_BY_LEGACY

Clock = tuple[int, ...]


class Unmet(Lacking):
    """Another thread has to get somewhere first: the two have to meet."""

    def __init__(self, other: int) -> None:
        super().__init__(f"thread {other} may not be there yet")
        self.other = other


def is_before(first: Clock, then: Clock) -> bool:
    return all(map(int.__le__, first, then))


def join(*clocks: Clock) -> Clock:
    return tuple(map(max, *clocks)) if len(clocks) > 1 else clocks[0]


def after(first: Clock, now: Clock) -> None:
    """Refuse unless that is over by now."""
    for thread, (made, known) in enumerate(zip(first, now, strict=True)):
        if made > known:
            raise Unmet(thread)


class Knowledge:
    """The accesses that work comes after, each with the moments from which on that holds."""

    def __init__(self) -> None:
        self._moments: dict[int, tuple[Clock, ...]] = {}

    def __contains__(self, access: int) -> bool:
        return access in self._moments

    def add(self, access: int, moment: Clock) -> None:
        known = self._moments.get(access, ())
        if not any(is_before(one, moment) for one in known):
            self._moments[access] = (*known, moment)

    def holds(self, access: int, now: Clock) -> bool:
        return any(is_before(one, now) for one in self._moments.get(access, ()))

    def nearest(self, access: int, now: Clock) -> Clock:
        """Tell the moment from which on this holds that lacks least."""

        def lacking(moment: Clock) -> int:
            return sum(made > known for made, known in zip(moment, now, strict=True))

        return min(self._moments[access], key=lacking)

    def learn(self, other: Knowledge, at: Clock) -> None:
        """Come after all that something else comes after, from a moment on."""
        for access, moments in other._moments.items():
            for moment in moments:
                self.add(access, join(moment, at))

    def passed_on(self, now: Clock) -> Knowledge:
        """Tell what somebody comes after who takes over now."""
        made = Knowledge()
        for access in self._moments:
            if self.holds(access, now):
                made.add(access, now)
        return made


@dataclass(eq=False)
class Access:
    """A read or a write, the moment it was queued, and those at which the host knew it done."""

    write: bool
    queued: Clock
    done: list[Clock] = field(default_factory=list)


@dataclass(eq=False)
class Block:
    """Memory of a producer, with the value that was written last."""

    root: str
    library: str
    stream: str | None
    words: int
    value: int
    accesses: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Thing:
    """An object of the program: an array, a view or a capsule."""

    name: str
    kind: str  # "array", "cai" or "dlpack" (views), or "capsule"
    block: Block
    library: str | None
    # Of an array, where all its work is queued; of a capsule, the stream it was made for.
    stream: str | None
    made: Clock
    # What lives at least as long.
    keeps: list[Thing] = field(default_factory=list)
    # What the work of an array comes after; of a view that is not `live`, what its consumers' does.
    knows: Knowledge = field(default_factory=Knowledge)
    # Of a view: consumers come after all that `source` has queued when they take over.
    live: bool = False
    # Of views and capsules, the array behind them.
    source: Thing | None = None
    # Of a CAI view, the stream that it was made for.
    told: str | None = None
    # What goes back when it ends; of an array made of a dict, `under` is the view's.
    lease: Lease | None = None
    under: Lease | None = None
    # Whether what the array exports names the stream that it is worked on.
    names_its_stream: bool = True
    # Whether JAX has it, so that nobody writes; whether views say so.
    frozen: bool = False
    readonly: bool = False
    spent: bool = False
    released: bool = False
    named: bool = True
    # Whether it is in a cycle that only garbage refers to; whether somebody may hold it for longer
    # than the account knows.
    lost: bool = False
    late: bool = False
    # What its last uses are before; what all names and keepers so far were let go before.
    used: Clock = ()
    dropped: Clock = ()


@dataclass(eq=False)
class Lease:
    """Memory that a consumer has, and that goes back to `source`."""

    source: Thing
    # "source" where the producer's stream is known, and waits; "legacy" where the legacy default
    # stream stands in for it; "never" where nothing tells when the consumer is done.
    back: str
    # Whether the consumer's stream is known at the end.
    covered: bool = True
    # The stream that is known only where it is CuPy's current one just then.
    current: str | None = None
    # Whether the producer's stream is known by its handle alone, which keeps no stream alive.
    by_handle: bool = False
    # Those of the arrays that were made of a dict, and what these arrays' last uses and ends are
    # before.
    streams: set[str | None] = field(default_factory=set)
    used: Clock | None = None
    knows: Knowledge = field(default_factory=Knowledge)
    ended: bool = False


def closure(things: list[Thing]) -> set[Thing]:
    found: set[Thing] = set()
    left = list(things)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += one.keeps
    return found


def library_of(stream: str) -> str:
    return OF_STREAM[stream[0]]


def is_ordered_by_legacy(thing: Thing, kinds: dict[str, str]) -> bool:
    """Whether the stream of an array waits for the legacy default stream, or is that."""
    if thing.stream is None:
        return thing.library == "tvm_ffi"
    return kinds[thing.stream] in ORDERED_BY_LEGACY
