"""What each step of a program promises, by the tables of the README; refuses what is not promised.

The model is the oracle: the value that each read must see, the stream that each view must name, and
which arrays are alive after each step.
"""

from __future__ import annotations

from typing import NamedTuple

from . import steps as s
from .order import HOST, Order, Refused


class Array(NamedTuple):
    """An array of the program."""

    device: int
    speaks: tuple[str, ...]
    readonly: bool
    empty: bool
    pool: str | None
    pending: str | None
    compact: bool
    # Whether it is memory of the GPU's own, of which copies are made.
    own: bool = True
    # Of a copy: the stream that it was made on; whether the host waits before its memory goes back.
    copied_on: str | None = None
    waits: bool = False


class View(NamedTuple):
    """A view, or a capsule or tensor that was made of an array."""

    array: str
    ready: str | None
    readonly: bool
    # At its end the producer's stream waits for the consumer's, where they are known.
    consumer: str | None = None
    home: str | None = None
    # The streams whose objects are held: that of the array, and `home`.
    keeps: str | None = None
    keeps_home: str | None = None
    kind: str = ""
    of_capsule: bool = False
    # Whether the array's dict names `home` and nothing else keeps it: at the end it is asked again.
    lent: bool = False
    # The stream whose object is held for the consumer's sake.
    keeps_consumer: str | None = None
    # A stream that was declared to be the producer's besides, and whether its object is held.
    declared: str | None = None
    keeps_declared: str | None = None
    # Whether it was borrowed, for work on the legacy default stream.
    lent_out: bool = False


def wants(condition: object, why: str = "cannot be done") -> None:
    """Refuse the step unless that is so."""
    if not condition:
        raise Refused(why)


