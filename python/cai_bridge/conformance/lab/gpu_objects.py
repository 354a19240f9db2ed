"""The objects of a GPU lab: streams, memory, holds and reads."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from cai_bridge.testing._region import Region

from .cuda import HOLD_PTX, HOST_MAPPED, HOST_PORTABLE, NOT_READY, Driver


class Spare:
    """Unused streams and memory, for reuse once all work is done.

    With thousands of streams the driver takes long to wait for all of them. Freeing memory makes
    the host wait for held-back work.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._ended: list[tuple[int, int]] = []
        self._idle: dict[int, list[int]] = {}
        self.open = True

    def add(self, one: int, nbytes: int = 0) -> None:
        """Add a stream, or memory of a size; destroy it at once if nothing is reused."""
        if self.open:
            self._ended.append((one, nbytes))
        else:
            self._end(one, nbytes)

    def settle(self) -> None:
        """Make everything that was added available: nothing is pending."""
        while self._ended:
            one, nbytes = self._ended.pop()
            self._idle.setdefault(nbytes, []).append(one)

    def take(self, nbytes: int = 0) -> int:
        """Return a stream, or memory of a size; 0 if there is none."""
        idle = self._idle.get(nbytes)
        return idle.pop() if idle else 0

    def close(self) -> None:
        """Destroy everything. Nothing is pending."""
        self.open = False
        self.settle()
        for nbytes, idle in self._idle.items():
            while idle:
                self._end(idle.pop(), nbytes)

    def _end(self, one: int, nbytes: int) -> None:
        quietly(self._driver, "cuMemFree_v2" if nbytes else "cuStreamDestroy_v2", one)


class GpuStream:
    """A non-blocking stream, destroyed or spared when the object is dropped."""

    def __init__(self, driver: Driver, name: str, spare: Spare | None = None) -> None:
        self._driver, self._spare = driver, spare
        self.name = name
        self.handle = spare.take() if spare is not None else 0
        if not self.handle:
            with driver.context():
                self.handle = driver.stream()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __del__(self) -> None:
        handle = getattr(self, "handle", 0)
        if handle and self._spare is not None:
            self._spare.add(handle)
        elif handle:
            quietly(self._driver, "cuStreamDestroy_v2", handle)

    def __repr__(self) -> str:
        return f"<GpuStream {self.name!r} {self.handle:#x}>"


class Memory:
    """Device memory, freed when the object is dropped.

    Memory allocated on a stream is freed in the stream's order, and the stream's next allocation
    may get it at once, as in caching allocators. Other memory is freed, or added to `spare`.
    """

    def __init__(
        self,
        driver: Driver,
        nbytes: int,
        stream: int | None,
        keep: object = None,
        spare: Spare | None = None,
    ) -> None:
        self._driver = driver
        self._spare = spare
        self._stream = stream
        # The stream's object, if it might be dropped before the memory.
        self._keep = keep
        self.nbytes = max(nbytes, 1)
        self.ptr = spare.take(self.nbytes) if spare is not None and stream is None else 0
        if self.ptr:
            return
        arguments = (self.nbytes,) if stream is None else (self.nbytes, stream)
        name = "cuMemAlloc_v2" if stream is None else "cuMemAllocAsync"
        with driver.context():
            self.ptr = driver.get(name, *arguments, kind=ctypes.c_uint64)

    def __del__(self) -> None:
        ptr = getattr(self, "ptr", 0)
        if not ptr:
            return
        if self._stream is not None:
            quietly(self._driver, "cuMemFreeAsync", ptr, self._stream)
        elif self._spare is not None:
            self._spare.add(ptr, self.nbytes)
        else:
            quietly(self._driver, "cuMemFree_v2", ptr)


def quietly(driver: Driver, name: str, *arguments: object) -> None:
    """Call, and ignore errors: for destructors, which may run at the end of the process."""
    with contextlib.suppress(Exception), driver.context():
        driver.code(name, *arguments)


class Queued:
    """The work queued on a stream so far, marked by an event."""

    def __init__(self, driver: Driver, stream: int) -> None:
        self._driver = driver
        with driver.context():
            self._event = driver.event()
            driver("cuEventRecord", self._event, stream)

    @property
    def pending(self) -> bool:
        """Whether the work still runs or waits."""
        with self._driver.context():
            return self._driver.result("cuEventQuery", self._event) == NOT_READY

    def __del__(self) -> None:
        event = getattr(self, "_event", 0)
        if event:
            quietly(self._driver, "cuEventDestroy_v2", event)


class SpinningHold(Queued):
    """A kernel that spins ahead of the stream's later work."""

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
    """A read into host memory. Its bytes are taken out once it has run."""

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
        """Take the bytes out, since their room is about to be reused."""
        if self._staged is not None:
            self._data = ctypes.string_at(self._staged, self._nbytes)
            self._staged = self._keep = None
            self._unsettled.discard(self)

    @property
    def value(self) -> Any:
        """The values read, as nested lists; ask once the read has run."""
        self.settle()
        return self._region.read(lambda ptr, n: self._data[ptr - self._low : ptr - self._low + n])


class Pinned:
    """Pinned host memory, which the device can write without a wait of the host."""

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self._driver = driver
        self.nbytes = nbytes
        with driver.context():
            self.ptr = driver.get("cuMemHostAlloc", nbytes, HOST_PORTABLE | HOST_MAPPED)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0):
            quietly(self._driver, "cuMemFreeHost", self.ptr)
