"""CuPy."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import cupy
import numpy as np

from ....gpu.streams import cupy_view_without_sync
from .. import adapters


class Adapter(adapters.Adapter):
    """Arrays of CuPy's pool, which has an arena for each stream."""

    name = "cupy"

    def use_memory(self, kind: str) -> None:
        if kind == "async":
            cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)

    def new_stream(self, kind: str) -> Any:
        if kind == "default":
            return cupy.cuda.Stream.null
        return cupy.cuda.Stream(non_blocking=kind == "non_blocking")

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return stream

    def full(self, words: int, value: int, stream: Any, spin: float) -> Any:
        with self.late(stream, spin):
            return cupy.full(words, value, dtype=np.float32)

    def fill(self, array: Any, words: int, value: int, stream: Any, spin: float) -> None:
        with self.late(stream, spin):
            array.fill(value)

    def copy(self, array: Any, words: int, stream: Any, spin: float) -> Any:
        with self.late(stream, spin):
            return array.copy()

    def values(self, copied: Any) -> Any:
        return cupy.asnumpy(copied)

    def pointer(self, array: Any) -> int | None:
        return int(array.data.ptr)

    def take(self, how: str, source: Any, stream: Any) -> Any:
        if how == "memory":
            return cupy_view_without_sync(source)
        return cupy.asarray(source) if how == "asarray" else cupy.from_dlpack(source)

    def take_natively(self, how: str, source: Any, stream: Any) -> Any:
        wanted = "__dlpack__" if how not in {"asarray", "memory"} else "__cuda_array_interface__"
        by_dict = adapters.speaks(source, "__cuda_array_interface__") and (
            wanted != "__dlpack__" or not adapters.speaks(source, "__dlpack__")
        )
        return cupy.asarray(source) if by_dict else cupy.from_dlpack(source)
