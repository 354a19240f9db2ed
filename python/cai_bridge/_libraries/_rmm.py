"""RMM: a DeviceBuffer, which holds bytes. RMM has no current stream, so its default stream is used.

A ``DeviceBuffer`` allocates from a memory resource, and no call of RMM's Python API wraps foreign
memory without a copy. So the bridge gives the buffer a resource that has only the view's memory,
and the buffer holds the resource. This relies on ``python/rmm/rmm/pylibrmm`` of
https://github.com/rapidsai/rmm, release 26.10: ``device_buffer.pyx`` (the constructor, which holds
the stream and the resource; the dict of version 0), ``stream.pyx`` (``Stream(obj)`` of an object
with ``__cuda_stream__``; the default streams) and ``memory_resource/_memory_resource.pyx``
(``CallbackMemoryResource``). It also relies on ``device_buffer.hpp`` and ``aligned.hpp`` in
``cpp/include/rmm`` (a buffer's alignment).
"""

from __future__ import annotations

from ._library import Any, Library

LEGACY, PER_THREAD = 1, 2
ALIGNMENT = 256
"""The alignment of RMM's buffers in bytes: ``CUDA_ALLOCATION_ALIGNMENT``."""


class Rmm(Library):
    name = "rmm"
    arrays = ("rmm:DeviceBuffer",)
    _gpu_memory_alone = True
    _streams_by_call = True

    def current_stream(self, device: int) -> Any:
        from rmm.pylibrmm.stream import DEFAULT_STREAM

        # Up to 25.10 RMM's stream has no `__cuda_stream__`.
        return DEFAULT_STREAM if hasattr(DEFAULT_STREAM, "__cuda_stream__") else LEGACY

    def make(self, view: Any, stream: Any) -> Any:
        """Make a buffer of all the array's bytes; refuses gaps, and memory not aligned to 256."""
        import rmm

        if view.__cuda_array_interface__["strides"] is not None:
            raise BufferError(
                f"strides: got {view.strides}; allowed: C-contiguous arrays, for RMM's buffers are "
                "bytes without gaps, or convert(..., copy=True)"
            )
        if view.ptr % ALIGNMENT:
            raise BufferError(
                f"pointer: got {view.ptr:#x}; allowed: multiples of {ALIGNMENT}, as code "
                "that takes RMM's buffers relies on, or convert(..., copy=True)"
            )
        on = _stream(view.stream, stream)
        if not view.nbytes:
            return rmm.DeviceBuffer(stream=on)
        lent = _Lent(view)
        try:
            resource = rmm.mr.CallbackMemoryResource(*lent.calls)
            return rmm.DeviceBuffer(size=view.nbytes, stream=on, mr=resource)
        except BaseException:
            lent.deallocate(view.ptr, view.nbytes, on)
            raise


_out: set[_Lent] = set()
"""Memory in use: C++ code that takes a buffer over does not keep the resource's callables alive."""


class _Lent:
    """A memory resource with one allocation: the memory of a view."""

    def __init__(self, view: Any) -> None:
        self.view, self.left = view, True
        self.calls = self.allocate, self.deallocate

    def allocate(self, nbytes: int, stream: Any, *_more: Any) -> int:
        """Return the memory to the new buffer. A buffer that grows gets none."""
        if not self.left:
            raise MemoryError(
                f"the buffer has {self.view.nbytes} bytes of another library's; allowed: to copy it"
            )
        self.left = False
        _out.add(self)
        ptr: int = self.view.ptr
        return ptr

    def deallocate(self, ptr: int, nbytes: int, stream: Any, *_more: Any) -> None:
        """Return the memory back, in order."""
        _out.discard(self)
        self.view = None


class _Handle:
    """A stream by its handle, in the form that RMM takes."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _stream(handle: int | None, said: Any) -> Any:
    """Return the stream as an RMM stream, which holds the stream's object."""
    from rmm.pylibrmm import stream as of_rmm

    if isinstance(said, of_rmm.Stream):
        return said
    if hasattr(said, "__cuda_stream__"):
        return of_rmm.Stream(said)
    default = {
        None: of_rmm.DEFAULT_STREAM,
        LEGACY: of_rmm.LEGACY_DEFAULT_STREAM,
        PER_THREAD: of_rmm.PER_THREAD_DEFAULT_STREAM,
    }
    return default[handle] if handle in default else of_rmm.Stream(_Handle(handle or LEGACY))


RMM = Rmm()
