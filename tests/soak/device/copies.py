"""What copies promise: the part of the model that is about `copy=True`.

A copy on a GPU is new memory, filled on the stream that was asked for (with -1 the one that the
array is ready on; for a stream of another GPU the legacy default one, which that one then waits
for), after what is pending; the producer waits for it as for a consumer that has come and gone. The
memory goes back in the order of that stream where somebody keeps it, else in that of the legacy
default stream. For a copy in the host's memory the host waits.
"""

from __future__ import annotations

from .. import steps as s
from ..refusing import wants
from .ends import Ends
from .words import Array, StreamRef, User, View


class Copies(Ends):
    """The model with copies, and what all hand-overs have in common."""

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

    # --- on a GPU ---------------------------------------------------------------------------------

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
        """Name the stream that a copy is made on."""
        stream = self.asked(argument, at, gpus=False)
        if stream is not None:
            # One of another GPU waits for the copy.
            return stream if self.lanes[stream].device == at else f"L{at}"
        ready = None if view.ready is None else self.readied(view)
        if argument == -1 and ready is not None and self.lanes[ready].device == at:
            return ready
        return f"L{at}"

    # --- on the host ------------------------------------------------------------------------------

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
