"""The cells of a matrix, and their form as data."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from .routes import advised

MOST = 2**53
"""The largest count, which every reader of JSON can hold."""

Outcome = Literal["right", "wrong", "ignored", "refused", "waits", "none", "crashed"]

ASPECTS = ("values", "handover", "release", "host", "readonly", "dtypes", "lazy")
"""The aspects judged for each route; see `Cell`."""


@dataclass(frozen=True)
class Aspect:
    """The outcome of one aspect of a route.

    Attributes
    ----------
    outcome : str
        ``"right"``; ``"wrong"``: the consumer read other values, or wrote to read-only memory;
        ``"ignored"``: the consumer wrote to read-only memory although its protocol said so;
        ``"refused"``: an exception; ``"waits"``: right, but the host waits; ``"none"``: there is
        nothing to judge; ``"crashed"``: the process ended.
    detail : str
        The observation, or why there is nothing to judge.
    wrong, rounds : int or None
        The number of wrong rounds, and the number of rounds.
    ms : float or None
        How long the host was blocked, in milliseconds.
    """

    outcome: Outcome
    detail: str = ""
    wrong: int | None = None
    rounds: int | None = None
    ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the aspect as data for JSON, without values that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Aspect:
        """Read the data of `to_dict`."""
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
        The route's name: the object that the consumer gets, with ``x`` for the producer's array,
        and the protocol. See `ROUTES`.
    door : str
        The protocol by which the consumer imports: ``"cai"`` or ``"dlpack"``; or ``"convert"`` if
        the bridge makes the consumer's array.
    bridged : bool
        Whether the route uses `cai_bridge`.
    aspects : dict of str to Aspect
        By the names of `ASPECTS`:

        ``values``: the consumer reads the producer's values, in the same memory.
        ``handover``: the producer's write is pending on its stream, and the consumer's read on its
        own stream sees the written value.
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
        """Whether both libraries speak the route's protocols."""
        return any(one.outcome != "none" for one in self.aspects.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the cell as data for JSON; `Matrix` describes the form."""
        aspects = {name: one.to_dict() for name, one in self.aspects.items()}
        return {**{name: getattr(self, name) for name in _CELL}, "aspects": aspects}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Cell:
        """Read the data of `to_dict`."""
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
    """All cells, with the device, the versions and the date.

    As data every key is always present, except the last three of an aspect::

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
        The start time in UTC, in ISO 8601.
    version : str
        The version of `cai_bridge`.
    versions : dict of str to str
        The versions of the libraries' distributions.
    rounds : int
        How often an aspect that depends on timing was tried.
    producers, consumers : tuple of str
        The libraries' names, in the order of the cells.
    cells : tuple of Cell
        One cell for each producer, consumer and route, in this order.
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
            There is no such cell.
        """
        for one in self.cells:
            if (one.producer, one.consumer, one.route) == (producer, consumer, route):
                return one
        raise KeyError((producer, consumer, route))

    def advised(self, producer: str, consumer: str) -> Cell | None:
        """Find the cell of the view recommended for a consumer; None if there is none."""
        for route in advised(consumer):
            with contextlib.suppress(KeyError):
                cell = self.cell(producer, consumer, route)
                if cell.exists:
                    return cell
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the matrix as data for JSON."""
        plain = {name: getattr(self, name) for name in _MATRIX}
        lists = {name: list(getattr(self, name)) for name in ("producers", "consumers")}
        return {**plain, **lists, "cells": [one.to_dict() for one in self.cells]}

    def to_json(self) -> str:
        """Return JSON with one cell per line, so that two files can be compared by lines."""
        data = self.to_dict()
        cells = ",\n".join(json.dumps(cell) for cell in data.pop("cells"))
        return f'{json.dumps(data, indent=1)[:-2]},\n "cells": [\n{cells}\n]}}\n'

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Matrix:
        """Read the data of `to_dict`.

        Raises
        ------
        KeyError, ValueError
            An entry is missing or malformed.
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
    """Return whether `value` is a string that can be encoded."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_count(value: object) -> bool:
    """Return whether `value` is an integer of 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


def is_time(value: object) -> bool:
    """Return whether `value` is a finite number of 0 or more."""
    return is_count(value) or (isinstance(value, float) and 0 <= value < MOST)


def text_in(data: dict[str, Any], name: str, default: str | None = None) -> None:
    """Refuse an entry that must be a string and is not."""
    value = data[name] if default is None else data.get(name, default)
    if not is_text(value):
        raise ValueError(f"{name}: got {value!r:.80}; allowed: a string")
