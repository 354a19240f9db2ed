"""Happens-before, as the driver and the documents promise it: the generator's own account of it.

It is written from the documents and from what was measured of the driver, not from the simulated
device, so that an error in the one does not hide in the other. Each access is a bit; what a stream,
or the host, is ordered after is a set of them.
"""

from __future__ import annotations

from typing import NamedTuple

from ..program import Lacking, Refused


class Captured(NamedTuple):
    """A node of a graph, which each launch runs again.

    Work touches a block. A fork does nothing, and a wait for what is outside the graph (`outside`,
    a set of accesses) touches none.
    """

    before: int
    block: str | None
    write: bool
    effect: tuple[str, str, int] | None
    outside: int = 0


class Capture(NamedTuple):
    """A capture under way: its streams, each with the nodes that it is ordered after."""

    graph: str
    origin: str
    members: dict[str, int]
    nodes: tuple[Captured, ...]

    def add(self, stream: str, node: Captured) -> Capture:
        before = self.members[stream]
        members = {**self.members, stream: before | 1 << len(self.nodes)}
        return self._replace(members=members, nodes=(*self.nodes, node._replace(before=before)))

    def access(self, stream: str, node: Captured) -> Capture | None:
        """Add work on a stream; None where nothing orders it after other work on its block."""
        before = self.members[stream]
        for number, other in enumerate(self.nodes):
            same = other.block is not None and other.block == node.block
            if same and (node.write or other.write) and not before >> number & 1:
                return None
        return self.add(stream, node)

    def fork(self, first: str, then: str) -> Capture:
        """Order a stream after another one inside the capture, which it may join by that."""
        capture = self
        if then not in self.members:
            # The fork by itself has to be joined.
            joined = self._replace(members={**self.members, then: 0})
            capture = joined.add(then, Captured(0, None, False, None))
        members = capture.members
        return capture._replace(members={**members, then: members[then] | members[first]})

    def is_joined(self) -> bool:
        return self.members[self.origin] == (1 << len(self.nodes)) - 1


class Graph(NamedTuple):
    """What a capture became, and what the launches so far are."""

    origin: str
    nodes: tuple[Captured, ...]
    end: int


HOST = "host"


class Barred(Refused):
    """A graph capture is in the way, and the bridge refuses: nothing is touched."""


class Unordered(Lacking):
    """An access that nothing orders after these earlier ones."""

    def __init__(self, missing: int, place: str) -> None:
        super().__init__(f"unordered on {place}")
        self.missing = missing
        self.place = place


class Lane(NamedTuple):
    """A stream: its device and whether it is the legacy default one, a blocking one, or neither."""

    device: int
    kind: str


class Made(NamedTuple):
    """An order that is made: in which step, by whom, and between which streams.

    "edge" and "host" are the bridge's, "own" those of a library or the program.
    """

    step: int
    whose: str
    streams: tuple[str, ...] = ()
    captured: bool = False


class Left(NamedTuple):
    """One of the orders that a step of the bridge makes, which is left out."""

    step: int
    nth: int
    # Whether it is the record, so that what was recorded before is waited for in its stead.
    stale: bool = False