class Model(Order):
    """The state of a program. `take` carries a step out, or raises and is to be thrown away."""

    def __init__(self) -> None:
        super().__init__()
        self.device = 0
        self.arrays: dict[str, Array] = {}
        self.views: dict[str, View] = {}
        # The value that an array has, and that a read or write must have seen.
        self.values: dict[str, int] = {}
        self.seen: dict[str, tuple[str, int] | None] = {}
        self.freed: dict[str, int] = {}
        # References: who holds what, how many hold it, and what the program has a name for.
        self.holds: dict[str, tuple[str, ...]] = {}
        self.count: dict[str, int] = {}
        self.named: dict[str, bool] = {}
        self.garbage: tuple[str, ...] = ()
        # What the bridge may hold until a consumer is done, and what is ordered before that.
        self.maybe: dict[str, int] = {}
        self.doubt: int | None = None
        self.lasting: frozenset[str] = frozenset()
        self.elsewhere = False
        self.work_on: dict[int, str] = {}

    def take(self, step: s.Step) -> None:
        for name in step.needs():
            wants(name in self.named, f"{name} is gone")
        getattr(self, "_" + type(step).__name__.lower())(step)
        self.number += 1

    # --- who holds what ---------------------------------------------------------------------------

    def _add(self, name: str, *held: str | None, named: bool = True) -> None:
        self.holds[name] = tuple(h for h in held if h is not None and not s.is_default(h))
        for other in self.holds[name]:
            self.count[other] += 1
        self.count[name] = 1
        if named:
            self.named[name] = True

    def _less(self, name: str) -> None:
        if self.doubt is not None and name[0] in "xmk":
            self.maybe[name] = self.maybe.get(name, 0) | self.doubt
        self.count[name] -= 1
        if self.count[name]:
            return
        del self.count[name]
        before, self.doubt = self.doubt, self.maybe.get(name)
        if name[0] == "m" and not self.arrays["x" + name[1:]].empty:
            self._free("x" + name[1:])
        self._let_go(name)
        self.doubt = before

    def _let_go(self, name: str, also: str | None = None, *, vouched: bool = False) -> None:
        """The end of a view, a capsule or an import: the return edge, and then the references."""
        if name not in self.holds:
            return
        held, before = self.holds.pop(name), self.doubt
        view = self.views.get(name)
        if view is not None and not self.arrays[view.array].empty and not vouched:
            legacy = f"L{self.arrays[view.array].device}" if view.lent_out else None
            users = {view.consumer: 0, also: 0, legacy: 0}
            self._returned(view, [stream for stream in users if stream])
        if before is not None and name[0] == "k":
            self.lasting |= {view.array} if view is not None else frozenset()
        for other in held:
            self._less(other)
        self.doubt = before

    def _returned(self, view: View, consumers: list[str]) -> None:
        """Give the memory back; where the producer's stream is unknown, when all is done."""
        home = view.home or f"L{self.arrays[view.array].device}"
        if (
            view.lent
            and view.home
            and not s.is_default(home)
            and any(user != home for user in consumers)
        ):
            home = self.arrays[view.array].pending or home
        for consumer in consumers:
            if self.doubt is None:
                self._give_back(consumer, home)
        for consumer in consumers if view.declared else ():
            if self.doubt is None:
                self._give_back(consumer, view.declared or home)
        if consumers and (view.home is None or self.doubt is not None):
            for consumer in consumers:
                self.doubt = (self.doubt or 0) | self.after[consumer]
            if not self.strict and self.capture is None:
                # The host may find that the legacy default stream is done, and is ordered after it.
                self.after[HOST] |= self.advance(f"L{self.arrays[view.array].device}")
                self.doubt |= self.after[HOST]

    def _give_back(self, consumer: str, home: str) -> None:
        if consumer == home:
            return
        wants(self._alive(home), "a dead stream")
        if self.elsewhere and home[0] == "T":
            # Another thread has no name for it.
            home = "L" + home[1:]
        if self.capture is not None:
            members = self.capture.members
            wants(consumer in members and home[0] != "L")
            # Another thread has no name for it but the legacy default stream, which is barred.
            wants(not (self.elsewhere and consumer[0] == "T"))
            if home not in members:
                return
        self.edge(consumer, home)

    def _free(self, name: str) -> None:
        self.outside()
        pool = self.arrays[name].pool
        if self.doubt is not None:
            self.may_free(pool or HOST, name, self.doubt)
            return
        bit = self.free(pool or HOST, name)
        if pool is not None:
            self.freed[pool] = self.freed.get(pool, 0) | bit

    def _alive(self, stream: str) -> bool:
        return s.is_default(stream) or stream in self.count

    def _usable(self, stream: str | None) -> str | None:
        wants(stream is None or self._alive(stream), "a dead stream")
        return stream

    def alive(self) -> frozenset[str]:
        """The arrays that must be alive."""
        return frozenset(name for name in self.count if name[0] == "x")

    def may_live(self, array: str) -> bool:
        """Whether the bridge may hold on to an array that nobody else holds."""
        return array in self.maybe

    # --- the program's own work -------------------------------------------------------------------

    def _newstream(self, step: s.NewStream) -> None:
        wants(self.capture is None)
        self.lane(step.name, step.device, "blocking" if step.blocking else "non-blocking")
        self._add(step.name)

    def _newarray(self, step: s.NewArray) -> None:
        self.outside()
        empty = step.layout == "empty"
        device = step.device if step.stream is None else self.lanes[step.stream].device
        wants(device == step.device and not (step.memory == "pool" and step.stream is None))
        legacy_only = any(kind in step.speaks for kind in ("dlpack-strict", "dlpack-legacy"))
        wants(not (step.readonly and (legacy_only or "dlpack-bare" in step.speaks)))
        pool = step.stream if step.memory == "pool" else None
        compact = step.layout in {"vector", "matrix", "scalar", "offset", "empty"}
        own = step.memory in {"device", "pool"}
        array = Array(device, step.speaks, step.readonly, empty, pool, step.stream, compact, own)
        self.arrays[step.name] = array
        # The array itself, and its memory, which its exports hold.
        memory = "m" + step.name[1:]
        self._add(memory, named=False)
        self._add(step.name, memory, step.stream)
        self.count[memory] -= 1
        if empty:
            self._no_bytes(step.stream or HOST)
        else:
            self.blocks[step.name] = (self.freed.get(pool, 0), 0)
            self.access(step.stream or HOST, step.name, write=True)
        self.values[step.name] = step.value

    def _fill(self, step: s.Fill) -> None:
        self._write(step.array, step.stream or HOST, step.value)
        if step.stream is None:
            return
        wants(self.lanes[step.stream].device == self.arrays[step.array].device)
        self.arrays[step.array] = self.arrays[step.array]._replace(pending=step.stream)
        # An exporter has to keep the streams that its dicts have named.
        if not s.is_default(step.stream) and step.stream not in self.holds[step.array]:
            self.holds[step.array] += (step.stream,)
            self.count[step.stream] += 1

    def _read(self, step: s.Read) -> None:
        self._see(step.name, step.array, step.stream or HOST)
        self._add(step.name)

    def _write(self, array: str, place: str, value: int) -> None:
        if self.arrays[array].empty:
            self._no_bytes(place)
            return
        if self.access(place, array, write=True, effect=("write", array, value)):
            self.values[array] = value

    def _no_bytes(self, place: str) -> None:
        """Queue work that touches nothing: an action for the simulated device, if not a promise."""
        self.outside()
        if not self.strict and place != HOST:
            self.advance(place)

    def _see(self, name: str, array: str, place: str) -> None:
        self.seen[name] = None
        if self.arrays[array].empty:
            self._no_bytes(place)
            self.seen[name] = (array, 0)
        elif self.access(place, array, write=False, effect=("read", name + " " + array, 0)):
            self.seen[name] = (array, self.values[array])

    def _wait(self, step: s.Wait) -> None:
        wants(step.first != step.then)
        self.edge(step.first, step.then)

    def _sync(self, step: s.Sync) -> None:
        self.wait_on_host(step.stream)
        self.quiet = self.quiet or step.stream is None

    def _run(self, step: s.Run) -> None:
        self.quiet = self.capture is None

    def _setdevice(self, step: s.SetDevice) -> None:
        self.device = step.device

    # --- captures ---------------------------------------------------------------------------------

    def _begin(self, step: s.Begin) -> None:
        self.begin(step.name, step.stream)
        self._add(step.name)

    def _end(self, step: s.End) -> None:
        self.end(step.graph)

    def _replay(self, step: s.Replay) -> None:
        for what, name, value in self.replay(step.graph, step.stream):
            if what == "write":
                wants("m" + name[1:] in self.count, "the graph's memory is gone")
                self.values[name] = value
            else:
                read, array = name.split()
                wants("m" + array[1:] in self.count, "the graph's memory is gone")
                self.seen[read] = (array, self.values[array])

    # --- the end of things ------------------------------------------------------------------------

    def _release(self, step: s.Release) -> None:
        wants(step.how != "with" or step.view in self.holds, "released already")
        also = self._usable(s.stream_of(step.stream))
        array = self.arrays[self.views[step.view].array]
        wants(also is None or self.lanes[also].device == array.device, "another device")
        wants(not (step.thread and also is not None and also[0] == "T"))
        self.elsewhere = step.thread
        self._let_go(step.view, also, vouched=step.stream == -1)
        self.elsewhere = False

    def _look(self, step: s.Look) -> None:
        """The bridge ends what it held on to; asked for only where nothing is queued any more."""
        wants(self.quiet and self.capture is None)
        self.maybe = {name: self.maybe[name] for name in self.maybe if name in self.lasting}

    def _drop(self, step: s.Drop) -> None:
        if step.what[0] == "s":
            # Torch's streams, which its exchange API names by a bare handle, never die.
            wants(step.what not in self.work_on.values())
            # One that is destroyed takes the capture that it is in along.
            wants(self.capture is None or step.what not in self.capture.members)
        del self.named[step.what]
        self.elsewhere = step.thread
        self._less(step.what)
        self.elsewhere = False

    def _cycle(self, step: s.Cycle) -> None:
        wants(not self.garbage and step.view in self.holds and self.capture is None)
        if step.through_owner:
            array = self.views[step.view].array
            wants(self.named.get(array) and self.count[array] == 2 and self.count[step.view] == 1)
            wants(array not in self.maybe)
            # The collector may clear the owner first, and with it the memory and its streams: then
            # there is no order to be made any more.
            view = self.views[step.view]
            wants(view.home is None or s.is_default(view.home) or view.keeps_home == view.home)
            self.views[step.view] = view._replace(consumer=None)
            if view.consumer is not None:
                self.maybe[array] = 0
            wants(array in self.holds[step.view] and not self.views[step.view].of_capsule)
            del self.named[array]
            self._less(array)
        view = self.views[step.view]
        wants(not view.lent_out)
        if view.lent and view.home and view.consumer not in (None, view.home):
            # Whether the exporter is garbage as well nobody can tell: it vouches for nothing then.
            wants(s.is_default(view.home) or self.capture is None)
            self.views[step.view] = view if s.is_default(view.home) else view._replace(home=None)
        del self.named[step.view]
        self.garbage = (step.view,)

    def _collect(self, step: s.Collect) -> None:
        for name in self.garbage:
            # An owner that only garbage refers to is garbage, too, and may be taken apart first.
            view = self.views[name]
            shared = self.named.get(view.array) or self.count.get(view.array, 0) > 1
            wants(view.consumer is None or shared or view.of_capsule)
            self._less(name)
        self.garbage = ()
