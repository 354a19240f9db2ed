"""A lab's own arrays for consumers: each speaks one protocol, with every detail configurable.

They follow the specifications, unless a check asks for something else.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any, Self

from cai_bridge.testing._region import Region
from cai_bridge.testing._values import (
    SimulatedDtype,
    compact_strides,
    dtype_named,
    flat,
    nested,
)

from .base import Lab
from .objects import Late, handle_of

GUARD = 64
"""How many bytes lie before and after the items, which nothing may write."""

FILLER = 0xA5

# An 8-bit float's exponent and mantissa bits, and the suffixes for another bias than IEEE 754's.
_FLOAT8 = re.compile(r"float8_e(\d)m(\d)(?:b(\d+))?(fnuz)?")


def _ones(name: str) -> tuple[int, int] | None:
    """Return the bits of 1.0, and their distance to those of 2.0; None if it is no 8-bit float."""
    found = _FLOAT8.match(name)
    if found is None:
        return None
    bias = int(found[3] or 2 ** (int(found[1]) - 1) - (found[4] is None))
    step = 1 << int(found[2])
    return bias * step, step


LAYOUTS = {
    "C": "the compact one",
    "F": "the first axis is the fastest",
    "rotated": "the first axis is the fastest, and the others are as in C",
    "columns": "every second item of each axis of a C-contiguous array",
    "rows": "every second item of the first axis",
    "last": "every second item of the last axis",
    "reversed": "the first axis from its end, so that its stride is negative",
    "last reversed": "the last axis from its end",
    "all reversed": "each axis from its end",
    "repeated": "the first axis repeats one item, with a stride of 0",
    "last repeated": "the last axis does",
    "odd": "the compact one, with a stride of five items along axes of one item",
}
"""Where the items of an array may lie."""


def _laid_out(
    shape: tuple[int, ...], itemsize: int, layout: str
) -> tuple[int, tuple[int, ...], int]:
    """Return the first item's offset, the strides and the total size, all in bytes."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout: got {layout!r}; allowed: {', '.join(map(repr, LAYOUTS))}")
    steps = [*compact_strides(shape, itemsize)]
    if layout == "F":
        steps = [*compact_strides(shape[::-1], itemsize)[::-1]]
    elif layout == "rotated":
        last, *others = compact_strides((*shape[1:], shape[0]), itemsize)[::-1]
        steps = [last, *others[::-1]]
    elif layout == "odd":
        steps = [5 * itemsize if n == 1 else step for n, step in zip(shape, steps, strict=True)]
    axes = range(len(shape))
    some = {"rows": [0], "last": [-1], "repeated": [0], "last repeated": [-1]}.get(layout, axes)
    if layout in ("columns", "rows", "last"):
        # Strides as in an array with twice the extent along these axes.
        doubled = [*shape]
        for axis in some:
            doubled[axis] *= 2
        steps = [*compact_strides(tuple(doubled), itemsize)]
        for axis in some:
            steps[axis] *= 2
    if layout == "columns":
        steps = [2 * step for step in compact_strides(shape, itemsize)]
    turned = {"reversed": [0], "last reversed": [-1], "all reversed": axes}.get(layout, [])
    offset = 0
    for axis in turned:
        offset += steps[axis] * (shape[axis] - 1)
        steps[axis] = -steps[axis]
    if layout in ("repeated", "last repeated"):
        steps[some[0]] = 0
    wide = 2 if layout in ("columns", "rows", "last") else 1
    return offset, tuple(steps), wide * itemsize * math.prod(shape)


def _depth(values: Any) -> int:
    """Return how deep values are nested."""
    return 1 + _depth(values[0]) if isinstance(values, list | tuple) and values else 0


class HostMemory:
    """CPU memory, for arrays outside a device."""

    def __init__(self, nbytes: int) -> None:
        self._buffer = ctypes.create_string_buffer(nbytes)
        self.ptr = ctypes.addressof(self._buffer)


