"""What was seen of every pair of libraries, as it is kept in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .exits import UsageError
from .marks import OUTCOMES, worst

SIDES: dict[str, dict[str, str]] = {
    "native": {"native CAI": "CAI", "native DLPack": "DLPack"},
    "bridge": {"bridge by CAI": "CAI", "bridge by DLPack": "DLPack"},
}
"""The routes of a hand-over and what they are called in short, for each side."""

ROUTES: tuple[str, ...] = tuple(route for routes in SIDES.values() for route in routes)

ASPECTS: dict[str, str] = {
    "values": "the items, of any strides",
    "handover": "work that is pending at the hand-over is waited for",
    "release": "memory is not given back while the consumer reads",
    "host": "the host is not held meanwhile",
    "readonly": "what is read-only stays so",
    "dtypes": "all element types of the producer",
}
"""What is looked at on every route."""

FIRST_ASPECT = "values"
"""Where this is refused there is no route."""

_FIELDS = ("producer", "consumer", "route", "aspect", "outcome", "detail")


@dataclass(frozen=True)
class Cell:
    """What was seen of one pair, on one route, in one aspect."""

    producer: str
    consumer: str
    route: str
    aspect: str
    outcome: str
    detail: str = ""


@dataclass(frozen=True)
class Matrix:
    """What was seen of every pair.

    Attributes
    ----------
    place : str
        The device, and its driver.
    python : str
        The interpreter.
    generated : str
        When, as ISO 8601 has it.
    versions : dict
        The libraries' versions.
    cells : tuple of Cell
        What was seen.
    """

    place: str
    python: str
    generated: str
    versions: dict[str, str]
    cells: tuple[Cell, ...]
    _index: dict[tuple[str, str, str, str], Cell] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for one in self.cells:
            self._index[one.producer, one.consumer, one.route, one.aspect] = one

    @property
    def producers(self) -> list[str]:
        """The producers, in the order that they were run in."""
        return list(dict.fromkeys(one.producer for one in self.cells))

    @property
    def consumers(self) -> list[str]:
        """The consumers, in the order of the producers, and then those that only consume."""
        every = dict.fromkeys(one.consumer for one in self.cells)
        first = [name for name in self.producers if name in every]
        return [*first, *(name for name in every if name not in first)]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs that were run."""
        return list(dict.fromkeys((one.producer, one.consumer) for one in self.cells))

    def at(self, pair: tuple[str, str], route: str, aspect: str) -> Cell:
        """Find a cell; one that was not run has the outcome ``"none"``."""
        return self._index.get((*pair, route, aspect)) or Cell(*pair, route, aspect, "none")

    def of(self, pair: tuple[str, str], routes: Sequence[str] = ROUTES) -> Iterator[Cell]:
        """List what was seen of a pair, aspect by aspect."""
        for aspect in ASPECTS:
            for route in routes:
                yield self.at(pair, route, aspect)

    def worst(self, pair: tuple[str, str], route: str) -> str:
        """Tell the gravest outcome of a pair on a route.

        What is refused counts only where it is the array itself: a route that refuses some element
        type, say, is as good as the rest of it.
        """
        seen = {one.aspect: one.outcome for one in self.of(pair, (route,))}
        rest = [
            outcome
            for aspect, outcome in seen.items()
            if outcome != "refused" or aspect == FIRST_ASPECT
        ]
        return worst(rest)

    def count(self, outcome: str, routes: Sequence[str]) -> int:
        """Count an outcome on some routes."""
        return sum(one.outcome == outcome and one.route in routes for one in self.cells)


def matrix_of(data: Any) -> Matrix:
    """Read a matrix from what JSON holds.

    Raises
    ------
    UsageError
        It is no matrix; the message names the field.
    """
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list):
        raise UsageError("got no list of cells; allowed: what `cai-bridge matrix --json` wrote")
    versions = data.get("versions", {})
    if not isinstance(versions, dict):
        raise UsageError(f"versions: got {type(versions).__name__}; allowed: an object")
    return Matrix(
        place=str(data.get("place", "")),
        python=str(data.get("python", "")),
        generated=str(data.get("generated", "")),
        versions={str(name): str(version) for name, version in versions.items()},
        cells=tuple(_cell(one, index) for index, one in enumerate(cells)),
    )


def _cell(data: Any, index: int) -> Cell:
    if not isinstance(data, dict):
        raise UsageError(f"cells[{index}]: got {type(data).__name__}; allowed: an object")
    allowed = {"route": ROUTES, "aspect": ASPECTS, "outcome": OUTCOMES}
    for name in _FIELDS[:-1]:
        value, known = data.get(name), allowed.get(name)
        if not isinstance(value, str) or (known is not None and value not in known):
            said = ", ".join(known) if known else "a string"
            raise UsageError(f"cells[{index}].{name}: got {value!r}; allowed: {said}")
    return Cell(**{name: str(data.get(name, "")) for name in _FIELDS})


def read(path: str) -> Matrix:
    """Read a matrix from a file.

    Raises
    ------
    UsageError
        There is no such file, or it holds no matrix.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        return matrix_of(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
