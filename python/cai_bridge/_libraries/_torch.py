"""PyTorch: its exchange API makes tensors of managed tensors, and names the current stream.

Before 2.10 it has none: then tensors are made of capsules, by ``torch.utils.dlpack.from_dlpack``.
"""

from __future__ import annotations

from ._library import Any, DLPackView, Library


class Torch(Library):
    name = "torch"
    arrays = ("torch:Tensor",)
    _from_host = "torch:from_dlpack"

    @property
    def view(self) -> type | None:  # type: ignore[override]
        """None where tensors are made by the exchange API."""
        (tensor,) = self.types
        return None if hasattr(tensor, "__dlpack_c_exchange_api__") else DLPackView

    def current_stream(self, device: int) -> Any:
        import torch

        # Not every release's streams have `__cuda_stream__`.
        return torch.cuda.current_stream(device).cuda_stream or 1

    def make(self, view: Any, stream: Any) -> Any:
        import torch

        # Of a capsule: of a view it would ask for its current stream once more.
        capsule = view.__dlpack__(stream=stream or view.stream or 1)
        return torch.utils.dlpack.from_dlpack(capsule)


TORCH = Torch()
