"""Shows what each protocol says about an array, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from .dlpack_capsule import Capsule
from .said import Said, why
from .said_cai import DOOR, DUNDER, said_by_dict
from .said_dlpack import said_by_capsule, said_by_method, said_by_table

_ROWS = (
    *("version", "ptr", "shape", "strides", "dtype", "typestr", "itemsize"),
    *("device", "readonly", "stream"),
)
_SPOKEN = (DUNDER, "__dlpack__", "__dlpack_c_exchange_api__")


@dataclass(frozen=True)
class Description:
    """What an object says about itself by each protocol; `describe` makes it.

    ``description["CAI"]`` is the `Said` of one door, and ``"CAI" in description`` tells whether the
    object has this door. ``print(description)`` shows a table with one column for each door.

    Attributes
    ----------
    kind : str
        The name of the object's type.
    said : tuple of Said
        One `Said` for each of the object's doors: ``"CAI"``, ``"exchange API"``, ``"__dlpack__"``;
        or ``"capsule"`` for a bare capsule.
    """

    kind: str
    said: tuple[Said, ...]

    @property
    def doors(self) -> tuple[str, ...]:
        """The names of the doors."""
        return tuple(said.door for said in self.said)

    def __getitem__(self, door: str) -> Said:
        for said in self.said:
            if said.door == door:
                return said
        raise KeyError(f"{door!r}: {self.kind} speaks {', '.join(self.doors)}")

    def __contains__(self, door: object) -> bool:
        return door in self.doors

    def __iter__(self) -> Iterator[Said]:
        return iter(self.said)

    def __str__(self) -> str:
        rows = [("", *self.doors)]
        rows += [(name, *(_cell(said, name) for said in self.said)) for name in _ROWS]
        if any(said.masked for said in self.said):
            rows.append(("masked", *(_cell(said, "masked") for said in self.said)))
        lines = [self.kind, *aligned(rows)]
        for said in self.said:
            lines += [f"  {said.door}: {said.error}"] if said.error else []
            lines += [f"  {said.door}, malformed: {problem}" for problem in said.problems]
            lines += [f"  {said.door}: {note}" for note in said.notes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the description as dicts, lists and plain values, as JSON has them."""
        return {"kind": self.kind, "said": [_plain(said) for said in self.said]}


def _plain(said: Said) -> dict[str, Any]:
    values = {field.name: getattr(said, field.name) for field in fields(said)}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def cell(name: str, value: object) -> str:
    """Return a field's value as a cell of the table."""
    if value is None:
        return "-"
    return f"{value:#x}" if name == "ptr" and isinstance(value, int) else str(value)


def _cell(said: Said, name: str) -> str:
    value = getattr(said, name)
    if name == "stream" and value is None and said.door == DOOR and not said.error:
        # In a CAI dict None states that nothing is pending; in the other protocols it states
        # nothing.
        return "None"
    return cell(name, value)


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Lay rows of one length out in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (zip(row, widths, strict=True) for row in rows)
    return ["  " + "  ".join(f"{text:{width}}" for text, width in row).rstrip() for row in padded]


def describe(x: object) -> Description:
    """Return what each protocol says about an object, field by field, in one form.

    The object is not kept, and stays unchanged as far as the protocols allow:

    - ``__cuda_array_interface__`` is read once.
    - By the exchange API a managed tensor is exported, read, and deleted at once, since a borrowed
      tensor has neither version nor flags. The API takes no stream, so a producer orders only its
      own current work stream.
    - ``__dlpack__`` is called with ``stream=-1``. A producer that refuses -1 is called with 1, and
      makes the legacy default stream wait for pending work. For a CPU array the stream is None. The
      capsule is read, not consumed, and dropped.
    - A capsule is read, and stays usable.

    A view of `cai_bridge` also makes the waits that it makes at the end of each export.

    Parameters
    ----------
    x : object
        An array with ``__cuda_array_interface__``, ``__dlpack__`` or a type with
        ``__dlpack_c_exchange_api__``, in any mix; or a dict of the CUDA Array Interface; or a
        capsule. An attribute that raises `AttributeError`, or is None, counts as absent, and so
        does a table without major version 1.

    Returns
    -------
    Description
        One `Said` for each door. A producer's exception is in its ``error``, and malformed fields
        are in its ``problems``. Neither is raised here.

    Raises
    ------
    TypeError
        The object speaks neither protocol.

    Notes
    -----
    Pointers are addresses, shapes count items, strides count bytes. The protocols: CUDA Array
    Interface (Version 3), Python Interface Specification; DLPack 1.3, C API; Python array API
    standard 2024.12, ``array.__dlpack__``.
    """
    kind = type(x).__name__
    if isinstance(x, dict) and not any(getattr(type(x), name, None) for name in _SPOKEN):
        return Description(kind, (said_by_dict(x),))
    if isinstance(x, Capsule):
        return Description(kind, (said_by_capsule(x),))
    said = (_said_by_attribute(x), said_by_table(x), said_by_method(x))
    found = tuple(one for one in said if one is not None)
    if not found:
        raise TypeError(
            f"x: got {kind}; allowed: an object with __cuda_array_interface__, __dlpack__ or "
            "__dlpack_c_exchange_api__, a dict of the former, or a capsule"
        )
    return Description(kind, found)


def _said_by_attribute(x: object) -> Said | None:
    try:
        interface = getattr(x, "__cuda_array_interface__", None)
    except Exception as error:  # a producer may raise anything
        return Said(DOOR, error=why(error))
    if interface is None:
        return None
    return said_by_dict(interface, lambda: getattr(x, "dtype", None))
