"""PyTorch: its exchange API makes tensors of managed tensors, and names the current stream."""

from __future__ import annotations

from ._library import ByTable


class Torch(ByTable):
    name = "torch"
    arrays = ("torch:Tensor",)


TORCH = Torch()
