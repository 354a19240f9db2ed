"""PyTorch: its exchange API makes tensors from managed tensors, and names the current stream.

Releases before 2.10 have no exchange API: ``torch.utils.dlpack.from_dlpack`` makes tensors from
capsules.
"""

from __future__ import annotations

from cai_bridge._core import _dtypes

from ._library import Any, DLPackView, Library

LACKS = {"float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"}
"""Element types that PyTorch lacks, up to release 2.15."""
COMPLEX32, FLOAT4_X2 = (5, 32, 1), (17, 4, 2)


class Torch(Library):
    name = "torch"
    arrays = ("torch:Tensor",)
    _from_host = "torch:from_dlpack"
    # With negative strides the exchange API kills the process (2.11), and `from_dlpack` raises.
    _strides = "not negative"
    _gpu_memory_alone = True

    @property
    def view(self) -> type | None:  # type: ignore[override]
        """None if the exchange API makes tensors."""
        (tensor,) = self.types
        return None if hasattr(tensor, "__dlpack_c_exchange_api__") else DLPackView

    @property
    def _versioned(self) -> bool:  # type: ignore[override]
        return self.view is None

    @property
    def _element_types(self) -> frozenset[tuple[int, int, int]]:  # type: ignore[override]
        """The table's types that PyTorch has, and two that only DLPack has."""
        import torch

        lacks = {name for name in LACKS if not hasattr(torch, name)}
        shared = {(code, bits, 1) for name, code, bits, _ in _dtypes() if name not in lacks}
        return frozenset({*shared, COMPLEX32, FLOAT4_X2})

    def current_stream(self, device: int) -> Any:
        import torch

        # Not every release's streams have `__cuda_stream__`.
        return torch.cuda.current_stream(device).cuda_stream or 1

    def make(self, view: Any, stream: Any) -> Any:
        import torch

        # Given a view, PyTorch would ask for its current stream once more.
        capsule = view.__dlpack__(stream=stream or view.stream or 1)
        return torch.utils.dlpack.from_dlpack(capsule)


TORCH = Torch()
