"""Captures and the graphs that they become: values that are never changed in place."""

from __future__ import annotations

from typing import NamedTuple


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
        """Add a node on a stream."""
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
