"""CuPy."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from ..adapter import ConsumerAdapter, ProducerAdapter
from ..stand_in import CAI, speaks
from ._dtypes import STANDARD, host_list, numpy_dtype

DTYPES = (*STANDARD, "bfloat16")


class Producer(ProducerAdapter):
    """Arrays of CuPy's pool, written on the current stream, which their dicts name."""

    dtypes = DTYPES

    def __init__(self) -> None:
        self.full((8,), "float32", 0.0)

    def stream(self) -> Any:
        """Make a non-blocking stream: a blocking stream waits for the legacy default stream."""
        return cupy.cuda.Stream(non_blocking=True)

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Make an array; for a type that NumPy lacks, a view of its bits."""
        if dtype == "bfloat16":
            return cupy.empty(shape, np.uint16).view(numpy_dtype(dtype))
        return cupy.empty(shape, dtype)


class Consumer(ConsumerAdapter):
    """``cupy.asarray`` and ``cupy.from_dlpack``."""

    dtypes = DTYPES
    library = "cupy"

    def __init__(self) -> None:
        self.copy(cupy.zeros(8, np.float32))

    def stream(self) -> Any:
        """Make a non-blocking stream: a blocking stream waits for the legacy default stream."""
        return cupy.cuda.Stream(non_blocking=True)

    def take(self, x: Any) -> Any:
        """Import by CAI if the array speaks it, as ``cupy.asarray`` does, else by DLPack."""
        return self.take_by("cai" if speaks(x, CAI) else "dlpack", x)

    def take_by(self, door: str, x: Any) -> Any:
        """Import by one protocol."""
        return cupy.from_dlpack(x) if door == "dlpack" else cupy.asarray(x)

    def copy(self, array: Any) -> Any:
        """Queue a copy, and keep its stream."""
        return array.copy(), cupy.cuda.get_current_stream()

    def values(self, copied: Any) -> Any:
        """Wait for the copy's stream."""
        array, stream = copied
        stream.synchronize()
        return host_list(cupy.asnumpy(array, stream=stream))

    def fill(self, array: Any, value: float) -> None:
        """Queue a fill."""
        array.fill(value)
