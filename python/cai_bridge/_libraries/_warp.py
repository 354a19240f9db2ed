"""Warp: an array over the pointer, whose deleter holds the view. Each GPU has a current stream.

Warp's own import of a CAI object ignores the dict's stream. Its constructor takes a pointer, a
shape, strides and a deleter. The array keeps the deleter, and slices keep the array. This relies on
``warp/_src`` of https://github.com/NVIDIA/warp, release 1.19: ``types.py`` (``array.__init__``,
``_init_from_ptr``, ``__del__``, ``ARRAY_MAX_DIMS``) and ``context.py`` (``get_stream``,
``runtime``, ``Stream.__cuda_stream__``). The tests make Warp's own arrays on the host.
"""

from __future__ import annotations

from cai_bridge._core import _imported

from ._library import Any, Library

TYPES = {
    "|b1": "bool",
    "|i1": "int8",
    "|u1": "uint8",
    "<i2": "int16",
    "<u2": "uint16",
    "<i4": "int32",
    "<u4": "uint32",
    "<i8": "int64",
    "<u8": "uint64",
    "<f2": "float16",
    "<f4": "float32",
    "<f8": "float64",
    "<V2": "bfloat16",
}
"""Warp's element types, by their typestrs."""

MOST_DIMENSIONS = 4


class Warp(Library):
    name = "warp"
    arrays = ("warp:array",)
    _gpu_memory_alone = True

    def _stream_in_use(self, device: int) -> Any:
        """Return the current stream of a GPU that Warp already works on, else None.

        Asking Warp about any other GPU would start Warp there. Returns a handle if the release's
        streams have no ``__cuda_stream__``.
        """
        context = _imported("warp._src.context") or _imported("warp.context")
        runtime = getattr(context, "runtime", None)
        if runtime is None:
            return None
        gpu = runtime.get_device(_device(device))
        if not gpu.has_context:
            return None
        stream = gpu.stream
        return stream if hasattr(stream, "__cuda_stream__") else stream.cuda_stream

    def current_stream(self, device: int) -> Any:
        import warp

        return warp.get_stream(_device(device))

    def make(self, view: Any, stream: Any) -> Any:
        """Make an array; refuses types that Warp lacks, no dimensions, and more than four."""
        import warp

        dtype = getattr(warp, TYPES.get(view.typestr, ""), None)
        if dtype is None:
            raise BufferError(
                f"dtype: got {view.dtype}; allowed: bool, integers, floats and bfloat16, of Warp"
            )
        if not 1 <= view.ndim <= MOST_DIMENSIONS:
            raise BufferError(
                f"ndim: got {view.ndim}; allowed: 1 to {MOST_DIMENSIONS}, as Warp's arrays have"
            )

        def keep(ptr: int, nbytes: int, view: Any = view) -> None:
            """Free nothing: the memory goes back with the last reference to this object."""

        return warp.array(
            ptr=view.ptr,
            dtype=dtype,
            shape=view.shape,
            strides=view.__cuda_array_interface__["strides"],
            device=_device(view.device[1]),
            deleter=keep,
        )


def _device(ordinal: int) -> str:
    return f"cuda:{ordinal}"


WARP = Warp()
