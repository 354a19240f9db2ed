"""cuda.core's ``StridedMemoryView``, a consumer without computation of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda.core import Device
from cuda.core.utils import StridedMemoryView

from cai_bridge import convert

from ..adapter import ConsumerAdapter
from ..lab import handle_of
from ..stand_in import DLPACK, speaks
from ._by_driver import StreamByCall, queue_read, queue_write, region_of, values_of
from ._dtypes import STANDARD


def _region(view: Any) -> Any:
    dtype = view.dtype
    # Items in the other byte order are read as their bits.
    name = dtype.name if dtype.isnative else ""
    return region_of(view.ptr, view.shape, view.strides, name, dtype.itemsize)


class Consumer(StreamByCall, ConsumerAdapter):
    """Views that get the stream on which they will be read."""

    dtypes = (*STANDARD, "bfloat16")
    library = "cuda"

    def __init__(self) -> None:
        self._device = Device()
        self._device.set_current()

    def stream(self) -> Any:
        """Make a stream, which is non-blocking by default."""
        return self._device.create_stream()

    def take(self, x: Any) -> Any:
        """Import by DLPack if the array speaks it, else by CAI, as ``from_any_interface`` does."""
        return self.take_by("dlpack" if speaks(x, DLPACK) else "cai", x)

    def take_by(self, door: str, x: Any) -> Any:
        """Import by one protocol."""
        stream = handle_of(self.current)
        if door == "dlpack":
            return StridedMemoryView.from_dlpack(x, stream_ptr=stream)
        return StridedMemoryView.from_cuda_array_interface(x, stream_ptr=stream)

    def convert(self, x: Any, stream: Any, *, readonly: bool | None = None) -> Any:
        """Convert for a stream, which must be given: cuda.core has no current stream."""
        return convert(x, self.library, stream=stream, readonly=readonly)

    def copy(self, array: Any) -> Any:
        """Queue a read by the driver."""
        return queue_read(_region(array), handle_of(self.current)), array.dtype

    def values(self, copied: Any) -> Any:
        """Wait for the read."""
        queued, dtype = copied
        values = values_of(queued)
        if dtype.isnative:
            return values
        bits = np.asarray(values, dtype=f"u{dtype.itemsize}")
        return bits.view(dtype).astype(dtype.newbyteorder("=")).tolist()

    def fill(self, array: Any, value: float) -> None:
        """Queue a write by the driver, unless the view is read-only."""
        if array.readonly:
            raise ValueError("the view is read-only")
        queue_write(_region(array), handle_of(self.current), value)
