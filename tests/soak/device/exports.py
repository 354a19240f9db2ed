"""What capsules, copies and consumers promise: who takes memory in.

A copy on a GPU is new memory, filled on the stream that was asked for (with -1 the one that the
array is ready on; for a stream of another GPU the legacy default one, which that one then waits
for), after what is pending; the producer waits for it as for a consumer that has come and gone. The
memory goes back in the order of that stream where somebody keeps it, else in that of the legacy
default stream. For a copy in the host's memory the host waits.
"""

from __future__ import annotations

from .. import steps as s
from ..program import wants
from .ends import Ends
from .model import Array, StreamRef, User, View
from .strangers import DEAF

LEGACY_KINDS = {"dlpack-none", "dlpack-exchange", "dlpack-borrowed"}

NO_READONLY = {"dlpack-legacy-capsule", "dlpack-borrowed"}


class Exports(Ends):
    """The model with exports, copies, consumers, and libraries that pass on what they took in."""

    def asked(self, argument: s.Argument, device: int, *, gpus: bool = True) -> str | None:
        """Name the stream that is asked for: of that device, if the memory is a GPU's own.

        The default streams are always that device's.
        """
        stream = s.stream_of(argument)
        if stream is not None:
            anywhere = not gpus and not s.is_default(stream)
            wants(anywhere or self.lanes[stream].device == device, "another device")
            self.usable(stream)
        return stream

    def user(self, argument: s.Argument, home: StreamRef | None) -> User:
        """Tell the consumer that a hand-over names."""
        if argument == -1:
            return User("declined")
        if argument is None:
            return User("unread")
        stream = str(s.stream_of(argument))
        at = self.lanes[stream].device
        if home is not None and home.stream == stream:
            moves = home.by == "exporter"
            return User("home", self.keep(str(argument)) if moves else None, stream)
        kept = self.keep(str(argument))
        return User("unkept", None, stream, (), at) if kept is None else User("on", kept, at=at)

    def by_now(self, view: View) -> View:
        """Give a view for a hand-over: ready where its producer's dict names a stream by now."""
        unsaid = view.on is not None and view.on.by == "unsaid"
        named = self.names_now(view) if view.ready is None or unsaid else None
        if named is None:
            return view
        wants(self.capture is None, "whether that one is waited for is not promised")
        kept = self.exporters(named)
        return view._replace(ready=named, on=kept, home=kept, unnamed=False)

    def exporters(self, pending: str) -> StreamRef:
        """The stream that an exporter's dict names, and who else keeps it."""
        kept = self.keep(f"{pending}.handle", registered=False)
        besides = kept.by if kept is not None and kept.stream == pending else None
        return StreamRef(pending, "exporter", besides)

    def hand_over(self, view: View, then: str, *, copies: bool = False) -> None:
        """Make a view's memory usable on a stream; of a producer's two, copies wait in turn."""
        if view.ready is None:
            return
        first = self.readied(view)
        if first is None:
            self.wait_for_device(self.gone_at(view))
        else:
            unsaid = view.on is not None and view.on.by == "unsaid"
            if unsaid and (self.is_beside(first) or self.is_beside(then)):
                # Of work that may not even be there, no capture has to know.
                return
            # Where the one stands in for another, an event is recorded there.
            waited = (self.also(view.on, view), first)
            for stream in reversed(waited) if copies else waited:
                wants(stream != then or not self.is_beside(stream), "it may be refused")
                self.edge(stream, then)

    def readied(self, view: View) -> str | None:
        """Name the stream to wait for where a view is ready; None where it is gone, or not kept."""
        wants(self.capture is None or not self._has_moved(view))
        first = self.confirmed(view.on, view)
        follows = view.on is not None and view.on.by == "exporter"
        return first if follows or (view.on and first == view.on.stream) else None

    def _has_moved(self, view: View) -> bool:
        """Whether an exporter has left the stream that a view is ready on.

        Whether that one is waited for as well is not promised.
        """
        is_default = view.ready is not None and s.is_default(view.ready)
        moved = is_default and self.arrays[view.array].pending not in {None, view.ready}
        return moved or self.also(view.home, view) is not None

    def gone_at(self, view: View) -> int:
        """Tell the GPU of the stream that a view is ready on, where that is gone."""
        if view.on is not None:
            return self.lanes[view.on.stream].device
        named = view.user.at if view.user.kind == "unkept" else None
        return view.place if named is None else named

    def _copy(self, step: s.Copy) -> None:
        view = self.by_now(self.views[step.source])
        array = self.arrays[view.array]
        wants(step.source in self.holds and view.kind == "dlpack" and not array.empty)
        wants(view.gpus or step.device is not None)
        self.allocates()
        at = view.at if step.device is None else step.device
        wants(at not in self.ended)
        queue = self._queue(step.stream, view, at)
        self.hand_over(view, queue, copies=True)
        self.access(queue, self.root(view.array), write=False)
        made, memory = "x" + step.name[1:], "m" + step.name[1:]
        self.arrays[made] = Array(at, (), False, False, None, None, copied_on=queue)
        self.blocks[made] = (self.freed.get(queue, 0), 0)
        self.access(queue, made, write=True)
        self.values[made] = self.values[self.root(view.array)]
        # The producer gets its memory back from somebody who worked on that stream.
        reader = "h" + step.name[1:]
        borrowed = view.handed_on(User("on", StreamRef(queue), at=at))._replace(lent=False)
        self.hand_out(reader, borrowed, self.holds[step.source][0], named=False)
        self._less(reader)
        self._copied(step, made, memory, queue, at, view.place)

    def _copied(
        self, step: s.Copy, made: str, memory: str, queue: str, at: int, place: int
    ) -> None:
        """Hand a copy out that was made on `queue`."""
        named = step.stream if s.stream_of(step.stream) == queue else f"{queue}.handle"
        home = self.keep(str(named))
        if home is None or home.stream != queue:
            # The legacy default stream is made to wait for the copy, and frees it.
            home = StreamRef(f"L{at}")
            self.edge(queue, home.stream, back=True)
        consumer = s.stream_of(step.stream)
        if consumer is not None and consumer != queue:
            self.edge(queue, consumer)
            named = step.stream
        user = User("unnamed") if step.stream == -1 else self.user(named, home)
        self._add(memory, named=False)
        view = View(made, queue, None, False, at, at, home, (), user, "capsule", copy=True)
        self.hand_out(step.name, view._replace(versioned=step.versioned), memory)
        self.count[memory] -= 1

    def _queue(self, argument: s.Argument, view: View, at: int) -> str:
        stream = self.asked(argument, at, gpus=False)
        if stream is not None:
            # One of another GPU waits for the copy.
            return stream if self.lanes[stream].device == at else f"L{at}"
        ready = None if view.ready is None else self.readied(view)
        if argument == -1 and ready is not None and self.lanes[ready].device == at:
            return ready
        return f"L{at}"

    def _tohost(self, step: s.ToHost) -> None:
        view = self.by_now(self.views[step.source])
        array = self.arrays[view.array]
        wants(step.source in self.holds and view.kind == "dlpack" and not array.empty)
        self.outside()
        ready = None if view.ready is None else self.readied(view)
        if ready is None and view.ready is not None:
            self.wait_for_device(self.gone_at(view))
        on = ready or f"T{view.place}"
        if view.ready is not None:
            self.edge(self.also(view.on, view), on)
        self._see(step.name, view.array, on)
        self.wait_on_host(on)
        self._add(step.name)

    # Promises that are more than the bridge makes, for the test that the soak finds out.
    lies: frozenset[str] = frozenset()

    def _export(self, step: s.Export) -> None:
        source = step.source
        readonly = (self.views if source[0] == "v" else self.arrays)[source].readonly
        wants(step.versioned or not readonly, "legacy capsules cannot say read-only")
        made = self._exported(step) if source[0] == "v" else self._own_export(step)
        made = made._replace(kind="capsule", versioned=step.versioned)
        self.hand_out(step.name, made, self.holds[source][0])

    def _exported(self, step: s.Export) -> View:
        view = self.by_now(self.views[step.source])
        wants(step.source in self.holds and view.kind == "dlpack")
        at = self._asked_device(view, step.device)
        gpus = view.gpus or step.device is not None
        stream = self.asked(step.stream, at, gpus=gpus)
        argument = f"L{at}" if step.stream is None else step.stream
        if step.stream is None and not gpus:
            self._wait_for_a_reader(view)
        if step.stream != -1:
            self.hand_over(view, stream or f"L{at}")
        user = self.user(argument, view.home)
        return view.handed_on(user)._replace(at=at, gpus=gpus, lent=False)

    def _wait_for_a_reader(self, view: View) -> None:
        """A consumer without a stream may read on the CPU what that reaches: the host waits."""
        if view.ready is None:
            return
        first = self.readied(view)
        if first is None:
            self.wait_for_device(self.gone_at(view))
            return
        also = self.also(view.on, view)
        for stream in (first,) if also is None else (first, also):
            self.wait_for_device(self.lanes[stream].device)

    def _asked_device(self, view: View, device: int | None) -> int:
        """Tell where a consumer works that asks for a GPU, which has to reach the memory."""
        wants(device is None or not (view.gpus or self.arrays[view.array].empty))
        return view.at if device is None else device

    def _own_export(self, step: s.Export) -> View:
        """The producer's own capsule: the bridge has no part in its end."""
        source, array = step.source, self.arrays[step.source]
        stream = self.asked(step.stream, array.device)
        wants(stream is None or step.stream == f"{stream}.handle")
        wants(array.says("dlpack") in {"dlpack", "dlpack-legacy"} and step.device is None)
        wants(array.says("dlpack") == "dlpack" or not step.versioned)
        if step.stream != -1 and not array.empty:
            self.makes_ready(array, stream or f"L{array.device}")
        place = array.device
        return View(source, array.pending, None, array.readonly, place, place, gpus=array.own)

    def makes_ready(self, array: Array, stream: str) -> None:
        """A producer makes its memory ready on a stream by itself."""
        if array.pending is not None and not array.empty and array.says("dlpack") != DEAF:
            self.usable(array.pending)
            self.own_wait(array.pending, stream)

    def _consume(self, step: s.Consume) -> None:
        source = step.source
        view = self.views[source]
        array = self.arrays[view.array]
        kind = "capsule" if source[0] == "k" else step.kind
        view = self.by_now(view) if kind.startswith("dlpack") else view
        wants(source in self.holds)
        wants(kind == "address" or (view.kind == "cai") == kind.startswith("cai"))
        wants((source[0] == "k") == (step.kind == "capsule") and not (step.by_hand and array.empty))
        own = str(s.stream_of(step.stream))
        wants(own == step.stream or kind.startswith("cai") or kind == "address")
        # The stream is current while its library takes the array in.
        two_ways = {own, f"{own}.external"} - {step.stream}
        wants(not two_ways & {*self.current}, "twice, in two ways")
        self.current = (*self.current, step.stream)
        at = view.at if step.device is None else self._asked_device(view, step.device)
        anywhere = kind in ANYWHERE and not (view.gpus or s.is_default(own))
        anywhere = anywhere or (view.copy and own == view.user.stream)
        anywhere = anywhere or (view.copy and view.user.kept and own == view.user.kept.stream)
        wants(self.lanes[own].device == at or (anywhere and step.device is None))
        wants(step.device is None or kind in ASKS)
        on = self._entitled(step, view, kind, at)
        wants(step.value is None or not view.readonly, "read-only")
        if step.value is None:
            self._see(step.name, view.array, on)
        else:
            self.seen[step.name] = None
            self._write(view.array, on, step.value)
        self._taken_in(step, kind, at)

    def _taken_in(self, step: s.Consume, kind: str, at: int) -> None:
        """What the consumer holds; an address holds nothing."""
        source = step.source
        if kind == "address":
            self._add(step.name)
            return
        view = self.views[source]
        if kind.startswith("cai") or kind == "dlpack-borrowed":
            self._add(step.name, source)
            if kind == "dlpack-borrowed" and not self.arrays[view.array].empty:
                self.views[source] = view._replace(lent=True)
            return
        if kind != "capsule":
            view = self.by_now(view)
        taken = view._replace(kind="import", lent=False)
        if kind != "capsule":
            argument = -1 if kind == "dlpack-unordered" else step.stream
            argument = f"L{at}" if kind in LEGACY_KINDS else argument
            gpus = view.gpus or step.device is not None
            user = self.user(argument, view.home)
            taken = taken.handed_on(user)._replace(at=at, gpus=gpus)
        self.hand_out(step.name, taken, self.holds[source][0])
        if kind == "capsule":
            self._consumed(source)
            self.by_hand |= {step.name} if step.by_hand else frozenset()

    def _consumed(self, capsule: str) -> None:
        """A capsule's tensor, with all that it holds, is somebody else's now."""
        held = self.holds.pop(capsule)
        del self.named[capsule], self.views[capsule], self.count[capsule]
        for name in held:
            self._less(name)

    def _entitled(self, step: s.Consume, view: View, kind: str, at: int) -> str:
        """Take the array in: the stream that the consumer may work on."""
        own, legacy, ready = str(s.stream_of(step.stream)), f"L{at}", view.ready
        if kind == "dlpack-unordered" and ready is not None and "-1 waits" in self.lies:
            self.connect(ready, own)
        if kind == "address":
            self._noted_reader(step.source, {"nobody", "unread", "unnamed"})
        if kind in {"capsule", "dlpack-unordered", "address"}:
            return own
        if kind.startswith("cai"):
            return self._reads_dict(step, view, kind)
        wants(kind not in NO_READONLY or not view.readonly)
        on = legacy if kind in LEGACY_KINDS else own
        if kind == "dlpack-none" and not (view.gpus or step.device is not None):
            self._wait_for_a_reader(view)
        self.hand_over(view, on)
        return on

    def _reads_dict(self, step: s.Consume, view: View, kind: str) -> str:
        own = str(s.stream_of(step.stream))
        ready = self.named_by_dict(step.source, own if kind == "cai-trusting" else None)
        if kind == "cai-trusting" or ready is None:
            return own
        self.usable(ready)
        # Stand-ins take the dict's stream for one of the memory's GPU.
        wants(self.lanes[ready].device == self.arrays[view.array].device)
        if kind == "cai-waits":
            self.own_wait(ready, own)
        elif kind == "cai-blocks":
            self.wait_on_host(ready)
        else:
            return ready
        return own

    def named_by_dict(self, name: str, trusting: str | None = None) -> str | None:
        """Name the stream that a view's dict names: none where it was closed and the host waits.

        The streams that libraries work on are noted; a library that ignores dicts waits here.
        """
        view = self.by_now(self.views[name])
        ready, on = view.ready, view.on
        wants(self.capture is None or not self._has_moved(view))
        if ready is not None and on is not None and on.by in {"object", "exporter", "pinned"}:
            ready, also = self.readied(view), self.also(view.on, view)
            if ready is None:
                self.wait_for_device(self.gone_at(view))
            elif also is not None:
                self.edge(ready, also)
                ready = also
        if view.user.kind not in {"unread", "unnamed"} or self.arrays[view.array].empty:
            return ready
        if trusting is not None and ready not in {None, trusting}:
            self._wait_for_producer(view, trusting)
        on = view.on
        own = on is None or on == view.home or s.is_default(on.stream)
        self._noted_reader(name, {"unread", "unnamed"}, None if own else on)
        return ready

    def _noted_reader(self, name: str, kinds: set[str], named: StreamRef | None = None) -> None:
        """Somebody reads a dict or an address who says nothing of where he works.

        He may work on the stream that the dict has `named`, where that is not the producer's.
        Libraries may work on streams that nothing keeps; a blocking one is the legacy stream's.
        """
        view = self.views[name]
        if view.user.kind not in kinds or self.arrays[view.array].empty:
            return
        seen = view.user.seen
        if named is not None and named not in seen:
            seen += (named,)
        for stream in self.working(view.at):
            kept = self.keep(f"{stream}.handle")
            if kept is None and self.lanes[stream].kind == "non-blocking":
                kept = StreamRef(stream, "nobody")
            if kept is not None and kept.stream == stream and stream[0] != "L":
                seen += (kept,) if kept not in seen else ()
        self.change(name, view._replace(user=User("unnamed", seen=seen)))

    def _wait_for_producer(self, view: View, own: str) -> None:
        first = self.readied(view)
        if first is None:
            self.wait_for_device(self.gone_at(view))
        else:
            for stream in (self.also(view.on, view), first):
                wants(not self.is_captured(stream) and not self.is_captured(own))
                self.edge(stream, own)

    def _relay(self, step: s.Relay) -> None:
        """A library's array of a capsule: its own array from there on, on its own stream."""
        view = self.views[step.source]
        array = self.arrays[view.array]
        wants(step.source in self.holds and view.kind == "capsule" and not array.empty)
        wants(view.at == array.device == self.lanes[step.stream].device)
        tensor, readonly = "i" + step.name[1:], view.readonly
        self.hand_out(tensor, view._replace(kind="import"), self.holds[step.source][0], named=False)
        self._consumed(step.source)
        # A tensor says which GPU's it is, a dict does not.
        own = view.gpus if step.speaks == "dlpack" else self.arrays[self.root(view.array)].own
        made = Array(array.device, (step.speaks,), readonly, False, None, step.stream, own)
        self.arrays[step.name] = made._replace(root=self.root(view.array))
        self._add(step.name, tensor, step.stream)
        self.count[tensor] -= 1

    def _adopt(self, step: s.Adopt) -> None:
        """A tensor is imported through the exchange table of our own views."""
        view = self.views[step.source]
        array = self.arrays[view.array]
        wants(step.source in self.holds and view.kind == "capsule" and step.source[0] == "k")
        wants(view.versioned and not view.copy)
        place = view.at if view.gpus else array.device
        ready = None if array.empty else f"L{place}"
        tensor = "i" + step.name[1:]
        self.hand_out(tensor, view._replace(kind="import"), self.holds[step.source][0], named=False)
        self._consumed(step.source)
        on = None if ready is None else StreamRef(ready)
        made = View(view.array, ready, on, view.readonly, place, place, tensor=True, gpus=view.gpus)
        made = made._replace(**self.from_lease(view))
        self.hand_out(step.name, made._replace(kind="dlpack"), tensor)
        self.count[tensor] -= 1


# Who may work on the stream of another GPU, where the memory is no GPU's own.
ANYWHERE = {"capsule", "cai-waits", "cai-enqueues", "cai-blocks", "dlpack", "dlpack-unordered"}

ANYWHERE |= {"dlpack-legacy-capsule"}

ASKS = {"dlpack", "dlpack-legacy-capsule", "dlpack-none", "dlpack-unordered"}
