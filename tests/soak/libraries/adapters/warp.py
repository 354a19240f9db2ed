"""Warp."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import warp as wp

from .. import adapters

GPU = "cuda:0"


class Adapter(adapters.Adapter):
    """Arrays of the driver's pool, which Warp allocates and frees on its current stream."""

    name = "warp"

    def start(self) -> None:
        super().start()
        wp.config.quiet = True
        wp.init()

    def new_stream(self, kind: str) -> Any:
        return wp.Stream(GPU)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return wp.ScopedStream(stream, sync_enter=False)

    def full(self, words: int, value: int, stream: Any, spin: float) -> Any:
        with self.late(stream, spin):
            return wp.full(words, float(value), dtype=wp.float32, device=GPU)

    def fill(self, array: Any, words: int, value: int, stream: Any, spin: float) -> None:
        with self.late(stream, spin):
            array.fill_(float(value))

    def copy(self, array: Any, words: int, stream: Any, spin: float) -> Any:
        with self.late(stream, spin):
            return wp.clone(array)

    def values(self, copied: Any) -> Any:
        return copied.numpy()

    def pointer(self, array: Any) -> int | None:
        return int(array.ptr)

    def take(self, how: str, source: Any, stream: Any) -> Any:
        if how == "array":
            return wp.array(data=source, dtype=wp.float32, device=GPU, copy=False)
        return wp.from_dlpack(source)
