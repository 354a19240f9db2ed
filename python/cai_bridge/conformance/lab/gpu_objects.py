"""What a GPU lab hands out: streams, memory, holds and reads."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from cai_bridge.testing._region import Region

from .cuda import HOLD_PTX, HOST_MAPPED, HOST_PORTABLE, NOT_READY, Driver


class GpuStream:
    """A non-blocking stream, destroyed with the last reference to the object."""

    def __init__(self, driver: Driver, name: str) -> None:
        self._driver = driver
        self.name = name
        with driver.context():
            self.handle = driver.stream()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __del__(self) -> None:
        handle = getattr(self, "handle", 0)
        if handle:
            quietly(self._driver, "cuStreamDestroy_v2", handle)

    def __repr__(self) -> str:
        return f"<GpuStream {self.name!r} {self.handle:#x}>"


class Later:
    """Memory that waits to be freed: that would have the host wait for what is held back."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._all: list[int] = []
        self.open = True

    def add(self, ptr: int) -> None:
        """Free it with the others; at once where there is no more of them."""
        if self.open:
            self._all.append(ptr)
        else:
            quietly(self._driver, "cuMemFree_v2", ptr)

    def free(self) -> None:
        """Free all: nothing is pending."""
        while self._all:
            quietly(self._driver, "cuMemFree_v2", self._all.pop())


class Memory:
    """Bytes of the device, given back when the object goes.

    Where a stream was said they go back in its order, and the next ones on it are taken from them
    at once, as caching allocators do. Others are freed, or
    go to `later`.
    """

    def __init__(
        self,
        driver: Driver,
        nbytes: int,
        stream: int | None,
        keep: object = None,
        later: Later | None = None,
    ) -> None:
        self._driver = driver
        self._later = later
        self._stream = stream
        # The stream's object, where it may go before the memory does.
        self._keep = keep
        self.nbytes = nbytes
        arguments = (max(nbytes, 1),) if stream is None else (max(nbytes, 1), stream)
        name = "cuMemAlloc_v2" if stream is None else "cuMemAllocAsync"
        with driver.context():
            self.ptr = driver.get(name, *arguments, kind=ctypes.c_uint64)

    def __del__(self) -> None:
        ptr = getattr(self, "ptr", 0)
        if not ptr:
            return
        if self._stream is not None:
            quietly(self._driver, "cuMemFreeAsync", ptr, self._stream)
        elif self._later is not None:
            self._later.add(ptr)
        else:
            quietly(self._driver, "cuMemFree_v2", ptr)


def quietly(driver: Driver, name: str, *arguments: object) -> None:
    """Call where nothing can be raised: at the end of an object, and perhaps of the process."""
    with contextlib.suppress(Exception), driver.context():
        driver.code(name, *arguments)


class Queued:
    """What is queued on a stream so far, by an event behind it."""

    def __init__(self, driver: Driver, stream: int) -> None:
        self._driver = driver
        with driver.context():
            self._event = driver.event()
            driver("cuEventRecord", self._event, stream)

    @property
    def pending(self) -> bool:
        """Whether it still runs, or waits."""
        with self._driver.context():
            return self._driver.result("cuEventQuery", self._event) == NOT_READY

    def __del__(self) -> None:
        event = getattr(self, "_event", 0)
        if event:
            quietly(self._driver, "cuEventDestroy_v2", event)


class SpinningHold(Queued):
    """A kernel that spins at the front of a stream."""

    def __init__(
        self, driver: Driver, stream: int, flags: Pinned, at: int, limit_ms: float
    ) -> None:
        self._keep = flags
        self._flag = flag = ctypes.c_uint32.from_address(flags.ptr + 4 * at)
        flag.value = 0
        with driver.context():
            kernel = driver.kernel(HOLD_PTX, b"hold_back")
            driver.launch(kernel, stream, ctypes.addressof(flag), int(limit_ms * 1e6))
        super().__init__(driver, stream)

    def release(self) -> None:
        """End the kernel."""
        self._flag.value = 1


class Reading:
    """A read into host memory that the driver writes; its bytes are taken out once it has run."""

    def __init__(
        self,
        region: Region,
        span: tuple[int, int],
        staged: int,
        keep: Any,
        unsettled: set[Reading],
    ) -> None:
        self._region = region
        self._low, self._nbytes = span
        self._staged: int | None = staged
        self._keep = keep
        self._data = b""
        self._unsettled = unsettled
        unsettled.add(self)

    def settle(self) -> None:
        """Take the bytes out: the place is about to be used again."""
        if self._staged is not None:
            self._data = ctypes.string_at(self._staged, self._nbytes)
            self._staged = self._keep = None
            self._unsettled.discard(self)

    @property
    def value(self) -> Any:
        """What was seen, as nested lists; to be asked once the read has run."""
        self.settle()
        return self._region.read(lambda ptr, n: self._data[ptr - self._low : ptr - self._low + n])


class Pinned:
    """Host memory that the device writes without the host waiting."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self._driver = driver
        self.nbytes = nbytes
        with driver.context():
            self.ptr = driver.get("cuMemHostAlloc", nbytes, HOST_PORTABLE | HOST_MAPPED)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0):
            quietly(self._driver, "cuMemFreeHost", self.ptr)
