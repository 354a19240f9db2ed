"""RMM's ``DeviceBuffer``: bytes, in one dimension, by CAI."""

from __future__ import annotations

from typing import Any

import numpy as np
import rmm
from rmm.pylibrmm.stream import DEFAULT_STREAM, CudaStreamFlags, Stream

from cai_bridge import convert, to_cai

from ..adapter import ConsumerAdapter, ProducerAdapter
from ..lab import Lab, Late, handle_of
from ..lab.cuda import load
from ..requirement import NotApplicableError
from ._by_driver import StreamByCall
from ._dtypes import STANDARD, host_list


class _Current(StreamByCall):
    current = default = DEFAULT_STREAM

    def stream(self) -> Any:
        """Make a non-blocking stream."""
        return Stream(flags=CudaStreamFlags.NON_BLOCKING)


class Producer(_Current, ProducerAdapter):
    """Buffers from the driver's pool, freed in the order of their stream."""

    dtypes = ("uint8",)

    def __init__(self) -> None:
        self._pool = rmm.mr.CudaAsyncMemoryResource()

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Make a buffer."""
        if len(shape) != 1 or dtype != "uint8":
            raise NotApplicableError("a DeviceBuffer is bytes in one dimension")
        return rmm.DeviceBuffer(size=shape[0], stream=self.current, mr=self._pool)

    def fill(self, array: Any, value: float) -> None:
        """Queue a write by the driver, since RMM has no kernels. Values wrap around after 255."""
        driver = load()
        with driver.context():
            stream = handle_of(self.current)
            driver("cuMemsetD8Async", array.ptr, int(value) % 256, array.size, stream)

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        """Make a buffer, and fill it."""
        return super().full(shape, dtype, int(value) % 256)

    def late(self, lab: Lab, value: float, words: int | None = None) -> Late:
        """Fill bytes on the buffer's own stream."""
        words = words or lab.items
        stream = self.stream()
        with self.on(stream):
            array = self.make((4 * words,), "uint8")
            lab.synchronize()
            hold = lab.hold(handle_of(stream))
            self.fill(array, value)
        return Late(array, stream, int(value) % 256, hold)


class _Taken:
    """An array to copy from, and the type of its items: RMM reads the dict when it copies."""

    def __init__(self, x: Any, described: dict[str, Any]) -> None:
        self.source = x
        self.dtype = np.dtype(described["typestr"])
        self.shape = tuple(described["shape"])


class Consumer(_Current, ConsumerAdapter):
    """``DeviceBuffer.copy_from_device``, of one-dimensional arrays, or of buffers over others."""

    doors = ("cai",)
    dtypes = STANDARD
    library = "rmm"

    def __init__(self) -> None:
        self._pool = rmm.mr.CudaAsyncMemoryResource()
        rmm.DeviceBuffer(size=4096, mr=self._pool)

    def take(self, x: Any) -> Any:
        """Keep the array for `copy`."""
        return _Taken(x, x.__cuda_array_interface__)

    def convert(self, x: Any, stream: Any, *, readonly: bool | None = None) -> Any:
        """Convert for a stream, which must be given: RMM has no current stream."""
        made = convert(x, self.library, stream=stream, readonly=readonly)
        with to_cai(x, stream=-1) as view:
            return _Taken(made, view.__cuda_array_interface__)

    def copy(self, array: Any) -> Any:
        """Queue a copy into a new buffer."""
        nbytes = int(np.prod(array.shape)) * array.dtype.itemsize
        buffer = rmm.DeviceBuffer(size=nbytes, stream=self.current, mr=self._pool)
        buffer.copy_from_device(array.source, stream=self.current)
        return buffer, array.dtype, array.shape, self.current

    def values(self, copied: Any) -> Any:
        """Wait for the copy's stream."""
        buffer, dtype, shape, stream = copied
        host = buffer.copy_to_host(stream=stream)
        stream.synchronize()
        return host_list(host.view(dtype).reshape(shape))
