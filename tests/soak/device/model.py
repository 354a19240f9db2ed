"""What a program has, who refers to it, and what its own work does.

The model is the oracle: the value that each read must see, the stream that each view must name, and
which arrays are alive after each step. It refuses what is not promised.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import steps as s
from ..program import wants
from .order import HOST, Order
from .strangers import STRANGE

SILENT = {"cai0", "cai1", "cai2"}


class StreamRef(NamedTuple):
    """A stream that is used later, and who keeps it alive.

    That is the context of a default stream ("always"), an object that is held ("object"), or the
    exporter of a dict that names it, who is asked again and may have moved ("exporter"), or must
    not have ("pinned"); or nobody ("nobody"). The legacy default stream is "unsaid" where a dict
    named none, which may mean that work is pending there.
    """

    stream: str
    by: str = "always"
    # Who keeps it besides an exporter that cannot be asked.
    besides: str | None = None


class User(NamedTuple):
    """Who works on memory, as far as the bridge is told.

    "nobody"; "declined" by -1; at "home", on the producer's own stream, where `kept` is who keeps
    that one if the producer may move; "unread", whoever reads the dict; "unnamed", who has read it,
    `seen` being the streams that libraries worked on then; "on" a stream that is kept; or "unkept",
    on a stream that nobody keeps.
    """

    kind: str = "nobody"
    kept: StreamRef | None = None
    stream: str = ""
    seen: tuple[StreamRef, ...] = ()
    # The GPU of a stream that was named.
    at: int | None = None


class Array(NamedTuple):
    """An array of the program."""

    device: int
    speaks: tuple[str, ...]
    readonly: bool
    empty: bool
    pool: str | None
    pending: str | None
    # Whether it is memory of the GPU's own; else every GPU works on it.
    own: bool = True
    # Of a library's array that is made of a capsule: the array whose memory it is.
    root: str | None = None
    # Of a copy: the stream that it was made on.
    copied_on: str | None = None

    @property
    def is_strange(self) -> bool:
        """Whether no row of the habits vouches for its type."""
        return STRANGE in self.speaks

    def says(self, protocol: str) -> str | None:
        """Name the array's form of "dlpack" or "cai", if it speaks that."""
        return next((kind for kind in self.speaks if kind.startswith(protocol)), None)


