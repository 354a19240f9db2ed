"""Numba's CUDA target."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

# Numba reads this at import. Without it every small launch warns about low occupancy.
os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
if not hasattr(np, "row_stack"):
    # NumPy 2.5 removed this name, and numba 0.68 still reads it at import.
    np.row_stack = np.vstack

from numba import cuda

from cai_bridge import convert

from ..adapter import ConsumerAdapter, ProducerAdapter
from ..lab import Lab, Late, handle_of
from ..requirement import NotApplicableError
from ._dtypes import STANDARD, host_list

THREADS = 128


@cuda.jit  # type: ignore[untyped-decorator]
def _fill(array: Any, value: Any) -> None:
    i = cuda.grid(1)
    if i < array.size:
        array[i] = value


@cuda.jit  # type: ignore[untyped-decorator]
def _copy_line(source: Any, target: Any) -> None:
    i = cuda.grid(1)
    if i < target.size:
        target[i] = source[i]


@cuda.jit  # type: ignore[untyped-decorator]
def _copy_plane(source: Any, target: Any) -> None:
    i = cuda.grid(1)
    if i < target.size:
        target[i // target.shape[1], i % target.shape[1]] = source[
            i // target.shape[1], i % target.shape[1]
        ]


def _launch(kernel: Any, size: int, stream: Any, *arguments: Any) -> None:
    if size:
        kernel[-(-size // THREADS), THREADS, stream](*arguments)


class _Current:
    """Numba has no current stream, so calls take one."""

    current: Any = 0

    def stream(self) -> Any:
        """Make a blocking stream, the only kind that Numba makes."""
        return cuda.stream()

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Set the stream that the adapter passes to calls."""
        before, self.current = self.current, 0 if stream is None else stream
        try:
            yield
        finally:
            self.current = before

    def fill(self, array: Any, value: float) -> None:
        """Launch a kernel that writes every item."""
        flat = array if array.ndim == 1 else array.reshape(array.size)
        _launch(_fill, array.size, self.current, flat, value)


class Producer(_Current, ProducerAdapter):
    """Device arrays, whose dicts name the stream that they were made with."""

    dtypes = STANDARD

    def __init__(self) -> None:
        self.full((8,), "float32", 0.0)

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Make an array on the current stream."""
        return cuda.device_array(shape, np.dtype(dtype), stream=self.current)

    def late(self, lab: Lab, value: float, words: int | None = None) -> Late:
        """Make the array on the stream of its write, since its dict names no other stream."""
        words = words or lab.items
        stream = self.stream()
        with self.on(stream):
            array = self.make((words,), "float32")
            lab.synchronize()
            hold = lab.hold(handle_of(stream))
            self.fill(array, value)
        return Late(array, stream, value, hold)


class Consumer(_Current, ConsumerAdapter):
    """``cuda.as_cuda_array`` with its default settings: the host waits for the dict's stream."""

    doors = ("cai",)
    dtypes = STANDARD
    library = "numba"

    def __init__(self) -> None:
        # Keep the targets: allocating one may wait for the device.
        self._targets: dict[Any, Any] = {}
        line = cuda.device_array((8,), np.float32)
        self.fill(line, 0.0)
        self.copy(line)
        self._targets[(1024,), "float32"] = cuda.device_array((1024,), np.float32)

    def take(self, x: Any) -> Any:
        """Import by CAI."""
        return cuda.as_cuda_array(x)

    def convert(self, x: Any, stream: Any, *, readonly: bool | None = None) -> Any:
        """Convert for a stream, which must be given: Numba has no current stream."""
        return convert(x, self.library, stream=stream, readonly=readonly)

    def copy(self, array: Any) -> Any:
        """Queue a copy of the bytes, or of the items if there are gaps between them."""
        key = tuple(array.shape), array.dtype.name
        if key not in self._targets:
            self._targets[key] = cuda.device_array(array.shape, array.dtype)
        target = self._targets[key]
        if array.is_c_contiguous():
            target.copy_to_device(array, stream=self.current)
        elif array.ndim in (1, 2):
            kernel = _copy_line if array.ndim == 1 else _copy_plane
            _launch(kernel, array.size, self.current, array, target)
        else:
            raise NotApplicableError("the adapter copies strided arrays of one or two dimensions")
        return target, self.current

    def values(self, copied: Any) -> Any:
        """Wait for the copy's stream."""
        target, stream = copied
        host = target.copy_to_host(stream=stream)
        if stream:
            stream.synchronize()
        return host_list(host)
