"""Checks of the simulated device's arguments, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from cai_bridge._core import _shown


def refuse(kind: type[Exception], field: str, got: Any, allowed: str) -> NoReturn:
    """Raise an error in the usual form."""
    raise kind(f"{field}: got {_shown(got):.80}; allowed: {allowed}") from None


def flag(field: str, value: Any) -> bool:
    """Return a checked flag."""
    if not isinstance(value, bool):
        refuse(TypeError, field, value, "True or False")
    return value


def text(field: str, value: Any) -> str:
    """Return a checked text."""
    if not isinstance(value, str):
        refuse(TypeError, field, value, "a str")
    return value


def integer(field: str, value: Any, low: int, allowed: str) -> int:
    """Return a checked integer of at least `low`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        refuse(TypeError, field, value, allowed)
    if (number := value.__index__()) < low:
        refuse(ValueError, field, value, allowed)
    return int(number)


def device(value: Any, devices: int) -> int:
    """Return the checked ordinal of one of `devices` devices."""
    allowed = "0" if devices == 1 else "0 or 1" if devices == 2 else f"0 to {devices - 1}"
    if integer("device", value, 0, allowed) >= devices:
        refuse(ValueError, "device", value, allowed)
    return int(value)


def choice(field: str, value: Any, allowed: Iterable[str]) -> str:
    """Return a checked word of several."""
    known = list(allowed)
    if not isinstance(value, str) or value not in known:
        refuse(ValueError, field, value, ", ".join(known))
    return value


def extents(field: str, value: Any, allowed: str) -> tuple[int, ...]:
    """Return a checked tuple of integers."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        refuse(TypeError, field, value, allowed)
    for item in value:
        if isinstance(item, bool) or not hasattr(item, "__index__"):
            refuse(TypeError, field, value, allowed)
    return tuple(item.__index__() for item in value)
