"""A library that keeps all that CAI requires of a producer, on a GPU: it tracks its streams.

The libraries of today name one stream, whichever the work is on, so that views over their arrays
cannot know of another. Its memory and streams are the lab's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from cai_bridge.conformance import Lab, ProducerAdapter
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import compact_strides

LEGACY = SimpleNamespace(handle=1)


class Memory:
    """Device memory, and the streams that have work on it, the last one last."""

    def __init__(self, lab: Lab, nbytes: int) -> None:
        self.lab, self.block = lab, lab.memory(max(nbytes, 4))
        self.ptr = self.block.ptr
        self.streams: list[Any] = []

    def used_on(self, stream: Any) -> None:
        others = [one for one in self.streams if one.handle != stream.handle]
        self.streams = [*others, stream]

    def ready_stream(self) -> int | None:
        if not self.streams:
            return None
        *others, last = self.streams
        for other in others:
            self.lab.order(other.handle, last.handle)
        return int(last.handle)


class Array:
    """A float32 array that speaks CAI."""

    def __init__(self, memory: Memory, region: Region) -> None:
        self.memory, self.region = memory, region

    def __getitem__(self, index: Any) -> Array:
        region, ptr, shape, strides = self.region, self.region.ptr, [], []
        index = index if isinstance(index, tuple) else (index,)
        for one, extent, stride in zip(index, region.shape, region.strides, strict=True):
            places = range(*one.indices(extent))
            ptr += places.start * stride
            shape.append(len(places))
            strides.append(stride * places.step)
        return Array(self.memory, Region(ptr, tuple(shape), tuple(strides), "float32", 4))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        region = self.region
        compact = region.strides == compact_strides(region.shape, 4)
        return {
            "shape": region.shape,
            "typestr": "<f4",
            "data": (region.ptr if region.size else 0, False),
            "strides": None if compact else region.strides,
            "version": 3,
            "stream": self.memory.ready_stream(),
        }


class Tracking(ProducerAdapter):
    """The library as a producer."""

    name = "tracking"

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.current: Any = None

    def make(self, shape: tuple[int, ...], dtype: str) -> Array:
        region = Region(0, shape, compact_strides(shape, 4), dtype, 4)
        memory = Memory(self.lab, region.size * 4)
        return Array(memory, Region(memory.ptr, shape, region.strides, dtype, 4))

    def stream(self) -> Any:
        return self.lab.stream("the library's")

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def fill(self, array: Array, value: float) -> None:
        stream = self.current or LEGACY
        self.lab.write(stream.handle, array.region, value)
        array.memory.used_on(stream)

    def copy(self, array: Array) -> Array:
        stream, made = self.current or LEGACY, self.make(array.region.shape, "float32")
        to, source, nbytes = made.memory.ptr, array.region.ptr, 4 * array.region.size
        with self.lab.driver.context():
            self.lab.driver("cuMemcpyAsync", to, source, nbytes, stream.handle)
        array.memory.used_on(stream)
        made.memory.used_on(stream)
        return made
