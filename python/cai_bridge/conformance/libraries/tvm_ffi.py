"""tvm-ffi's tensors. tvm-ffi itself computes nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import tvm_ffi

from cai_bridge.testing._kit.dlpack_managed import ManagedTensor

from ..adapter import ConsumerAdapter, ProducerAdapter
from ..lab import handle_of
from ..lab.cuda import load
from ..lab.gpu_objects import GpuStream, Memory
from ._by_driver import queue_read, queue_write, region_of, values_of
from ._dtypes import FLOAT8, STANDARD, dlpack_dtype

# tvm-ffi has no complex types.
DTYPES = tuple(n for n in (*STANDARD, "bfloat16", *FLOAT8) if not n.startswith("complex"))
LEGACY = 1


class _Source:
    """Memory with ``__dlpack__`` for making a tensor: tvm-ffi allocates none itself."""

    def __init__(self, memory: Any, shape: tuple[int, ...], dtype: tuple[int, int, int]) -> None:
        self._memory, self._shape, self._dtype = memory, shape, dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, load().ordinal

    def __dlpack__(self, **wishes: Any) -> Any:
        del wishes
        null = () if math.prod(self._shape) else ("data",)
        made = ManagedTensor(
            self._memory.ptr,
            form="legacy",
            null=null,
            shape=self._shape,
            dtype=self._dtype,
            device=self.__dlpack_device__(),
            owner=self._memory,
        )
        return made.capsule()


def _region(tensor: Any) -> Any:
    name, bits = str(tensor.dtype), tensor.dtype.bits
    return region_of(tensor.data_ptr(), tensor.shape, tensor.strides, name, bits // 8)


class Producer(ProducerAdapter):
    """Tensors over memory of the driver's pool, written on tvm-ffi's environment stream."""

    dtypes = DTYPES

    def __init__(self) -> None:
        self._device = tvm_ffi.device("cuda", load().ordinal)
        self._current: Any = LEGACY
        self.full((8,), "float32", 0.0)

    def stream(self) -> Any:
        """Make a non-blocking stream: tvm-ffi has none of its own."""
        return GpuStream(load(), "tvm-ffi's")

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Make a stream the environment stream, which the exchange API reports."""
        if stream is None:
            yield
            return
        before, self._current = self._current, stream
        try:
            with tvm_ffi.use_raw_stream(self._device, handle_of(stream)):
                yield
        finally:
            self._current = before

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Make a tensor; its memory is freed in the order of the current stream."""
        code, bits, lanes = dlpack_dtype(dtype)
        nbytes = math.prod(shape) * bits // 8
        memory = Memory(load(), nbytes, handle_of(self._current), keep=self._current)
        return tvm_ffi.from_dlpack(_Source(memory, shape, (code, bits, lanes)))

    def fill(self, array: Any, value: float) -> None:
        """Queue a write by the driver."""
        queue_write(_region(array), handle_of(self._current), value)


class Consumer(ConsumerAdapter):
    """``tvm_ffi.from_dlpack``, which passes no stream and so gets the legacy default stream."""

    doors = ("dlpack",)
    dtypes = DTYPES
    library = "tvm_ffi"

    def stream(self) -> Any:
        """Return the legacy default stream."""
        return LEGACY

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Do nothing: tvm-ffi always works on the legacy default stream here."""
        del stream
        return contextlib.nullcontext()

    def take(self, x: Any) -> Any:
        """Import by the exchange API, or by ``__dlpack__``."""
        return tvm_ffi.from_dlpack(x)

    def take_by(self, door: str, x: Any) -> Any:
        """Import by the exchange API if the array has one, else by ``__dlpack__``."""
        del door
        return self.take(x)

    def copy(self, array: Any) -> Any:
        """Queue a read by the driver."""
        return queue_read(_region(array), LEGACY)

    def values(self, copied: Any) -> Any:
        """Wait for the read."""
        return values_of(copied)

    def fill(self, array: Any, value: float) -> None:
        """Queue a write by the driver."""
        queue_write(_region(array), LEGACY, value)