class View(NamedTuple):
    """A view, or a capsule or tensor that was made of an array."""

    array: str
    # The stream that the view names, and what a consumer waits for; None where nobody keeps it.
    ready: str | None
    on: StreamRef | None
    readonly: bool
    # Where the producer's streams are, and the consumer's.
    place: int
    at: int
    home: StreamRef | None = None
    # Streams that wait at the end besides the producer's: declared ones, and those of the consumers
    # of the views between.
    upstream: tuple[StreamRef, ...] = ()
    user: User = User()
    kind: str = ""
    # Whether a managed tensor holds the memory, whatever becomes of the producer's object.
    tensor: bool = False
    # Whether the memory is a copy's, which is freed at the end.
    copy: bool = False
    # Whether it was borrowed, for work on the legacy default stream.
    lent: bool = False
    # Whether it is handed out as one GPU's own memory.
    gpus: bool = True
    # Of a capsule: whether it says its version.
    versioned: bool = True
    # Whether a dict named no stream at the import, and is asked again.
    unnamed: bool = False

    def handed_on(self, user: User) -> View:
        """Tell the same for another consumer: whoever had it before is upstream."""
        before = self.user
        stands_in = before.kind == "home" and before.kept and before.kept.stream != before.stream
        lasting = before.kept is not None and not stands_in
        kept = (*before.seen, *((before.kept,) if lasting else ()))
        moves = self.home is not None and self.home.by == "exporter"
        left = before.kind == "home" and moves and (before.kept is None or stands_in)
        unkept = left or before.kind == "unkept"
        kept += (StreamRef(before.stream, "nobody"),) if unkept else ()
        return self.above(*kept)._replace(user=user)

    def above(self, *kept: StreamRef) -> View:
        """Tell the same with more streams upstream."""
        upstream = list(self.upstream)
        for one in kept:
            same = {(known.stream, known.by == "nobody") for known in upstream}
            upstream += [] if (one.stream, one.by == "nobody") in same else [one]
        return self._replace(upstream=tuple(upstream))

    def known(self) -> list[StreamRef]:
        known = (self.on, self.home, *self.upstream, self.user.kept, *self.user.seen)
        return [one for one in known if one is not None]

    def names(self) -> set[str]:
        """List the streams that it knows, alive or not."""
        return {one.stream for one in self.known()} | {self.user.stream}

    def streams(self) -> tuple[str, ...]:
        """List the streams whose objects are held."""
        found = [one.stream for one in self.known() if "object" in {one.by, one.besides}]
        return tuple(stream for stream in found if not s.is_default(stream))


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
        # Tensors that were taken out of their capsules by hand.
        self.by_hand: frozenset[str] = frozenset()
        # Streams that leases of each array's memory have kept.
        self.met: dict[str, frozenset[str]] = {}
        # Streams that were named by their handles alone.
        self.bare: frozenset[str] = frozenset()
        # Streams that were destroyed while objects are around.
        self.closed: frozenset[str] = frozenset()
        # Those of them whose handle no other stream has.
        self.free_handles: frozenset[str] = frozenset()
        # What the bridge may hold until a consumer is done, and what is ordered before that.
        self.maybe: dict[str, int] = {}
        self.doubt: int | None = None
        # What went with its context.
        self.lost: frozenset[str] = frozenset()
        self.ended: frozenset[int] = frozenset()
        # Of the step: whether another thread ends something, and whether it is a drop.
        self.elsewhere = self.dropping = False

    def take(self, step: s.Step) -> None:
        for name in sorted(step.needs()):
            wants(name in self.named, f"{name} is gone")
            wants(name not in self.lost or isinstance(step, s.Drop), f"{name} has no context")
        self.bare |= step.bare()
        current = getattr(step, "current", None)
        self.current = () if current is None else (current,)
        step.method(self)(step)
        self.current = ()
        self.number += 1

    def _add(self, name: str, *held: str | None, named: bool = True) -> None:
        self.holds[name] = tuple(h for h in held if h is not None and not s.is_default(h))
        for other in self.holds[name]:
            self.count[other] += 1
        self.count[name] = 1
        if named:
            self.named[name] = True

    def _less(self, name: str) -> None:
        if self.doubt is not None and name[0] in "xmkyi":
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

    def _let_go(self, name: str) -> None:
        """The end of what holds something."""
        raise NotImplementedError

    def _free(self, name: str) -> None:
        if name in self.lost:
            return
        self.outside()
        pool = self.arrays[name].pool
        if self.doubt is not None:
            self.may_free(pool or HOST, name, self.doubt)
            return
        bit = self.free(pool or HOST, name)
        if pool is not None:
            self.freed[pool] = self.freed.get(pool, 0) | bit

    def _alive(self, stream: str) -> bool:
        return s.is_default(stream) or (stream in self.count and stream not in self.closed)

    def usable(self, stream: str | None) -> str | None:
        wants(stream is None or self._alive(stream), "a dead stream")
        return stream

    def alive(self) -> frozenset[str]:
        return frozenset(name for name in self.count if name[0] in "xy")

    def may_live(self, array: str) -> bool:
        """Whether the bridge may hold on to an array that nobody else holds."""
        return array in self.maybe

    def root(self, array: str) -> str:
        return self.arrays[array].root or array

    def allocates(self) -> None:
        """Refuse new memory as long as any of an ended context is held: addresses come again."""
        self.outside()
        held = {"x" + name[1:] for name in (*self.count, *self.maybe) if name[0] == "m"}
        wants(not held & self.lost, "an address may come again")

    def access(self, place: str, block: str | None, **access: Any) -> bool:
        """Touch a block; an ended context's default streams are others now."""
        wants(place == HOST or self.lanes[place].device not in self.ended)
        return super().access(place, block, **access)

    def _newstream(self, step: s.NewStream) -> None:
        wants(self.capture is None and step.device not in self.ended)
        wants(step.again is None or step.again in self.free_handles)
        self.free_handles -= {step.again}
        self.lane(step.name, step.device, "blocking" if step.blocking else "non-blocking")
        self._add(step.name)

    def _newarray(self, step: s.NewArray) -> None:
        self.allocates()
        wants(step.device not in self.ended)
        empty = step.layout == "empty"
        device = step.device if step.stream is None else self.lanes[step.stream].device
        wants(device == step.device and not (step.memory == "pool" and step.stream is None))
        legacy_only = any(kind in step.speaks for kind in ("dlpack-strict", "dlpack-legacy"))
        wants(not (step.readonly and (legacy_only or "dlpack-bare" in step.speaks)))
        pool = step.stream if step.memory == "pool" else None
        own = step.memory in {"device", "pool"}
        array = Array(device, step.speaks, step.readonly, empty, pool, step.stream, own)
        self.arrays[step.name] = array
        # The array itself, and its memory, which its exports hold.
        memory = "m" + step.name[1:]
        self._add(memory, named=False)
        self._add(step.name, memory, step.stream)
        self.count[memory] -= 1
        if empty:
            self._no_bytes(step.stream or HOST)
        else:
            self.blocks[step.name] = (self.freed.get(pool, 0) if pool else 0, 0)
            self.access(step.stream or HOST, step.name, write=True)
        self.values[step.name] = step.value

    def _fill(self, step: s.Fill) -> None:
        array = self.arrays[step.array]
        wants(step.stream is not None or self.capture is None)
        self._write(step.array, step.stream or HOST, step.value)
        if step.stream is None:
            return
        wants(self.lanes[step.stream].device == array.device or not array.own)
        self.arrays[step.array] = array._replace(pending=step.stream)
        # An exporter has to keep the streams that its dicts have named.
        if not s.is_default(step.stream) and step.stream not in self.holds[step.array]:
            self.holds[step.array] += (step.stream,)
            self.count[step.stream] += 1

    def _read(self, step: s.Read) -> None:
        array = self.arrays[step.array]
        wants(step.stream is not None or self.capture is None)
        wants(
            step.stream is None or self.lanes[step.stream].device == array.device or not array.own
        )
        self._see(step.name, step.array, step.stream or HOST)
        self._add(step.name)

    def _write(self, array: str, place: str, value: int) -> None:
        array = self.root(array)
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
        array = self.root(array)
        self.seen[name] = None
        if self.arrays[array].empty:
            self._no_bytes(place)
            self.seen[name] = (array, 0)
        elif self.access(place, array, write=False, effect=("read", name + " " + array, 0)):
            self.seen[name] = (array, self.values[array])

    def _wait(self, step: s.Wait) -> None:
        wants(step.first != step.then)
        self.own_wait(step.first, step.then)

    def _sync(self, step: s.Sync) -> None:
        wants(step.stream is not None or self.capture is None, "a capture does not allow it")
        self.wait_on_host(step.stream)
        self.quiet = self.quiet or step.stream is None

    def _run(self, step: s.Run) -> None:
        self.quiet = self.capture is None

    def _works(self, step: s.Works) -> None:
        wants(
            step.stream is None or self.lanes[str(s.stream_of(step.stream))].device == step.device
        )
        self.registered.pop(step.device, None)
        if step.stream is not None:
            self.registered[step.device] = step.stream

    def works_there(self, device: int) -> str | None:
        """Name the stream that the registered library works on: one that is still there."""
        argument = self.registered.get(device)
        stream = s.stream_of(argument)
        is_there = stream in self.named and stream not in {*self.closed, *self.lost}
        return argument if is_there else None

    def _setdevice(self, step: s.SetDevice) -> None:
        self.device = step.device

    def _close(self, step: s.Close) -> None:
        stream = step.stream
        wants(not s.is_default(stream) and not self.is_captured(stream))
        for name in (*self.count, *self.maybe):
            # An exporter keeps the stream that its dict names, a library those of its memory.
            array = self.arrays.get(name if name[0] in "xy" else "x" + name[1:])
            wants(
                name[0] not in "xmy" or array is None or stream not in (array.pending, array.pool)
            )
        # PyTorch never destroys its streams, and CuPy's live as long as they are held.
        seen = [one for name in self.holds if name in self.views for one in self._noted(name)]
        wants(stream not in seen, "a library works on it")
        self.closed |= {stream}
        self.free_handles |= {stream}
        del self.named[stream]
        self._less(stream)

    def _noted(self, name: str) -> list[str]:
        """List the streams of libraries' own that they worked on as they read a view."""
        return [kept.stream for kept in self.views[name].user.seen if kept.by != "nobody"]

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
