"""PyTorch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from .. import adapters


class Adapter(adapters.Adapter):
    """Tensors of PyTorch's caching allocator, which keeps free blocks by stream."""

    name = "torch"

    def use_memory(self, kind: str) -> None:
        found = "async" if torch.cuda.get_allocator_backend() == "cudaMallocAsync" else "pools"
        if found == "pools":
            torch.zeros(1, device="cuda")
            segments = torch.cuda.memory_snapshot()
            found = "segments" if any(one["is_expandable"] for one in segments) else "pools"
        assert found == kind, f"torch's memory comes from {found}"

    def new_stream(self, kind: str) -> Any:
        return torch.cuda.Stream() if kind == "pool" else torch.cuda.default_stream()

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return torch.cuda.stream(stream)

    def full(self, words: int, value: int, stream: Any, spin: float) -> Any:
        with self.late(stream, spin):
            return torch.full((words,), float(value), dtype=torch.float32, device="cuda")

    def fill(self, array: Any, words: int, value: int, stream: Any, spin: float) -> None:
        with self.late(stream, spin):
            array.fill_(float(value))

    def copy(self, array: Any, words: int, stream: Any, spin: float) -> Any:
        with self.late(stream, spin):
            return array.clone()

    def values(self, copied: Any) -> Any:
        return copied.cpu().numpy()

    def pointer(self, array: Any) -> int | None:
        return int(array.data_ptr())

    def take(self, how: str, source: Any, stream: Any) -> Any:
        if how == "as_tensor":
            return torch.as_tensor(source, device="cuda")
        return torch.from_dlpack(source)

    def take_natively(self, how: str, source: Any, stream: Any) -> Any:
        by_dict = how == "as_tensor" or not adapters.speaks(source, "__dlpack__")
        return self.take("as_tensor" if by_dict else how, source, stream)
