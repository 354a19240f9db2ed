"""cuda.core: a StridedMemoryView. It has no current stream: work goes where the caller says."""

from __future__ import annotations

from typing import Any

from ._library import Library


class CudaCore(Library):
    name = "cuda"
    arrays = ("cuda.core.utils:StridedMemoryView",)

    def make(self, view: Any, stream: Any) -> Any:
        from cuda.core.utils import StridedMemoryView

        # The order is made by now, or is the caller's: -1 asks for no other.
        return StridedMemoryView.from_cuda_array_interface(view, stream_ptr=-1)


CUDA_CORE = CudaCore()
