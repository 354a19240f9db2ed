"""Numba: a device array around memory that the view keeps, without Numba's own wait on the host."""

from __future__ import annotations

from ._library import Any, Library, Quick


class Numba(Library):
    name = "numba"
    arrays = ("numba.cuda.cudadrv.devicearray:DeviceNDArray",)
    _gpu_memory_alone = True
    _streams_by_call = True

    def __init__(self) -> None:
        self._cuda: Any = None
        self._make: Quick | None = None

    def current_stream(self, device: int) -> Any:
        """Return its default stream: kernels and copies go there unless they name another."""
        return 2 if self._numba().config.CUDA_PER_THREAD_DEFAULT_STREAM else 1

    def make(self, view: Any, stream: Any) -> Any:
        """Make an array whose own stream is `stream`, or Numba's default stream."""
        if self._make is None:
            self._make = _routes()
        return self._make(view, self._stream(view, stream))

    def _stream(self, view: Any, stream: Any) -> Any:
        """Return the stream as Numba's arrays keep it: 0 is the default stream."""
        cuda = self._numba()
        if stream == self.current_stream(view.device[1]) or view.stream is None:
            return 0
        # Numba's own object counts as alive; another library's stream is wrapped by its handle.
        own = isinstance(stream, cuda.cudadrv.driver.Stream)
        return stream if own else cuda.external_stream(view.stream)

    def _numba(self) -> Any:
        if self._cuda is None:
            from numba import cuda

            self._cuda = cuda
        return self._cuda


def _routes() -> Quick:
    from numba import cuda
    from numba.cuda.cudadrv import devicearray, devices, driver, dummyarray

    array_of, described = devicearray.DeviceNDArray, dummyarray.Array.from_desc
    memory_of = driver.MemoryPointer
    # Numba's own CUDA target may work without the binding.
    pointer_of: Any = getattr(getattr(driver, "binding", None), "CUdeviceptr", None)

    def quick(view: Any, stream: Any) -> Any:
        ptr, size, device, shape, dtype, gaps = view._fields()
        strides = gaps or view.strides
        described_as = described(0, shape, strides, dtype.itemsize)
        if gaps:
            size = driver.memory_size_from_info(shape, strides, dtype.itemsize)
        # Numba's own way to a context would also make it current.
        context = devices.gpus[device].get_primary_context()
        memory = memory_of(context, pointer_of(ptr), size, owner=view)
        array = array_of.__new__(array_of)
        array.ndim, array._dummy, array.dtype = len(shape), described_as, dtype
        array.shape, array.strides, array.size = shape, strides, described_as.size
        array.alloc_size, array.gpu_data, array.stream = size, memory, stream
        return array

    def public(view: Any, stream: Any) -> Any:
        array = cuda.as_cuda_array(view, sync=False)
        array.stream = stream
        return array

    def same(one: Any, other: Any) -> bool:
        return _state(one) == _state(other)

    return Quick("numba", quick if pointer_of else public, public, same)


def _state(array: Any) -> dict[str, Any]:
    """Return all attributes of an array and of its memory."""
    memory = vars(array.gpu_data)
    told = {**vars(array), **{f"memory's {name}": memory[name] for name in memory}}
    pointers = {name: int(told[name]) for name in ("memory's device_pointer", "memory's handle")}
    return {**told, **pointers, "gpu_data": None}


NUMBA = Numba()
