"""The account of the program's own work: streams, arrays, reads, writes, and threads that meet."""

from __future__ import annotations

from ..refusing import wants
from ..step import HAVE_CURRENT, STREAMS
from ..work import Enter, Fill, Leave, Make, Meet, NewStream, Read, Reuse, Sync
from .clocks import Clock, after, is_before, join
from .ends import Ends
from .handles import Access, Block, Thing, library_of

PRODUCERS = {"torch", "cupy", "numba", "jax", "warp"}


class Labour(Ends):
    """The steps that are not about the bridge."""

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
