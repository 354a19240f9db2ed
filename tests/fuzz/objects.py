"""Producers whose every answer is an occasion to act."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Act = Callable[["Producer"], None]

SHAPES = [
    ((4,), "<f4"),
    ((2, 2), "<f4"),
    ((16,), "|u1"),
    ((2,), "<f8"),
    ((0,), "<f4"),
    ((8,), "<V2"),
    ((2,), "<M8[ns]"),
]
"""What may be said of 16 bytes."""


class Producer:
    """An object of a foreign library; `act` runs whenever the bridge asks it for anything."""

    def __init__(self, array, act):
        self.array = array
        self.act = act
        self.layout = SHAPES[0]
        self.gone = False
        # Whether its dict names a stream, and whether it says that its memory is another GPU's.
        self.names, self.lies = True, False

    def ask(self):
        self.act(self)

    @property
    def dtype(self):
        self.ask()
        return "bfloat16"


class Number:
    """An integer that acts when it is read."""

    def __init__(self, value, producer):
        self.value = value
        self.producer = producer

    def __index__(self):
        self.producer.ask()
        return self.value


class Key(str):
    """A key that acts when it is compared."""

    __slots__ = ("producer",)
    producer: Producer

    def __eq__(self, other):
        self.producer.ask()
        return str.__eq__(self, str(other))

    __hash__ = str.__hash__


class SpeaksCai(Producer):
    """A producer with a dict, the same one or a new one each time, whose entries act as well."""

    def __init__(self, array, act, *, numbers, keys, anew):
        super().__init__(array, act)
        self.numbers, self.keys, self.anew = numbers, keys, anew
        self.entries: dict[Any, Any] = {}

    @property
    def __cuda_array_interface__(self):
        self.ask()
        if self.gone:
            raise AttributeError("__cuda_array_interface__")
        if self.anew or not self.entries:
            self.entries = self.made()
        return self.entries

    def made(self):
        """A dict of what the array's layout is just now."""
        shape, typestr = self.layout
        extents = [Number(n, self) if self.numbers else n for n in shape]
        plain = {
            "shape": extents if self.numbers else tuple(extents),
            "typestr": typestr,
            "data": (self.array.ptr, False),
            "version": 3,
            "strides": None,
            "stream": 1 if self.names else None,
        }
        if not self.keys:
            return plain
        entries = {}
        for name, value in plain.items():
            key = Key(name)
            key.producer = self
            entries[key] = value
        return entries


class SpeaksDLPack(Producer):
    """A producer with `__dlpack__` and `__dlpack_device__`, those of its array."""

    def __dlpack__(self, **wishes):
        self.ask()
        if self.gone:
            raise BufferError("gone")
        return self.array.__dlpack__(**wishes)

    def __dlpack_device__(self):
        self.ask()
        kind, ordinal = self.array.__dlpack_device__()
        return kind, ordinal + self.lies


class Stream:
    """A stream object that acts when it is asked for its handle."""

    def __init__(self, handle, producer):
        self.handle = handle
        self.producer = producer

    def __cuda_stream__(self):
        try:
            self.producer.ask()
        except Exception as error:
            error.by_stream = True
            raise
        return (0, self.handle)
