"""The account of a program's own work, and of the end of things: what goes back to whom."""

from __future__ import annotations

from ..program import Refused, wants
from ..steps import (
    HAVE_CURRENT,
    STREAMS,
    Collect,
    Cycle,
    Drop,
    Enter,
    Fill,
    Leave,
    Make,
    Meet,
    NewStream,
    Read,
    Release,
    Reuse,
    Step,
    Sync,
    is_handle,
    stream_of,
)
from .handles import (
    Access,
    Block,
    Clock,
    Lease,
    Thing,
    after,
    closure,
    is_before,
    is_ordered_by_legacy,
    join,
    library_of,
)

TAKEN_APART = {"cupy", "numba", "warp"}

"""Their arrays let go of their memory when Python's collector clears them, whoever holds them."""

PRODUCERS = {"torch", "cupy", "numba", "jax", "warp"}


class Account:
    """The state of a program: its own work, and the steps that let go."""

    def __init__(self, manner: str, threads: int) -> None:
        self.manner = manner
        self.clocks: list[Clock] = [(0,) * threads for _ in range(threads)]
        self.kinds: dict[str, str] = {}
        self.things: dict[str, Thing] = {}
        self.alive: list[Thing] = []
        self.entered: list[list[str]] = [[] for _ in range(threads)]
        self.accesses: list[Access] = []
        self.expected: dict[str, int] = {}

    def find(self, name: str, now: Clock) -> Thing:
        """Find what a step uses, which another thread may not have made yet."""
        thing = self.things.get(name)
        if thing is None or not thing.named:
            raise Refused(f"{name} is gone")
        after(thing.made, now)
        return thing

    def add(self, thing: Thing) -> Thing:
        thing.used = thing.dropped = thing.made
        self.things[thing.name] = thing
        self.alive.append(thing)
        return thing

    def current(self, thread: int, letter: str) -> str | None:
        """Name the stream that a library has as its current one, if any was entered."""
        return next((one for one in reversed(self.entered[thread]) if one[0] == letter), None)

    def _found(self, array: Thing, back: str) -> list[Thing]:
        """List whom the bridge keeps besides an array whose stream it does not know."""
        leases = [one.lease for one in self.alive if one.lease and one.block is array.block]
        sources = {lease.source: None for lease in leases if not lease.ended}
        return [one for one in sources if one is not array] if back == "legacy" else []

    def _drop(self, step: Drop | Cycle, now: Clock) -> None:
        thing = self.find(step.what, now)
        after(thing.used, now)
        self._may_end(thing, step, now)
        garbage = self._garbage(thing, lost=isinstance(step, Cycle))
        thing.named = False
        thing.lost = isinstance(step, Cycle)
        thing.dropped = join(thing.dropped, now)
        del self.things[step.what]
        for one in garbage:
            # The exporter is not asked for its stream any more: it may be garbage as well.
            if one.lease is not None and one.lease.source.library in TAKEN_APART:
                one.lease.back = "legacy" if one.lease.back == "source" else one.lease.back
        self._settle()

    _cycle = _drop

    def _collect(self, step: Collect, now: Clock) -> None:
        for thing in self.alive:
            if thing.lost and is_before(thing.dropped, now):
                thing.lost = False
                thing.dropped = join(thing.dropped, now)
        self._settle()

    def _release(self, step: Release, now: Clock) -> None:
        view = self.find(step.view, now)
        wants(view.kind in {"cai", "dlpack"} and not view.released)
        after(view.used, now)
        lease = view.lease
        if view.kind == "dlpack":
            wants(step.stream is None)
        else:
            self._may_be_released(view, lease, step, now)
        wants(step.how != "with" or step.stream is None)
        kept, view.keeps = view.keeps, []
        try:
            self._garbage(None, lost=False)
        except Refused:
            view.keeps = kept
            raise
        for array in self._under(lease):
            array.spent = True
            lease.knows.learn(array.knows, now)
        view.released = True
        view.used = join(view.used, now)
        for one in kept:
            one.dropped = join(one.dropped, now)
            one.late = one.late or lease.back != "source"
        if view.kind == "cai":
            self._give_back(lease, now)
        self._settle()

    def _may_be_released(self, view: Thing, lease: Lease, step: Release, now: Clock) -> None:
        """All work is queued, and the consumer's stream is known: from before, or from now on."""
        after(lease.used or now, now)
        for array in self._under(lease):
            after(join(array.used, array.dropped), now)
            wants(not any(one.source is array for one in self.alive), "somebody goes on")
            wants(not array.late, "somebody may work on it still")
        said = stream_of(step.stream)
        covered = lease.covered or self._vouched(step.stream, step.thread)
        if view.told is not None:
            wants(said in {None, view.told})
        elif said is None:
            wants(self.manner == "unsaid" or not lease.streams, "the stream was never said")
        else:
            wants(self.manner != "unsaid" and lease.streams <= {said})
        if not covered:
            self._is_done(lease, now)

    def _under(self, lease: Lease) -> list[Thing]:
        return [one for one in self.alive if one.under is lease]

    def _vouched(self, argument: str | None, thread: int, *streams: str | None) -> bool:
        """Whether the bridge knows this stream at the end: an object, or a handle kept alive."""
        stream = stream_of(argument)
        if stream is None:
            return self.manner == "unsaid"
        if not is_handle(argument) or self.kinds[stream] != "non_blocking":
            return True
        return stream in {self.current(thread, "c"), *streams}

    def _is_done(self, lease: Lease, now: Clock) -> None:
        """Refuse unless the host knows all work on a block done that its owner does not know."""
        for number in lease.source.block.accesses:
            if number not in lease.source.knows:
                done = self.accesses[number].done
                wants(any(is_before(one, now) for one in done), "nobody knows the stream")

    def _may_end(self, gone: Thing, step: Step, now: Clock) -> None:
        """Refuse where a lease would end whose stream nobody knows, at whatever moment."""
        kept = closure([one for one in self.alive if one.named and one is not gone])
        for thing in self.alive:
            lease = thing.lease
            if thing in kept or lease is None or lease.ended or lease.covered:
                continue
            known = lease.current is not None and len(self.clocks) == 1
            known = known and lease.current == self.current(step.thread, "c")
            if isinstance(step, Cycle) or getattr(step, "how", None) or not known:
                self._is_done(lease, now)

    def _garbage(self, gone: Thing | None, *, lost: bool) -> set[Thing]:
        """List what is garbage then; refuses an array that may be taken apart before its keeper."""
        kept = closure([one for one in self.alive if one.named and one is not gone])
        garbage = closure([one for one in self.alive if one.lost or (lost and one is gone)]) - kept
        for thing in garbage:
            wants(not any(one.library in TAKEN_APART and one in garbage for one in thing.keeps))
        return garbage

    def _settle(self) -> None:
        """End what nothing keeps any more, the keepers before what they kept."""
        kept = closure([one for one in self.alive if one.named or one.lost])
        for thing in reversed([one for one in self.alive if one not in kept]):
            self.alive.remove(thing)
            gone = thing.dropped
            for one in thing.keeps:
                one.dropped = join(one.dropped, gone)
            if thing.under is not None and not thing.under.ended:
                thing.under.knows.learn(thing.knows, gone)
                thing.under.used = join(thing.under.used or gone, gone)
            if thing.lease is not None and not thing.lease.ended:
                if thing.kind == "array":
                    thing.lease.knows.learn(thing.knows, gone)
                if thing.late:
                    thing.lease.back = "never"
                self._give_back(thing.lease, gone)
            held_on = thing.lease is not None and thing.lease.back != "source"
            for one in thing.keeps:
                one.late = one.late or thing.late or held_on

    def _give_back(self, lease: Lease, moment: Clock) -> None:
        """The return edge: what the owner queues next comes after the consumer's work."""
        lease.ended = True
        legacy = lease.back == "legacy" and is_ordered_by_legacy(lease.source, self.kinds)
        if lease.back == "source" or legacy:
            lease.source.knows.learn(lease.knows, moment)

    def now(self, thread: int) -> Clock:
        clock = self.clocks[thread]
        return (*clock[:thread], clock[thread] + 1, *clock[thread + 1 :])

    def _newstream(self, step: NewStream, now: Clock) -> None:
        wants(step.kind in STREAMS[step.library] and step.name[0] == step.library[0])
        wants(not self.accesses and step.thread == 0, "streams are made first")
        # Warp's current stream is that of all threads; it frees memory on whichever is current.
        alone = len(self.clocks) == 1 and "w" not in {name[0] for name in self.kinds}
        wants(step.library != "warp" or alone, "Warp has one stream, and one thread")
        self.kinds[step.name] = step.kind

    def _meet(self, step: Meet, now: Clock) -> None:
        wants(step.other != step.thread and step.other < len(self.clocks))
        self.clocks[step.thread] = join(now, self.clocks[step.other])

    def _enter(self, step: Enter, now: Clock) -> None:
        wants(step.stream in self.kinds and library_of(step.stream) in HAVE_CURRENT)
        self.entered[step.thread].append(step.stream)

    def _leave(self, step: Leave, now: Clock) -> None:
        wants(self.entered[step.thread])
        self.entered[step.thread].pop()

    def _sync(self, step: Sync, now: Clock) -> None:
        for access in self.accesses:
            if is_before(access.queued, now):
                access.done.append(now)

    def _reuse(self, step: Reuse, now: Clock) -> None:
        self._has_stream(step)

    def _make(self, step: Make, now: Clock) -> None:
        self._has_stream(step)
        block = Block(step.name, step.library, step.stream, step.words, step.value)
        made = Thing(step.name, "array", block, step.library, step.stream, now)
        made.frozen = step.library == "jax"
        self._queue(self.add(made), now, write=True)

    def _has_stream(self, step: Make | Reuse) -> None:
        wants(step.library in PRODUCERS)
        if step.library == "jax":
            wants(step.stream is None)
        else:
            wants(step.stream in self.kinds and step.stream[0] == step.library[0])

    def _read(self, step: Read, now: Clock) -> None:
        array = self.find(step.array, now)
        self._may_work(array, now, write=False)
        self._queue(array, now, write=False)
        self.expected[step.name] = array.block.value

    def _fill(self, step: Fill, now: Clock) -> None:
        array = self.find(step.array, now)
        wants(not array.frozen, "JAX's arrays are never written")
        jax = [one for one in self.alive if one.block is array.block and one.library == "jax"]
        wants(not jax, "JAX has it")
        self._may_work(array, now, write=True)
        self._queue(array, now, write=True)
        array.block.value = step.value

    def _may_work(self, array: Thing, now: Clock, *, write: bool) -> None:
        """Refuse work that is not ordered after what it must come after."""
        wants(array.kind == "array" and not array.spent)
        for number in array.block.accesses:
            access = self.accesses[number]
            if not (access.write or write) or array.knows.holds(number, now):
                continue
            if any(is_before(one, now) for one in access.done):
                continue
            wants(number in array.knows, f"unordered on {array.name}")
            after(array.knows.nearest(number, now), now)

    def _queue(self, array: Thing, now: Clock, *, write: bool) -> None:
        number = len(self.accesses)
        self.accesses.append(Access(write, now))
        array.block.accesses.append(number)
        array.knows.add(number, now)
        array.used = join(array.used, now)
        if array.under is not None:
            array.under.used = join(array.under.used or now, now)
