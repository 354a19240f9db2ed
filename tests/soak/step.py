"""What all steps of a program have, and the words that they are written in."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

Argument = str | int | None

# Shape, strides in items ("C" or "F"), and the offset in items of the first one.
LAYOUTS: dict[str, tuple[tuple[int, ...], str | tuple[int, ...], int]] = {
    "vector": ((6,), "C", 0),
    "matrix": ((2, 3), "C", 0),
    "fortran": ((2, 3), "F", 0),
    "gaps": ((2, 2), (8, 2), 0),
    "reversed": ((6,), (-1,), 0),
    "repeated": ((3, 2), (0, 1), 0),
    "offset": ((4,), "C", 2),
    "scalar": ((), "C", 0),
    "empty": ((0, 3), "C", 0),
}
ITEMSIZE = {"float32": 4, "int16": 2, "complex64": 8, "bfloat16": 2, "uint8": 1}


def stream_of(argument: Argument) -> str | None:
    """Name the stream that an argument is about."""
    return argument.partition(".")[0] if isinstance(argument, str) else None


def within(current: str | None, made: str) -> str:
    """Write a statement, in the block of the library's current stream if there is one."""
    return f"with cuda.current_stream({current}): {made}" if current else made


def is_default(stream: str) -> bool:
    """Whether a stream is there from the beginning."""
    return stream[0] in "LT"


@dataclass(frozen=True)
class Step:
    """One statement. A field `name` is what it makes; names in other fields are what it needs."""

    simplest: ClassVar[dict[str, object]] = {}

    def makes(self) -> str | None:
        return getattr(self, "name", None)

    def names(self) -> set[str]:
        """All that it makes."""
        made = self.makes()
        return set() if made is None else {made}

    def simpler(self) -> list[Step]:
        """Other steps that do a part of what it does."""
        return []

    def needs(self) -> set[str]:
        found: set[str] = set()
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Step):
                found |= value.needs()
            elif isinstance(value, str) and field.name in REFERENCES:
                found.add(value.partition(".")[0])
        return {name for name in found if name and not is_default(name)}

    def bare(self) -> set[str]:
        """The streams that it names by their handles alone."""
        found: set[str] = set()
        for field in fields(self):
            value = getattr(self, field.name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Step):
                    found |= part.bare()
                elif isinstance(part, str) and field.name in REFERENCES and "." in part:
                    found.add(part.partition(".")[0])
        return found


REFERENCES = {"stream", "array", "source", "view", "first", "then", "current", "graph", "what"}
