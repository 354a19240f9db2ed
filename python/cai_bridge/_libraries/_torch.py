"""PyTorch: its exchange API makes tensors of managed tensors, and names the current stream."""

from __future__ import annotations

from ._library import Library


class Torch(Library):
    name = "torch"
    arrays = ("torch:Tensor",)
    view = None


TORCH = Torch()
