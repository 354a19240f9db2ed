"""Numba, over a caching allocator with a list of free blocks for each stream.

Numba's own allocator waits for the device at every free; with a pool, as RAPIDS programs have it,
it does not.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
if not hasattr(np, "row_stack"):
    # NumPy 2.5 took this name away, and numba still reads it at import.
    np.row_stack = np.vstack

from numba import cuda

from ....gpu import driver as gpu
from .. import adapters

THREADS = 128
BLOCKS: dict[tuple[int, int], list[int]] = {}
HOME = threading.local()


def pointer_type() -> Any:
    """Tell what this release of Numba has for a device pointer."""
    try:
        from cuda.bindings.driver import CUdeviceptr
    except ImportError:
        return ctypes.c_uint64
    return CUdeviceptr


class Pool(cuda.HostOnlyCUDAMemoryManager):
    """Device memory that goes back to the stream it was allocated for."""

    def initialize(self) -> None:
        pass

    def memalloc(self, size: int) -> Any:
        home = getattr(HOME, "handle", None)
        free = [] if home is None else BLOCKS.setdefault((home, size), [])
        try:
            address = free.pop()
        except IndexError:
            with gpu.load().context():
                address = gpu.load().allocate(size)
        give_back = functools.partial(free.append, address)
        pointer = pointer_type()(address)
        return cuda.MemoryPointer(self.context, pointer, size, finalizer=give_back)

    def get_memory_info(self) -> Any:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with gpu.load().context():
            gpu.load()("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return cuda.MemoryInfo(free=free.value, total=total.value)

    def get_ipc_handle(self, memory: Any) -> Any:
        raise NotImplementedError

    @property
    def interface_version(self) -> int:
        return 1


def jitted(function: Callable[..., None]) -> Any:
    """Compile a kernel, once for all processes where Numba finds a place to keep it."""
    try:
        return cuda.jit(cache=True)(function)
    except (RuntimeError, NotImplementedError):
        return cuda.jit(function)


@jitted
def fill(array: Any, value: Any) -> None:
    i = cuda.grid(1)
    if i < array.size:
        array[i] = value


@jitted
def copy(source: Any, target: Any) -> None:
    i = cuda.grid(1)
    if i < target.size:
        target[i] = source[i]


class Adapter(adapters.Adapter):
    """Device arrays, whose dicts name the stream that they were made with."""

    name = "numba"

    def start(self) -> None:
        super().start()
        cuda.set_memory_manager(Pool)
        self.free: dict[int, list[Any]] = {}

    def new_stream(self, kind: str) -> Any:
        return cuda.stream() if kind == "blocking" else cuda.default_stream()

    def full(self, words: int, value: int, stream: Any, spin: float) -> Any:
        HOME.handle = self.handle(stream)
        try:
            array = cuda.device_array(words, dtype=np.float32, stream=stream)
        finally:
            HOME.handle = None
        self.fill(array, words, value, stream, spin)
        return array

    def fill(self, array: Any, words: int, value: int, stream: Any, spin: float) -> None:
        self.spin(stream, spin)
        fill[-(-words // THREADS), THREADS, stream](array, np.float32(value))

    def copy(self, array: Any, words: int, stream: Any, spin: float) -> Any:
        target = self._target(words)
        self.spin(stream, spin)
        copy[-(-words // THREADS), THREADS, stream](array, target)
        return target

    def _target(self, words: int) -> Any:
        try:
            return self.free[words].pop()
        except (KeyError, IndexError):
            return cuda.device_array(words, dtype=np.float32)

    def values(self, copied: Any) -> Any:
        values = copied.copy_to_host()
        self.free.setdefault(copied.size, []).append(copied)
        return values

    def pointer(self, array: Any) -> int | None:
        if hasattr(array, "device_ctypes_pointer"):
            return int(array.device_ctypes_pointer.value)
        return int(array.ptr)

    def take(self, how: str, source: Any, stream: Any) -> Any:
        if how == "argument":
            return source
        return cuda.as_cuda_array(source, sync=how != "no_sync")