class Order:
    """What comes after what, and who touches memory.

    Copied by `copy`, so every value in it is never changed in place.
    """

    strict = True

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}
        self.after: dict[str, int] = {HOST: 0}
        self.places: tuple[str, ...] = ()
        self.recorded = 0
        self.capture: Capture | None = None
        # Whether all that was queued has run.
        self.quiet = True
        # The streams that libraries work on during a step; ".external" where they do not own it.
        self.current: tuple[str, ...] = ()
        # And the one of each device that a registered library works on until it moves on.
        self.registered: dict[int, str] = {}
        self.without: Left | None = None
        self.number = 0
        self.made: tuple[Made, ...] = ()
        for device in (0, 1):
            self.lane(f"L{device}", device, "legacy")
            self.lane(f"T{device}", device, "blocking")
        # Of each block the last write, and the reads since.
        self.blocks: dict[str, tuple[int, int]] = {}
        self.graphs: dict[str, Graph] = {}

    def copy(self):
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name, value in self.__dict__.items():
            if type(value) is dict:
                other.__dict__[name] = value.copy()
        return other

    def lane(self, name: str, device: int, kind: str) -> None:
        self.lanes[name] = Lane(device, kind)
        self.after[name] = 0

    def closure(self, stream: str) -> int:
        """Tell what an action queued on a stream just now is ordered after.

        The legacy default stream follows the blocking streams of its device, and they follow it,
        its waits included (H200, driver 580, facts/h200-driver-rules-3.txt).
        """
        device, kind = self.lanes[stream]
        after = self.after[stream] | self.after[HOST]
        if kind == "legacy":
            for other, (place, role) in self.lanes.items():
                if place == device and role == "blocking":
                    after |= self.after[other]
        elif kind == "blocking":
            after |= self.after[f"L{device}"]
        return after

    def advance(self, stream: str) -> int:
        """Queue an action on a stream: what it is ordered after, whatever comes next is, too."""
        self.after[stream] = self.closure(stream)
        return self.after[stream]

    def _point(self, stream: str) -> int:
        """Record an event; that this orders streams by itself is nothing that anybody says."""
        return self.closure(stream) if self.strict else self.advance(stream)

    def connect(self, first: str, then: str) -> None:
        point = self._point(first)
        self.recorded |= point
        if not self.strict:
            self.advance(then)
        self.after[then] |= point

    def edge(self, first: str | None, then: str | None, *, back: bool = False) -> None:
        """The bridge orders what is queued on `then` from now on after what is queued on `first`.

        With `back` it is the order of an end.
        """
        if first is None or then is None or first == then:
            return
        if self._meets_capture(first, then):
            self._captured_edge(first, then, back=back)
        elif self._is_left_out(Made(self.number, "edge", (first, then))):
            # The other of its two calls is made, and is an action on its stream.
            self.advance(then if self.without.stale else first)
            self.after[then] |= self.recorded if self.without.stale else 0
        else:
            self.connect(first, then)

    def _is_left_out(self, made: Made) -> bool:
        nth = sum(before.step == self.number for before in self.made)
        self.made = (*self.made, made)
        return self.without is not None and (self.without.step, self.without.nth) == (
            self.number,
            nth,
        )

    def is_captured(self, stream: str) -> bool:
        return self.capture is not None and stream in self.capture.members

    def is_beside(self, stream: str) -> bool:
        """Whether it is a legacy default stream with a blocking stream that is being captured."""
        device, kind = self.lanes[stream]
        members = () if self.capture is None else self.capture.members
        return kind == "legacy" and any(self.lanes[m] == (device, "blocking") for m in members)

    def _meets_capture(self, *streams: str) -> bool:
        return any(self.is_captured(stream) or self.is_beside(stream) for stream in streams)

    def _captured_edge(self, first: str, then: str, *, back: bool) -> None:
        """The table of the guarantees: "Graph captures"."""
        if self.is_beside(first) or self.is_beside(then):
            raise Barred("the legacy default stream beside a captured blocking stream")
        if self.is_captured(first) and not self.is_captured(then):
            if back:
                return
            if self.lanes[then].kind == "legacy":
                raise Barred("a fork to the legacy default stream")
        if self._is_left_out(Made(self.number, "edge", (first, then), captured=True)):
            if self.without.stale or not self.is_captured(then):
                raise Refused("an order that a capture is made of")
            return
        if self.is_captured(first):
            self.fork(first, then)
        else:
            # The graph waits for the work so far.
            point = self._point(first)
            self.capture = self.capture.add(then, Captured(0, None, False, None, point))

    def fork(self, first: str, then: str) -> None:
        """Have a stream join the capture, or wait inside it."""
        if not self.is_captured(first) or self.lanes[then].kind == "legacy":
            raise Refused("an order that a capture does not take")
        if self.capture.origin is not None and self.lanes[then].device != self._device():
            raise Refused("a capture of two devices")
        self.capture = self.capture.fork(first, then)

    def _device(self) -> int:
        return self.lanes[self.capture.origin].device

    def own_wait(self, first: str, then: str) -> None:
        """An event and a wait that are a library's or the program's own."""
        if first == then:
            return
        self.made = (*self.made, Made(self.number, "own", (first, then)))
        if self.is_beside(first) or self.is_beside(then):
            raise Refused("the legacy default stream beside a captured blocking stream")
        if self.is_captured(first):
            self.fork(first, then)
        elif self.is_captured(then):
            raise Refused("a wait of a capture for what is outside it")
        else:
            self.connect(first, then)

    def wait_on_host(self, stream: str | None) -> None:
        """Order the host after what a stream has queued, or after everything.

        A wait queues nothing, so a blocking stream takes nothing over from the legacy default one;
        the legacy one's end is that of the blocking streams as well (H100, driver 580, 2026-11).
        """
        self.outside()
        if stream is None:
            self.after[HOST] |= (1 << len(self.places)) - 1
        elif self.lanes[stream].kind == "legacy":
            self.after[HOST] |= self.advance(stream)
        else:
            self.after[HOST] |= self.after[stream]

    def wait_for_device(self, device: int) -> None:
        """The bridge has the host wait for all that streams of a device have queued.

        No capture minds, and what is captured is not waited for.
        """
        if self._is_left_out(Made(self.number, "host")):
            return
        for stream, (place, _) in self.lanes.items():
            if place == device:
                self.after[HOST] |= self.after[stream]

    def working(self, device: int, *, owned: bool = False, registered: bool = True) -> list[str]:
        """List the streams of a device that libraries work on: all, or those that they own."""
        names = list(self.current)
        if registered and (there := self.works_there(device)) is not None:
            names.append(there)
        found = [name.partition(".") for name in names]
        here = [one for one in found if self.lanes[one[0]].device == device]
        return [stream for stream, _, bare in here if not (owned and bare)]

    def outside(self) -> None:
        """Refuse what a capture does not take."""
        if self.capture is not None:
            raise Refused("inside a capture")

    def access(
        self,
        place: str,
        block: str | None,
        *,
        write: bool,
        effect: tuple[str, str, int] | None = None,
    ) -> bool:
        """Touch a block, on a stream or the host; False where that is only captured."""
        if place != HOST and self.is_beside(place):
            raise Refused("the legacy default stream beside a captured blocking stream")
        if self.is_captured(place):
            made = self.capture.access(place, Captured(0, block, write, effect))
            if made is None:
                raise Unordered(0, place)
            self.capture = made
            return False
        before = self.after[HOST] if place == HOST else self.advance(place)
        bit = self._touch(place, before, block, write=write)
        self.after[place] = before | bit
        return True

    def free(self, place: str, block: str) -> int:
        """Free a block, on its pool's stream or the host."""
        before = self.after[HOST] if place == HOST else self.advance(place)
        bit = self._touch(place, before, block, write=True)
        self.after[place] = before | bit
        return bit

    def _touch(self, place: str, before: int, block: str | None, *, write: bool) -> int:
        bit = 1 << len(self.places)
        self.quiet = False
        if block is not None:
            written, read = self._checked(place, before, block, write=write)
            self.blocks[block] = (bit, 0) if write else (written, read | bit)
        self.places = (*self.places, place)
        return bit

    def _checked(self, place: str, before: int, block: str, *, write: bool) -> tuple[int, int]:
        written, read = self.blocks[block]
        missing = (written | (read if write else 0)) & ~before
        if missing:
            raise Unordered(missing, place)
        return written, read

    def may_free(self, place: str, block: str, also: int) -> None:
        """Free a block now or later, after what is ordered before now and `also`.

        What comes next on the pool's stream follows that by itself, so there is nothing to note.
        """
        if self.strict:
            before = self.after[HOST] if place == HOST else self.closure(place)
            self._checked(place, before | also, block, write=True)
        elif place != HOST:
            # It may happen when all is done, at the program's end.
            self.advance(place)
        self.quiet = False

    def begin(self, graph: str, origin: str) -> None:
        self.outside()
        if self.lanes[origin].kind == "legacy":
            raise Refused("the legacy default stream cannot be captured")
        self.capture = Capture(graph, origin, {origin: 0}, ())

    def end(self, graph: str) -> None:
        capture = self.capture
        if capture is None or capture.graph != graph:
            raise Refused("no such capture")
        if not capture.is_joined():
            raise Refused("a fork that is not joined")
        self.capture = None
        self.graphs[graph] = Graph(capture.origin, capture.nodes, 0)

    def replay(self, graph: str, stream: str) -> list[tuple[str, str, int]]:
        """Launch a graph; returns the effects of its work, in order."""
        self.outside()
        if graph not in self.graphs:
            raise Refused("not captured yet")
        origin, nodes, end = self.graphs[graph]
        if self.lanes[origin].device != self.lanes[stream].device:
            raise Refused("another device")
        start = self.advance(stream) | end
        real: list[int] = []
        effects = []
        for node in nodes:
            before = start
            for number, bits in enumerate(real):
                if node.before >> number & 1:
                    before |= bits
            if node.block is None:
                real.append(node.outside)
                continue
            real.append(self._touch(stream, before, node.block, write=node.write))
            if node.effect is not None:
                effects.append(node.effect)
        for bits in real:
            start |= bits
        self.after[stream] |= start
        self.graphs[graph] = Graph(origin, nodes, start)
        return effects
