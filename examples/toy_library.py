"""A small GPU array library, and the adapters for its conformance tests.

It has no kernels: the simulated device stands in for CUDA, as in a CI without a GPU. Its arrays
implement the CUDA Array Interface themselves, and DLPack through the bridge.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

from cai_bridge import from_cai, to_cai
from cai_bridge.conformance import ConsumerAdapter, ProducerAdapter
from cai_bridge.testing import SimulatedCuda, SimulatedStream

ITEMSIZE = 4
_current: list[SimulatedStream] = []


def cuda() -> SimulatedCuda:
    """The simulated device. A real library would call the driver instead."""
    device = SimulatedCuda.current()
    assert device is not None, "this library needs cai_bridge.testing.simulated_cuda()"
    return device


def current_stream() -> SimulatedStream:
    """The library's current stream."""
    return _current[-1] if _current else cuda().legacy


@contextlib.contextmanager
def use(stream: SimulatedStream) -> Iterator[None]:
    """Make `stream` the current stream."""
    _current.append(stream)
    try:
        yield
    finally:
        _current.pop()


class Array:
    """A float32 array."""

    def __init__(self, memory: Any, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...]):
        self._memory, self.ptr, self.shape, self.strides = memory, ptr, shape, strides
        self.itemsize, self.typestr = ITEMSIZE, "<f4"

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Array:
        """Allocate an array without initializing it."""
        strides = tuple(ITEMSIZE * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        memory = _Memory(ITEMSIZE * math.prod(shape))
        return cls(memory, memory.ptr, shape, strides)

    def __getitem__(self, index: Any) -> Array:
        ptr, shape, strides = self.ptr, [], []
        index = index if isinstance(index, tuple) else (index,)
        for one, extent, stride in zip(index, self.shape, self.strides, strict=True):
            places = range(*one.indices(extent))
            ptr += places.start * stride
            shape.append(len(places))
            strides.append(stride * places.step)
        return Array(self._memory, ptr, tuple(shape), tuple(strides))

    def fill(self, value: float) -> None:
        """Queue a write on the current stream."""
        current_stream().fill(self, value)
        self._memory.used_on(current_stream())

    def copy(self) -> Array:
        """Queue a copy on the current stream."""
        made = Array.empty(self.shape)
        current_stream().copy(made, self)
        for memory in (self._memory, made._memory):
            memory.used_on(current_stream())
        return made

    def tolist(self) -> Any:
        """Wait for all work, and read the values."""
        cuda().synchronize()
        return cuda().read(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """A dict of version 3. Its stream waits for all others with work on the memory."""
        ptr = self.ptr if 0 not in self.shape else 0
        return {
            "shape": self.shape,
            "typestr": self.typestr,
            "data": (ptr, False),
            "strides": self.strides,
            "version": 3,
            "stream": self._memory.ready_stream(),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return from_cai(self).__dlpack_device__()

    def __dlpack__(self, **wishes: Any) -> Any:
        """Let the bridge make the capsule and the waits."""
        return from_cai(self).__dlpack__(**wishes)


class _Memory:
    """Device memory, and the streams with work on it."""

    def __init__(self, nbytes: int) -> None:
        self._bytes = cuda().alloc(nbytes) if nbytes else None
        self.ptr = self._bytes.ptr if self._bytes is not None else 0
        self._streams: list[SimulatedStream] = []

    def used_on(self, stream: SimulatedStream) -> None:
        if stream.handle == 2:
            # The handle means another stream in each thread: a stream of our own takes its place.
            queued, stream = stream.record(), cuda().stream()
            stream.wait(queued)
        others = [one for one in self._streams if one.handle != stream.handle]
        self._streams = [*others, stream]

    def ready_stream(self) -> int | None:
        if not self._streams:
            return None
        *others, last = self._streams
        for other in others:
            last.wait(other.record())
        self._streams = [last]
        return last.handle


def asarray(x: Any) -> Array:
    """Import another library's array without a copy, ready on the current stream."""
    stream = current_stream()
    view = to_cai(x, stream=stream)
    made = Array(_Foreign(view, stream), view.ptr, view.shape, view.strides)
    made.typestr, made.itemsize = view.typestr, view.itemsize
    return made


class _Foreign(_Memory):
    """Memory of another library. The view gives it back in order."""

    def __init__(self, view: Any, stream: SimulatedStream) -> None:
        super().__init__(0)
        self._view, self.ptr, self._stream = view, view.ptr, stream

    def used_on(self, stream: SimulatedStream) -> None:
        super().used_on(stream)
        if stream.handle != self._stream.handle:
            # At its end the view makes the producer wait for the stream of its import.
            self._stream.wait(stream.record())


# --- for the tests --------------------------------------------------------------------------------


class Producer(ProducerAdapter):
    """The library as a producer."""

    def make(self, shape: tuple[int, ...], dtype: str) -> Array:
        assert dtype == "float32"
        return Array.empty(shape)

    def stream(self) -> SimulatedStream:
        return cuda().stream()

    def on(self, stream: SimulatedStream) -> Any:
        return use(stream)


class Consumer(ConsumerAdapter):
    """The library as a consumer."""

    def take(self, x: Any) -> Array:
        return asarray(x)

    def stream(self) -> SimulatedStream:
        return cuda().stream()

    def on(self, stream: SimulatedStream) -> Any:
        return use(stream)
