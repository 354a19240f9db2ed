"""What a matrix holds, and its form as data."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from .routes import advised

MOST = 2**53
"""More than any count, and as much as every reader of JSON has."""

Outcome = Literal["right", "wrong", "ignored", "refused", "waits", "none", "crashed"]

ASPECTS = ("values", "handover", "release", "host", "readonly", "dtypes", "lazy")
"""What is judged of each route; see `Cell`."""


@dataclass(frozen=True)
class Aspect:
    """What one aspect of a route came to.

    Attributes
    ----------
    outcome : str
        ``"right"``; ``"wrong"``: other values than those written were read, or read-only memory
        was written; ``"ignored"``: read-only memory was written by a consumer that had been told
        not to; ``"refused"``: an exception; ``"waits"``: right, but the host waits;
        ``"none"``: there is nothing to judge; ``"crashed"``: the process ended.
    detail : str
        What was seen, or why there is nothing.
    wrong, rounds : int or None
        In how many rounds of how many it was wrong.
    ms : float or None
        How long the host was held, in milliseconds.
    """

    outcome: Outcome
    detail: str = ""
    wrong: int | None = None
    rounds: int | None = None
    ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give it as data for JSON, without what is not said."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Aspect:
        """Read what `to_dict` gave."""
        if data.get("outcome") not in get_args(Outcome):
            allowed = ", ".join(get_args(Outcome))
            raise ValueError(f"outcome: got {data.get('outcome')!r:.80}; allowed: {allowed}")
        wrong, rounds, ms = (data.get(name) for name in ("wrong", "rounds", "ms"))
        if not all(one is None or is_count(one) for one in (wrong, rounds)):
            got = f"{wrong!r:.80} and {rounds!r:.80}"
            raise ValueError(f"wrong and rounds: got {got}; allowed: integers of 0 or more")
        if not (ms is None or is_time(ms)):
            raise ValueError(f"ms: got {ms!r:.80}; allowed: a number of 0 or more")
        text_in(data, "detail", "")
        return cls(**data)


@dataclass(frozen=True)
class Cell:
    """One producer handed to one consumer by one route.

    Attributes
    ----------
    producer, consumer : str
        The libraries' names.
    route : str
        The route's name: what the consumer is handed, with ``x`` the producer's array, and by
        which protocol. See `ROUTES`.
    door : str
        The protocol that the consumer takes it in by: ``"cai"`` or ``"dlpack"``; or ``"convert"``
        where the bridge makes the consumer's array.
    bridged : bool
        Whether the route leads through `cai_bridge`.
    aspects : dict of str to Aspect
        By the names of `ASPECTS`:

        ``values``: the consumer reads the producer's values, in the same memory.
        ``handover``: with a write pending on the producer's stream, the consumer's read on its own
        stream sees what is written.
        ``release``: with the consumer's read pending, the array is dropped and the producer makes
        and fills another one of the size; the read sees the first one's values. The view of
        ``to_cai(x)``, which was not told the consumer's stream, is released on it.
        ``host``: how long the host is held while the producer's write is pending.
        ``readonly``: a read-only array cannot be written through. Everywhere else the consumer only
        reads, and `convert` is told so by ``readonly=False``.
        ``dtypes``: which of the element types that both have arrive as they are.
        ``lazy``: values that are recorded but not computed, such as a conjugate's, arrive.
    """

    producer: str
    consumer: str
    route: str
    door: str
    bridged: bool
    aspects: dict[str, Aspect] = field(default_factory=dict)

    def __getitem__(self, aspect: str) -> Aspect:
        return self.aspects[aspect]

    @property
    def exists(self) -> bool:
        """Whether both libraries speak what the route needs."""
        return any(one.outcome != "none" for one in self.aspects.values())

    def to_dict(self) -> dict[str, Any]:
        """Return it as data for JSON; `Matrix` describes the form."""
        aspects = {name: one.to_dict() for name, one in self.aspects.items()}
        return {**{name: getattr(self, name) for name in _CELL}, "aspects": aspects}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Cell:
        """Read what `to_dict` gave."""
        aspects = {name: Aspect.from_dict(one) for name, one in data["aspects"].items()}
        if odd := [name for name in aspects if name not in ASPECTS]:
            raise ValueError(f"aspects: got {odd[0]!r:.80}; allowed: {', '.join(ASPECTS)}")
        for name in ("producer", "consumer", "route", "door"):
            text_in(data, name)
        if not isinstance(data["bridged"], bool):
            raise ValueError(f"bridged: got {data['bridged']!r:.80}; allowed: true or false")
        return cls(**{name: data[name] for name in _CELL}, aspects=aspects)


_CELL = ("producer", "consumer", "route", "door", "bridged")


@dataclass(frozen=True)
class Matrix:
    """All cells, and what they were found on.

    As data it is, with every key always there but for the last three of an aspect::

        {"place": "NVIDIA H200, driver 580.95.05", "date": "2026-11-20T14:00:00+00:00",
         "version": "0.1.0", "versions": {"torch": "2.11.0"}, "rounds": 5,
         "producers": ["torch"], "consumers": ["cupy"],
         "cells": [{"producer": "torch", "consumer": "cupy", "route": "x by CAI", "door": "cai",
                    "bridged": false,
                    "aspects": {"handover": {"outcome": "wrong", "detail": "...", "wrong": 5,
                                             "rounds": 5, "ms": 0.02}}}]}

    Attributes
    ----------
    place : str
        The device.
    date : str
        When it was begun, in UTC, by ISO 8601.
    version : str
        The version of `cai_bridge`.
    versions : dict of str to str
        The versions of the libraries' distributions.
    rounds : int
        How often what depends on timing was tried.
    producers, consumers : tuple of str
        The libraries' names, in the order of the cells.
    cells : tuple of Cell
        Each producer with each consumer by each route, in this order.
    """

    place: str
    date: str
    version: str
    versions: dict[str, str]
    rounds: int
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    cells: tuple[Cell, ...]

    def cell(self, producer: str, consumer: str, route: str) -> Cell:
        """Find a cell.

        Raises
        ------
        KeyError
            There is none.
        """
        for one in self.cells:
            if (one.producer, one.consumer, one.route) == (producer, consumer, route):
                return one
        raise KeyError((producer, consumer, route))

    def advised(self, producer: str, consumer: str) -> Cell | None:
        """Find the cell of the view that is advised for a consumer; None where none exists."""
        for route in advised(consumer):
            with contextlib.suppress(KeyError):
                cell = self.cell(producer, consumer, route)
                if cell.exists:
                    return cell
        return None

    def to_dict(self) -> dict[str, Any]:
        """Give it as data for JSON."""
        plain = {name: getattr(self, name) for name in _MATRIX}
        lists = {name: list(getattr(self, name)) for name in ("producers", "consumers")}
        return {**plain, **lists, "cells": [one.to_dict() for one in self.cells]}

    def to_json(self) -> str:
        """Give it as JSON, one cell a line, so that two of them can be compared by lines."""
        data = self.to_dict()
        cells = ",\n".join(json.dumps(cell) for cell in data.pop("cells"))
        return f'{json.dumps(data, indent=1)[:-2]},\n "cells": [\n{cells}\n]}}\n'

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Matrix:
        """Read what `to_dict` gave.

        Raises
        ------
        KeyError, ValueError
            Something is missing, or is not what it should be.
        """
        for name in ("place", "date", "version"):
            text_in(data, name)
        for name in ("producers", "consumers"):
            if not isinstance(data[name], list | tuple) or not all(map(is_text, data[name])):
                raise ValueError(f"{name}: got {data[name]!r:.80}; allowed: a list of names")
        versions, rounds = data["versions"], data["rounds"]
        if not isinstance(versions, dict) or not all(map(is_text, (*versions, *versions.values()))):
            raise ValueError(f"versions: got {versions!r:.80}; allowed: an object of strings")
        if not is_count(rounds):
            raise ValueError(f"rounds: got {rounds!r:.80}; allowed: an integer of 0 or more")
        return cls(
            **{name: data[name] for name in _MATRIX},
            producers=tuple(data["producers"]),
            consumers=tuple(data["consumers"]),
            cells=tuple(Cell.from_dict(one) for one in data["cells"]),
        )


_MATRIX = ("place", "date", "version", "versions", "rounds")


def is_text(value: object) -> bool:
    """Tell whether it is a string that can be written."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_count(value: object) -> bool:
    """Tell whether it is an integer of 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


def is_time(value: object) -> bool:
    """Tell whether it is a finite number of 0 or more."""
    return is_count(value) or (isinstance(value, float) and 0 <= value < MOST)


def text_in(data: dict[str, Any], name: str, default: str | None = None) -> None:
    """Refuse what is no string where there must be one."""
    value = data[name] if default is None else data.get(name, default)
    if not is_text(value):
        raise ValueError(f"{name}: got {value!r:.80}; allowed: a string")
