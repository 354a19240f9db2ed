"""Strided memory: the bytes that it covers, and its values in Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cai_bridge import _core

from ._values import flat, nested, packer, shape_of, unpacker


@dataclass(frozen=True)
class Region:
    """The memory of an array's items.

    Attributes
    ----------
    ptr : int
        The address of the first item.
    shape, strides : tuple of int
        The extents in items and the strides in bytes.
    dtype : str
        The name of the element type.
    itemsize : int
        The size of an item, in bytes.
    readonly : bool
        Whether writing is forbidden.
    device : tuple of (int, int)
        DLPack's device.
    """

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    readonly: bool = False
    device: tuple[int, int] = (2, 0)

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    def offsets(self) -> Iterator[int]:
        """Walk the items' distances from the first item, with the last index changing fastest."""
        steps = (
            range(0, extent * stride, stride) if stride else itertools.repeat(0, extent)
            for extent, stride in zip(self.shape, self.strides, strict=True)
        )
        return map(sum, itertools.product(*steps))

    def spans(self) -> list[tuple[int, int]]:
        """List the ranges of bytes that the items cover, as ``(address, length)``."""
        if not self.size:
            return []
        start, run = self.ptr, self.itemsize
        outer: list[range] = []
        for stride, extent in sorted(zip(map(abs, self.strides), self.shape, strict=True)):
            if stride * (extent - 1) == 0:
                continue
            if stride <= run and not outer:
                run += stride * (extent - 1)
            else:
                outer.append(range(0, stride * extent, stride))
        for stride, extent in zip(self.strides, self.shape, strict=True):
            start += min(stride * (extent - 1), 0)
        return [(start + sum(steps), run) for steps in itertools.product(*reversed(outer))]

    def read(self, load: Callable[[int, int], bytes]) -> Any:
        """Read the items, as nested lists; a plain value if there is no dimension."""
        if not self.size:
            return nested(iter(()), self.shape)
        spans = self.spans()
        low = min(ptr for ptr, _ in spans)
        data = load(low, max(ptr + length for ptr, length in spans) - low)
        unpack, first = unpacker(self.dtype), self.ptr - low
        return nested((unpack(data, first + offset) for offset in self.offsets()), self.shape)

    def write(self, values: Sequence[bytes], store: Callable[[int, bytes], None]) -> None:
        """Write the items, in the order of `offsets`."""
        spans = self.spans()
        if not spans:
            return
        low = min(ptr for ptr, _ in spans)
        data = bytearray(max(ptr + length for ptr, length in spans) - low)
        for offset, value in zip(self.offsets(), values, strict=True):
            at = self.ptr - low + offset
            data[at : at + self.itemsize] = value
        for ptr, length in spans:
            store(ptr, bytes(data[ptr - low : ptr - low + length]))

    def pack(self, data: Any) -> list[bytes]:
        """Turn data of the region's shape, or one value for all items, into items."""
        taken = _core._simulated_values(data)
        shape, values = taken[1:] if taken else (shape_of(data), list(flat(data)))
        pack = packer(self.dtype)
        if shape == () and self.shape != ():
            return [pack(values[0])] * self.size
        if shape != self.shape and not (math.prod(shape) == self.size == 0):
            raise ValueError(f"data: got the shape {shape}; allowed: {self.shape}, or one value")
        return [pack(value) for value in values]
