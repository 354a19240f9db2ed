"""Happens-before, as the driver and the README promise it: the generator's own account of it.

It is written from the documents, not from the simulated device, so that an error in the one does
not hide in the other. Each access is a bit; what a stream, or the host, is ordered after is a set
of them. A blocking stream follows the *work* of its legacy default stream only: what that stream
merely waits for is nobody else's order here, though the simulated device has it so.
"""

from __future__ import annotations

from typing import NamedTuple

HOST = "host"


class Refused(Exception):
    """The program does what nobody promises, or what cannot be done."""


class Unordered(Refused):
    """An access that nothing orders after these earlier ones."""

    def __init__(self, missing: int, place: str) -> None:
        super().__init__(f"unordered on {place}")
        self.missing = missing
        self.place = place


class Lane(NamedTuple):
    """A stream: its device and whether it is the legacy default one, a blocking one, or neither."""

    device: int
    kind: str


class Captured(NamedTuple):
    """An access in a capture, which each launch of the graph makes again."""

    before: int
    block: str | None
    write: bool
    effect: tuple[str, str, int] | None


class Capture(NamedTuple):
    """A capture under way."""

    graph: str
    origin: str
    members: dict[str, int]
    nodes: tuple[Captured | None, ...]


class Graph(NamedTuple):
    """What a capture became, and what the launches so far are."""

    origin: str
    nodes: tuple[Captured | None, ...]
    end: int


class Order:
    """What comes after what. Copied by `copy`, so every value in it is never changed in place."""

    strict = True

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}
        self.after: dict[str, int] = {HOST: 0}
        self.work: dict[int, int] = {0: 0, 1: 0}
        self.blocks: dict[str, tuple[int, int]] = {}
        self.places: tuple[str, ...] = ()
        self.recorded = 0
        self.capture: Capture | None = None
        self.graphs: dict[str, Graph] = {}
        # Whether all that was queued has run.
        self.quiet = True
        # The step whose one edge is left out; with `stale` it is some earlier order instead.
        self.without: int | None = None
        self.stale = False
        self.number = 0
        self.edges: tuple[int, ...] = ()
        for device in (0, 1):
            self.lane(f"L{device}", device, "legacy")
            self.lane(f"T{device}", device, "blocking")

    def copy(self):
        """Another one to try a step on."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name, value in self.__dict__.items():
            if type(value) is dict:
                other.__dict__[name] = value.copy()
        return other

    def lane(self, name: str, device: int, kind: str) -> None:
        self.lanes[name] = Lane(device, kind)
        self.after[name] = 0

    def advance(self, stream: str) -> int:
        """Tell what an action queued on a stream just now is ordered after."""
        device, kind = self.lanes[stream]
        after = self.after[stream] | self.after[HOST]
        if kind == "legacy":
            for other, (place, role) in self.lanes.items():
                if place == device and role == "blocking":
                    after |= self.after[other]
        elif kind == "blocking":
            after |= self.work[device] if self.strict else self.after[f"L{device}"]
        self.after[stream] = after
        return after

    def edge(self, first: str | None, then: str | None) -> None:
        """Order what is queued on `then` from now on after what is queued on `first`."""
        if first is None or then is None or first == then:
            return
        self.edges = (*self.edges, self.number)
        if self.without == self.number:
            if self.capture is not None:
                raise Refused("an order that a capture is made of")
            # The other of its two calls is made, and is an action on its stream.
            self.advance(then if self.stale else first)
            self.after[then] |= self.recorded if self.stale else 0
            return
        if self.capture is not None:
            self._fork(first, then)
            return
        before = self.advance(first)
        self.recorded |= before
        self.advance(then)
        self.after[then] |= before

    def _fork(self, first: str, then: str) -> None:
        capture = self.capture
        if first not in capture.members or self.lanes[then].kind == "legacy":
            raise Refused("an order that a capture does not take")
        members, nodes = capture.members.copy(), capture.nodes
        if then not in members:
            # The fork by itself has to be joined.
            members[then], nodes = 1 << len(nodes), (*nodes, None)
        members[then] |= members[first]
        self.capture = capture._replace(members=members, nodes=nodes)

    def wait_on_host(self, stream: str | None) -> None:
        """Order the host after a stream, or after everything."""
        self.outside()
        if stream is None:
            self.after[HOST] |= (1 << len(self.places)) - 1
        else:
            self.after[HOST] |= self.advance(stream)

    def wait_for_device(self, device: int) -> None:
        """Order the host after all streams of a device."""
        self.outside()
        for stream, (place, _) in self.lanes.items():
            if place == device:
                self.after[HOST] |= self.after[stream]

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
        capture = self.capture
        if capture is not None:
            if place not in capture.members:
                raise Refused("beside a capture")
            before = capture.members[place]
            for number, other in enumerate(capture.nodes):
                same = other is not None and other.block == block and (write or other.write)
                if same and not before >> number & 1:
                    raise Refused("unordered inside the capture")
            node = Captured(before, block, write, effect)
            members = {**capture.members}
            members[place] |= 1 << len(capture.nodes)
            self.capture = capture._replace(members=members, nodes=(*capture.nodes, node))
            return False
        before = self.after[HOST] if place == HOST else self.advance(place)
        bit = self._touch(place, before, block, write=write)
        self.after[place] = before | bit
        return True

    def free(self, place: str, block: str) -> int:
        """Free a block, on its pool's stream or the host: no work that blocking streams follow."""
        before = self.after[HOST] if place == HOST else self.advance(place)
        work = self.work.copy()
        bit = self._touch(place, before, block, write=True)
        self.work = work
        self.after[place] = before | bit
        return bit

    def _touch(self, place: str, before: int, block: str | None, *, write: bool) -> int:
        bit = 1 << len(self.places)
        self.quiet = False
        if block is not None:
            written, read = self._checked(place, before, block, write=write)
            self.blocks[block] = (bit, 0) if write else (written, read | bit)
        self.places = (*self.places, place)
        if place in self.lanes and self.lanes[place].kind == "legacy":
            self.work[self.lanes[place].device] = before | bit
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
        before = self.after[HOST] if place == HOST else self.advance(place)
        if self.strict:
            # Else it may happen when all is done, at the program's end.
            self._checked(place, before | also, block, write=True)
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
        whole = (1 << len(capture.nodes)) - 1
        if capture.members[capture.origin] != whole:
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
            if node is None:
                real.append(0)
                continue
            before = start
            for number, bit in enumerate(real):
                if node.before >> number & 1:
                    before |= bit
            real.append(self._touch(stream, before, node.block, write=node.write))
            if node.effect is not None:
                effects.append(node.effect)
        for bit in real:
            start |= bit
        self.after[stream] |= start
        if self.lanes[stream].kind == "legacy":
            self.work[self.lanes[stream].device] = self.after[stream]
        self.graphs[graph] = Graph(origin, nodes, start)
        return effects