class LabArray:
    """An array in a lab's memory, which speaks no protocol itself.

    Parameters
    ----------
    lab : Lab
        The lab.
    shape : tuple of int
        The extents, in items.
    dtype : str
        The name of the element type.
    layout : str
        The arrangement of the items, one of `LAYOUTS`.
    value : float, optional
        The value of all items; by default the items count from 1 in the order of their addresses.
    host : bool
        Whether the memory is the CPU's. It stays uninitialised.
    memory : str
        ``"device"``, ``"managed"`` or ``"pinned"``.

    Attributes
    ----------
    region : Region
        The items' place in memory.
    values : nested lists
        The items' values; for 8-bit floats their bits.
    """

    HOST = (1, 0)

    def __init__(
        self,
        lab: Lab,
        shape: tuple[int, ...],
        dtype: str,
        layout: str,
        value: float | None,
        *,
        host: bool = False,
        memory: str = "device",
    ) -> None:
        self.lab, self.layout = lab, layout
        self.dtype: SimulatedDtype = dtype_named(dtype)
        itemsize = self.dtype.itemsize
        offset, strides, nbytes = _laid_out(shape, itemsize, layout)
        nbytes += 2 * GUARD
        self.memory = HostMemory(nbytes) if host else lab.memory(nbytes, kind=memory)
        self._nbytes = nbytes
        self.region = Region(
            self.memory.ptr + GUARD + offset, shape, strides, dtype, itemsize, device=lab.device
        )
        self.values = self._counted() if value is None else self._alike(value)
        if not host or lab.device == self.HOST:
            lab.store(self.memory.ptr, bytes([FILLER]) * nbytes)
            lab.put(self.region, self.values)

    def _alike(self, value: Any) -> Any:
        return nested(iter([value] * self.region.size), self.region.shape)

    def _counted(self) -> Any:
        # Each place in memory has one number, so repeated items are equal.
        low = self.region.ptr - self.memory.ptr - GUARD
        places = [(low + step) // self.dtype.itemsize for step in self.region.offsets()]
        name = self.dtype.name
        if ones := _ones(name):
            one, step = ones
            values: list[Any] = [one + step * (place % 2) for place in places]
        elif name == "bool":
            values = [place % 2 == 0 for place in places]
        elif name.startswith("complex"):
            values = [complex(place + 1, -place) for place in places]
        elif name.startswith(("float", "bfloat")):
            values = [float(place + 1) for place in places]
        else:
            values = [place + 1 for place in places]
        return nested(iter(values), self.region.shape)

    def holds(self, seen: Any) -> bool:
        """Return whether the values that a consumer read are the array's."""
        if self.region.size and _depth(seen) != len(self.region.shape):
            return False
        got, own = list(flat(seen)), list(flat(self.values))
        ones = _ones(self.dtype.name)
        if ones is None:
            # True equals 1, so compare the types as well: the consumer may have read integers.
            kinds = {type(one).__name__.rstrip("_") for one in got}
            return got == own and (self.dtype.name != "bool" or kinds <= {"bool"})
        numbers = [1.0 if bits == ones[0] else 2.0 for bits in own]
        return got in (own, numbers)

    def contents(self) -> bytes:
        """Read all of the memory, including the guard bytes on both sides of the items."""
        return self.lab.load(self.memory.ptr, self._nbytes)

    def swap_bytes(self) -> None:
        """Swap the bytes of each item of a C-contiguous array."""
        data = b"".join(item[::-1] for item in self.region.pack(self.values))
        self.lab.store(self.region.ptr, data)

    def first_item(self) -> Self:
        """Make a one-dimensional array of the first item, in the same memory."""
        made = copy.copy(self)
        region = self.region
        first = next(flat(self.values))
        made.values = [first]
        made.region = dataclasses.replace(region, shape=(1,), strides=(region.itemsize,))
        return made

    def write_late(self, stream: Any, value: float) -> Late:
        """Queue a held-back write on a stream, which the array's export then names.

        Parameters
        ----------
        stream : int or object with ``__cuda_stream__``
            The stream to write on.
        value : float
            The value that all items will have.
        """
        self._pending_on(stream)
        hold = self.lab.hold(handle_of(stream))
        self.lab.write(handle_of(stream), self.region, value)
        return Late(self, stream, value, hold)

    def _pending_on(self, stream: Any) -> None:
        raise NotImplementedError


class CaiArray(LabArray):
    """An array that speaks CAI only.

    Parameters
    ----------
    lab, shape, dtype, layout, value, memory
        As for `LabArray`.
    form : str
        ``"newest"``, ``"version 0"`` to ``"version 2"``, or for version 3 ``"bare"`` (no optional
        entry), ``"None"`` (every optional entry is None) or ``"descr"`` (every optional entry is
        set).
    stream : int or object with ``__cuda_stream__``, optional
        The stream that the dict names; the array holds a stream object.
    readonly : bool
        The read-only flag in ``data``.
    without : iterable of str
        The entries to leave out of the dict.
    **entries : object
        Entries to replace.

    Attributes
    ----------
    entries : dict
        The dict that the attribute returns a copy of.
    reads : int
        How often the attribute was read.
    """

    def __init__(
        self,
        lab: Lab,
        shape: tuple[int, ...] = (3, 4),
        dtype: str = "float32",
        *,
        layout: str = "C",
        value: float | None = None,
        memory: str = "device",
        form: str = "newest",
        stream: Any = None,
        readonly: bool = False,
        without: Iterable[str] = (),
        **entries: Any,
    ) -> None:
        super().__init__(lab, shape, dtype, layout, value, memory=memory)
        self.reads = 0
        region = self.region
        is_compact = region.strides == compact_strides(shape, region.itemsize)
        self.entries: dict[str, Any] = {
            "shape": shape,
            "typestr": self.dtype.typestr,
            "data": (region.ptr if region.size else 0, readonly),
            "strides": None if is_compact else region.strides,
            "version": 3,
            "stream": None,
        }
        self._streams: list[Any] = []
        self._form = form
        if form.startswith("version"):
            self.entries["version"] = int(form[-1])
            # Before version 2 a dict also had strides for C-contiguous arrays.
            if self.entries["version"] < 2:
                self.entries["strides"] = region.strides
            del self.entries["stream"]
        elif form == "bare":
            del self.entries["stream"]
            if is_compact:
                del self.entries["strides"]
        elif form == "None":
            self.entries["mask"] = None
        elif form == "descr":
            more = {"strides": region.strides, "descr": [("", self.dtype.typestr)], "mask": None}
            self.entries.update(more)
        if stream is not None:
            self._pending_on(stream)
        self.entries.update(entries)
        for name in without:
            del self.entries[name]

    def first_item(self) -> Self:
        """Make another array of the first item, in the same memory."""
        made = super().first_item()
        strides = made.region.strides if self.entries.get("strides") else None
        made.entries = {**self.entries, "shape": (1,), "strides": strides}
        return made

    def _pending_on(self, stream: Any) -> None:
        # The exporter must keep each stream that it has named alive.
        self._streams.append(stream)
        if self.entries["version"] >= 3:
            self.entries["stream"] = stream if isinstance(stream, int) else handle_of(stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """A copy of the dict."""
        self.reads += 1
        return dict(self.entries)
