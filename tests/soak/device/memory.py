"""Who touches memory, and whether all that was before is ordered before it."""

from __future__ import annotations

from ..refusing import Refused
from .graphs import Capture, Captured, Graph
from .order import HOST, Order, Unordered


class Memory(Order):
    """The order of things with blocks of memory, and the graphs that touch them."""

    def __init__(self) -> None:
        super().__init__()
        # Of each block the last write, and the reads since.
        self.blocks: dict[str, tuple[int, int]] = {}
        self.graphs: dict[str, Graph] = {}

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
            assert self.capture is not None
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

    # --- graphs -----------------------------------------------------------------------------------

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
