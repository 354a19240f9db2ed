"""tvm-ffi: imports by DLPack. It does not name its current stream to producers."""

from __future__ import annotations

from ._library import Any, DLPackView, Library


class TvmFfi(Library):
    name = "tvm_ffi"
    arrays = ("tvm_ffi:Tensor",)
    _from_host = "tvm_ffi:from_dlpack"
    _strides = "any"
    view = DLPackView

    def current_stream(self, device: int) -> Any:
        import tvm_ffi

        return tvm_ffi.get_raw_stream(tvm_ffi.device("cuda", device)) or 1

    def make(self, view: Any, stream: Any) -> Any:
        import tvm_ffi

        return tvm_ffi.from_dlpack(_For(view, stream or view.stream))


class _For:
    """A view whose capsules are always for one stream."""

    def __init__(self, view: DLPackView, stream: Any) -> None:
        self.view, self.stream = view, stream

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_wishes: Any) -> Any:
        return self.view.__dlpack__(stream=self.stream or 1, max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.view.__dlpack_device__()


TVM_FFI = TvmFfi()
