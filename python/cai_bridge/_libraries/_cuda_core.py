"""cuda.core: a StridedMemoryView. It has no current stream, so the default is the legacy one."""

from __future__ import annotations

from ._library import Any, Library


class CudaCore(Library):
    name = "cuda"
    arrays = ("cuda.core.utils:StridedMemoryView",)
    _gpu_memory_alone = True
    _streams_by_call = True

    def current_stream(self, device: int) -> Any:
        return 1

    def make(self, view: Any, stream: Any) -> Any:
        from cuda.core.utils import StridedMemoryView

        if view.typestr[1] == "V":
            # Its view would give the items a void type (cuda.core 1.2.0).
            raise BufferError(
                f"dtype: got {view.dtype}, which has no name in the CUDA Array Interface; allowed: "
                "other types here, or StridedMemoryView.from_dlpack(to_dlpack(x), stream_ptr=...)"
            )
        # The order is already made: -1 asks for no further one.
        return StridedMemoryView.from_cuda_array_interface(view, stream_ptr=-1)


CUDA_CORE = CudaCore()
