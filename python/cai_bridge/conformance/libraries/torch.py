"""PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from ..adapter import ConsumerAdapter, ProducerAdapter
from ..stand_in import DLPACK, speaks
from ._dtypes import FLOAT8, STANDARD

DTYPES = tuple(name for name in (*STANDARD, "bfloat16", *FLOAT8) if hasattr(torch, name))


def _on(stream: Any) -> AbstractContextManager[Any]:
    return torch.cuda.stream(stream)  # type: ignore[no-any-return]


class Producer(ProducerAdapter):
    """Tensors on the current device, written on the current stream."""

    dtypes = DTYPES

    def __init__(self) -> None:
        self.full((8,), "float32", 0.0)

    def stream(self) -> Any:
        """Take a side stream of PyTorch's pool, whose streams are all non-blocking."""
        return torch.cuda.Stream()

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the current one; None changes nothing."""
        return _on(stream)

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Make a tensor."""
        return torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")

    def fill(self, array: Any, value: float) -> None:
        """Queue ``fill_``."""
        array.fill_(value)

    def lazy(self) -> Iterator[tuple[str, Any, Any]]:
        """Return a conjugate, and its imaginary part, which has the negative bit."""
        conjugate = torch.tensor([1 + 2j, 3 - 4j], device="cuda").conj()
        yield "conjugate", conjugate, [1 - 2j, 3 + 4j]
        yield "negative", conjugate.imag, [-2.0, 4.0]


class Consumer(ConsumerAdapter):
    """``torch.from_dlpack``, and ``torch.as_tensor`` with a device: without one it copies."""

    dtypes = DTYPES
    library = "torch"

    def __init__(self) -> None:
        self.copy(torch.zeros(8, device="cuda"))

    def stream(self) -> Any:
        """Take a side stream of PyTorch's pool, whose streams are all non-blocking."""
        return torch.cuda.Stream()

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the current one; None changes nothing."""
        return _on(stream)

    def take(self, x: Any) -> Any:
        """Import by DLPack if the array speaks it, else by CAI."""
        return self.take_by("dlpack" if speaks(x, DLPACK) else "cai", x)

    def take_by(self, door: str, x: Any) -> Any:
        """Import by one protocol."""
        return torch.from_dlpack(x) if door == "dlpack" else torch.as_tensor(x, device="cuda")

    def copy(self, array: Any) -> Any:
        """Queue a clone, and keep its stream."""
        return array.clone(), torch.cuda.current_stream()

    def values(self, copied: Any) -> Any:
        """Wait for the clone's stream; return 8-bit floats as their bits."""
        tensor, stream = copied
        stream.synchronize()
        if tensor.element_size() == 1 and tensor.dtype.is_floating_point:
            tensor = tensor.view(torch.uint8)
        return tensor.tolist()

    def fill(self, array: Any, value: float) -> None:
        """Queue ``fill_``."""
        array.fill_(value)
