"""cuda.core's ``StridedMemoryView``, a consumer that leaves computing to its caller."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cuda.core import Device
from cuda.core.utils import StridedMemoryView

from cai_bridge import convert

from ..adapter import ConsumerAdapter
from ..lab import handle_of
from ..stand_in import DLPACK, speaks
from ._by_driver import queue_read, queue_write, region_of, values_of
from ._dtypes import STANDARD

LEGACY = 1


def _region(view: Any) -> Any:
    dtype = view.dtype
    return region_of(view.ptr, view.shape, view.strides, dtype.name, dtype.itemsize)


class Consumer(ConsumerAdapter):
    """Views that are told the stream that they will be read on."""

    dtypes = (*STANDARD, "bfloat16")
    library = "cuda"

    def __init__(self) -> None:
        self._device = Device()
        self._device.set_current()
        self._current: Any = LEGACY

    def stream(self) -> Any:
        """Make a stream, which is non-blocking by default."""
        return self._device.create_stream()

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Make a stream the one that views are told."""
        before, self._current = self._current, LEGACY if stream is None else stream
        try:
            yield
        finally:
            self._current = before

    def take(self, x: Any) -> Any:
        """View by DLPack what speaks it, else by CAI, as ``from_any_interface`` does."""
        return self.take_by("dlpack" if speaks(x, DLPACK) else "cai", x)

    def take_by(self, door: str, x: Any) -> Any:
        """View by one protocol."""
        stream = handle_of(self._current)
        if door == "dlpack":
            return StridedMemoryView.from_dlpack(x, stream_ptr=stream)
        return StridedMemoryView.from_cuda_array_interface(x, stream_ptr=stream)

    def convert(self, x: Any, stream: Any, *, readonly: bool | None = None) -> Any:
        """Convert for a stream, which must be given: cuda.core has no current one."""
        return convert(x, self.library, stream=stream, readonly=readonly)

    def copy(self, array: Any) -> Any:
        """Queue a read by the driver."""
        return queue_read(_region(array), handle_of(self._current))

    def values(self, copied: Any) -> Any:
        """Wait for the read."""
        return values_of(copied)

    def fill(self, array: Any, value: float) -> None:
        """Queue a write by the driver, unless the view says that it must not be."""
        if array.readonly:
            raise ValueError("the view is read-only")
        queue_write(_region(array), handle_of(self._current), value)
