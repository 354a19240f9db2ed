"""CuPy: an ndarray around memory that the view keeps. Each device has a current stream."""

from __future__ import annotations

from cai_bridge._core import _CurrentStream, _Ndarrays

from ._library import Any, Quick, Routed


class Cupy(Routed):
    name = "cupy"
    arrays = ("cupy:ndarray",)
    _gpu_memory_alone = True

    current_stream = _CurrentStream("cupy")

    def routes(self) -> Quick:
        return _routes()

    def _make_by_dict(self, view: Any, stream: Any) -> Any:
        # CuPy takes these types only by a dict: its constructor knows only CuPy's own types.
        return _public(view, stream)


def _public(view: Any, stream: Any) -> Any:
    import cupy

    with cupy.cuda.Device(view.device[1]):
        # The order is already made, so CuPy need not wait.
        return cupy.asarray(_Unordered(view))


def _routes() -> Quick:
    import cupy
    from cupy.cuda import MemoryPointer, UnownedMemory

    def same(one: Any, other: Any) -> bool:
        return bool(
            (one.data.ptr, one.shape, one.strides, one.dtype, one.device)
            == (other.data.ptr, other.shape, other.strides, other.dtype, other.device)
        )

    quick = _Ndarrays(cupy.ndarray, _halves(cupy.ndarray), MemoryPointer, UnownedMemory)
    return Quick("cupy", quick, _public, same)


def _halves(ndarray: Any) -> Any:
    """Return the two calls that `ndarray.__new__` makes for CuPy's own class.

    None for a CuPy whose `ndarray` has no such base class.
    """
    base = ndarray.__base__
    return (base.__new__, base._init) if "_init" in vars(base) else None


class _Unordered:
    """A view whose dict names no stream."""

    def __init__(self, view: Any) -> None:
        self.view = view

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.view.__cuda_array_interface__, "stream": None}


CUPY = Cupy()
