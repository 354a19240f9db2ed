"""Reads and writes by the driver, for libraries without computation."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from cai_bridge.testing._region import Region
from cai_bridge.testing._values import DTYPES, compact_strides

from ..lab.gpu import GpuLab

_BITS = {1: "uint8", 2: "uint16"}


class StreamByCall:
    """A library without a current stream: the adapter's calls take one."""

    current: Any = 1
    default: Any = 1

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Set the stream that the adapter passes to calls."""
        before, self.current = self.current, self.default if stream is None else stream
        try:
            yield
        finally:
            self.current = before


@functools.cache
def _lab() -> GpuLab:
    return GpuLab(rounds=1)


def region_of(ptr: int, shape: Any, counts: Any, dtype: str, itemsize: int) -> Region:
    """Make a region from a library's description of an array; the strides are in items, or None.

    Items of a type without a name are read as their bits.
    """
    shape = tuple(shape)
    if counts is None:
        strides = compact_strides(shape, itemsize)
    else:
        strides = tuple(step * itemsize for step in counts)
    name = dtype if dtype in DTYPES else _BITS[itemsize]
    return Region(ptr, shape, strides, name, itemsize)


def queue_read(region: Region, stream: int) -> tuple[Any, int]:
    """Queue a read on a stream."""
    return _lab().read(stream, region), stream


def values_of(queued: tuple[Any, int]) -> Any:
    """Wait for a read, and return the values."""
    reading, stream = queued
    _lab().wait(stream)
    return reading.value


def queue_write(region: Region, stream: int, value: float) -> None:
    """Queue a write of one value to all items of a float32 region."""
    _lab().write(stream, region, value)
