"""Numba: a device array of the view's dict, without Numba's own wait on the host."""

from __future__ import annotations

from typing import Any

from ._library import Library


class Numba(Library):
    name = "numba"
    arrays = ("numba.cuda.cudadrv.devicearray:DeviceNDArray",)

    def __init__(self) -> None:
        self._cuda: Any = None

    def current_stream(self, device: int) -> Any:
        """Give its default stream: kernels and copies go there unless they say another."""
        return 2 if self._numba().config.CUDA_PER_THREAD_DEFAULT_STREAM else 1

    def make(self, view: Any, stream: Any) -> Any:
        """Make an array whose own stream is the one that was said, or Numba's default one."""
        array = self._numba().as_cuda_array(view, sync=False)
        if stream == self.current_stream(view.device[1]):
            array.stream = 0
        elif array.stream and type(stream) is type(array.stream):
            # Its own object, which others take to be alive; of another's it made one by the handle.
            array.stream = stream
        return array

    def _numba(self) -> Any:
        if self._cuda is None:
            from numba import cuda

            self._cuda = cuda
        return self._cuda


NUMBA = Numba()
