"""What capsules and consumers promise: the part of the model that is about who takes memory in."""

from __future__ import annotations

from .. import steps as s
from ..refusing import wants
from .copies import Copies
from .strangers import DEAF
from .words import Array, StreamRef, User, View

LEGACY_KINDS = {"dlpack-none", "dlpack-exchange", "dlpack-borrowed"}
NO_READONLY = {"dlpack-legacy-capsule", "dlpack-borrowed"}


class Exports(Copies):
    """The model with exports, consumers, and libraries that pass on what they took in."""

    # Promises that are more than the bridge makes, for the test that the soak finds out.
    lies: frozenset[str] = frozenset()

    # --- capsules ---------------------------------------------------------------------------------

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

    # --- consumers --------------------------------------------------------------------------------

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
        """Read the dict: the stream to work on."""
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

    # --- what others make of capsules -------------------------------------------------------------

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
