"""cuda.core: a StridedMemoryView. It has no current stream: unsaid, it is the legacy one."""

from __future__ import annotations

from typing import Any

from ._library import Library


class CudaCore(Library):
    name = "cuda"
    arrays = ("cuda.core.utils:StridedMemoryView",)

    def current_stream(self, device: int) -> Any:
        return 1

    def make(self, view: Any, stream: Any) -> Any:
        from cuda.core.utils import StridedMemoryView

        # The order is made by now: -1 asks for no other.
        return StridedMemoryView.from_cuda_array_interface(view, stream_ptr=-1)


CUDA_CORE = CudaCore()
