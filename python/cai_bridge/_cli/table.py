"""A matrix for display: by pair, by route, and summarized."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .exits import UsageError
from .marks import OUTCOMES, worst

if TYPE_CHECKING:
    from cai_bridge.conformance.matrix import Aspect, Cell, Matrix

ASPECTS: dict[str, str] = {
    "values": "the values arrive, in the same memory",
    "handover": "the consumer waits for work that is pending at hand-over",
    "release": "nobody reuses the memory while the consumer reads it",
    "host": "the host does not wait",
    "readonly": "read-only memory stays unwritten",
    "dtypes": "all element types that both libraries have arrive",
    "lazy": "values that are recorded but not computed, such as a conjugate's, arrive",
}
"""The aspects judged on every route, in the order in which they are shown."""

DOORS: dict[str, str] = {"cai": "CAI", "dlpack": "DLPack"}

CONVERT = "convert"
"""The door of routes on which the bridge makes the consumer's array."""

SIDES: dict[str, str] = {
    "native": "by themselves",
    "views": "by the bridge's views",
    "convert": "by convert()",
}
"""The ways between two libraries, by their names in the matrix."""

FIRST_ASPECT = "values"
"""The first aspect. If it is refused, there is no route."""


@dataclass(frozen=True)
class Route:
    """A way from a producer to a consumer, as the matrix's cells name it."""

    name: str
    door: str
    bridged: bool

    @property
    def side(self) -> str:
        """Which of `SIDES` it belongs to."""
        return CONVERT if self.door == CONVERT else "views" if self.bridged else "native"


Pair = tuple[str, str]


class Table:
    """The results for every pair.

    Parameters
    ----------
    matrix : Matrix
        The result of `run_matrix`.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self._cells: dict[tuple[Pair, str], Cell] = {}
        found: dict[Route, None] = {}
        for one in matrix.cells:
            self._cells[(one.producer, one.consumer), one.route] = one
            found[Route(one.route, one.door, one.bridged)] = None
        self.routes = sorted(found, key=lambda route: route.bridged)
        """Routes without the bridge first, otherwise in the order of the cells."""
        self.pairs: list[Pair] = list(dict.fromkeys(pair for pair, _ in self._cells))

    def seen(self, pair: Pair, route: Route, aspect: str) -> Aspect | None:
        """Return the result of one aspect; None if it was not judged."""
        cell = self._cells.get((pair, route.name))
        return None if cell is None else cell.aspects.get(aspect)

    def outcome(self, pair: Pair, route: Route, aspect: str) -> str:
        """Return the outcome of one aspect; ``"none"`` if it was not judged."""
        found = self.seen(pair, route, aspect)
        return "none" if found is None else found.outcome

    def worst(self, pair: Pair, route: Route) -> str:
        """Return the gravest outcome of a pair on a route.

        A refusal counts only if the array itself is refused. A route that refuses an element type,
        say, is as good as its other aspects.
        """
        outcomes = {aspect: self.outcome(pair, route, aspect) for aspect in ASPECTS}
        rest = [
            outcome
            for aspect, outcome in outcomes.items()
            if outcome != "refused" or aspect == FIRST_ASPECT
        ]
        return worst(rest)

    def best(self, pair: Pair, *, door: str | None = None, bridged: bool) -> str:
        """Return the outcome of the best route. A route's outcome is that of its worst aspect."""
        found = [
            self.worst(pair, route)
            for route in self.routes
            if route.bridged == bridged and door in (None, route.door)
        ]
        there = [outcome for outcome in found if outcome != "none"]
        return max(there, key=list(OUTCOMES).index, default="none")

    def advised(self, pair: Pair) -> Route | None:
        """Return the route by the bridge's views that is advised for the consumer."""
        cell = self.matrix.advised(*pair)
        return None if cell is None else Route(cell.route, cell.door, cell.bridged)

    def with_bridge(self, pair: Pair) -> str:
        """Return the gravest outcome of the advised route."""
        route = self.advised(pair)
        return "none" if route is None else self.worst(pair, route)

    def by_convert(self, pair: Pair) -> str:
        """Return the gravest outcome of `convert`."""
        found = [self.worst(pair, route) for route in self.routes if route.side == CONVERT]
        return worst(found)

    @property
    def sides(self) -> list[str]:
        """List the `SIDES` that were judged. Older files have no `convert`."""
        there = {route.side for route in self.routes}
        return [side for side in SIDES if side in there or side != CONVERT]

    def outcomes(self, side: str) -> Iterator[str]:
        """List the outcomes of all aspects of all pairs on one of `SIDES`.

        For views only the advised route counts, for the other sides every route.
        """
        for pair in self.pairs:
            advised = self.advised(pair)
            for route in self.routes:
                if route.side == side and (side != "views" or route == advised):
                    yield from (self.outcome(pair, route, aspect) for aspect in ASPECTS)


def read(path: str) -> Table:
    """Read a file that ``--json --output`` wrote.

    Raises
    ------
    UsageError
        There is no such file, or it holds no matrix.
    """
    from cai_bridge.conformance.matrix import Matrix

    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        matrix = Matrix.from_dict(data)
        _check(matrix)
        return Table(matrix)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path}: got no matrix ({type(error).__name__}: {error}); allowed: a file that "
            "`cai-bridge matrix --json --output` wrote"
        ) from error


def _check(matrix: Matrix) -> None:
    """Refuse a matrix that pages and tables cannot show: a file may hold anything."""
    for one in matrix.cells:
        if one.door not in {*DOORS, CONVERT}:
            got = f"{one.door!r:.80}"
            raise ValueError(f"door: got {got}; allowed: 'cai', 'dlpack' or 'convert'")
