"""The simulated device as a lab: deterministic, by a happens-before check."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cai_bridge import DriverError
from cai_bridge.testing._cuda import SimulatedCuda
from cai_bridge.testing._region import Region
from cai_bridge.testing._stream import SimulatedStream

from ..requirement import NoMemoryError, NotApplicableError, expect
from .base import Lab
from .objects import Hold, LabStream, Reading, Watch

# Parts of the names of calls in which the host waits; the bridge's own is `cuModuleUnload`.
HOST_WAITS = ("Synchronize", "ModuleUnload")

MANY_WAITS = 16


@contextlib.contextmanager
def _known(ptr: int) -> Iterator[None]:
    """Replace the error for unknown memory by a clearer one."""
    try:
        yield
    except DriverError as error:
        if "ILLEGAL_ADDRESS" not in str(error):
            raise
        raise NoMemoryError(
            f"the array is said to be at {ptr:#x}, where there is no memory of its size: its array "
            f"or block had died, or its items are elsewhere"
        ) from error


class _Late:
    """Holds nothing: all queued work runs as late as is legal anyway."""

    pending = True

    def release(self) -> None:
        """Do nothing."""


class SimulatedLab(Lab):
    """An active simulated device, or a new one."""

    name = "the simulated device"
    where = "simulated"
    rounds = 1
    timed = False
    # Nothing takes long here, and every range of bytes is checked.
    items = 64
    # The simulated driver reports calls that would crash the process.
    expendable = True

    def __init__(self, cuda: SimulatedCuda, *, own: bool) -> None:
        self.cuda = cuda
        self._own = own

    def close(self) -> None:
        """Deactivate the lab's own device."""
        if self._own:
            self.cuda.__exit__(None, None, None)

    @contextlib.contextmanager
    def on_device(self, ordinal: int) -> Iterator[None]:
        """Make a device the calling thread's current one, if there are several."""
        if self.cuda.devices <= ordinal:
            raise NotApplicableError("there is one device")
        before = self.cuda.legacy.device
        self.cuda.set_device(ordinal)
        self.device = (2, ordinal)
        try:
            yield
        finally:
            self.cuda.set_device(before)
            self.device = (2, before)

    def begin_thread(self) -> None:
        """Leave the calling thread without a current device."""
        self.cuda._session.unset_device()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the lab's device the calling thread's current one."""
        before = self.cuda.current_device
        self.cuda.set_device(self.device[1])
        try:
            yield
        finally:
            if before is None:
                self.cuda._session.unset_device()
            else:
                self.cuda.set_device(before)

    def has_device(self) -> bool:
        """Ask the simulated driver."""
        return self.cuda.current_device is not None

    def _stream(self, handle: int) -> SimulatedStream:
        return self.cuda.stream_of(handle)

    def stream(self, name: str = "the kit's") -> LabStream:
        """Make a non-blocking stream."""
        return self.cuda.stream(name)

    def per_thread(self) -> SimulatedStream:
        """Return the per-thread default stream."""
        return self.cuda.per_thread

    def called(self, stream: object) -> str:
        """Return a stream's name as the simulated device reports it."""
        if type(stream) is int and stream > 2:
            # The stream may be destroyed by now, or there may be none.
            with contextlib.suppress(DriverError):
                name = self.cuda._session.stream_name(self.cuda.legacy.device, stream)
                return name.partition(" (device")[0]
        return super().called(stream)

    def order(self, first: int, then: int) -> None:
        """Order two streams by an event."""
        self._stream(then).wait(self._stream(first).record())

    def hold(self, stream: int) -> Hold:
        """Hold nothing: all work is late."""
        del stream
        return _Late()

    def is_behind(self, stream: int, hold: Hold, region: Region, before: float) -> bool:
        """Read on a stream ordered after this one, and see whether the write is ordered before."""
        del hold, before
        found, probe = len(self.cuda.reports), self.stream("the kit's probe")
        self.order(stream, probe.handle)
        self.read(probe.handle, region, "the kit's probe")
        # Later work on the stream must come after the probe as well.
        self.order(probe.handle, stream)
        return len(self.cuda.reports) == found

    def _calls_so_far(self) -> int:
        """Count the driver calls; clear the log of the lab's own device first."""
        if self._own:
            self.cuda.clear_calls()
        return len(self.cuda.calls)

    @contextlib.contextmanager
    def no_waits(self) -> Iterator[None]:
        """Look for waits among the driver calls made within the block."""
        before = self._calls_so_far()
        yield
        made = [one.call for one in self.cuda.calls[before:]]
        waits = [
            call for call in made if "Wait" in call or any(wait in call for wait in HOST_WAITS)
        ]
        expect(not waits, f"the driver was asked for {', '.join(waits)}")

    @contextlib.contextmanager
    def failing_waits(self) -> Iterator[None]:
        """Make up to `MANY_WAITS` waits between streams fail within the block."""
        for nth in range(1, MANY_WAITS + 1):
            self.cuda.fail("cuStreamWaitEvent", nth, "CUDA_ERROR_UNKNOWN")
        try:
            yield
        finally:
            self.cuda.clear_faults()

    @contextlib.contextmanager
    def watched(self, hold: Hold | None = None) -> Iterator[Watch]:
        """Look for host waits among the driver calls made within the block."""
        before = self._calls_so_far()
        with super().watched(hold) as watch:
            yield watch
        watch.waited = any(
            wait in one.call for one in self.cuda.calls[before:] for wait in HOST_WAITS
        )

    def wait(self, stream: int) -> None:
        """Wait for a stream, which runs its work and the work that it waits for."""
        self._stream(stream).synchronize()

    def synchronize(self) -> None:
        """Run all work, and wait for it."""
        self.cuda.synchronize()

    def reports(self) -> list[str]:
        """Return the reports of the happens-before check, and forget them."""
        found = [str(report) for report in self.cuda.reports]
        self.cuda.clear_reports()
        return found

    def memory(self, nbytes: int, stream: int | None = None, kind: str = "device") -> Any:
        """Allocate bytes of the simulated device."""
        if kind != "device":
            return self.cuda.array(shape=nbytes, dtype="uint8", speaks=(), memory=kind)
        if stream is None:
            return self.cuda.alloc(nbytes)
        return self.cuda.array(
            shape=nbytes, dtype="uint8", speaks=(), stream=self._stream(stream), memory="pool"
        )

    def store(self, ptr: int, data: bytes) -> None:
        """Write memory without the happens-before check."""
        with _known(ptr):
            self.cuda._session.store(ptr, data)

    def load(self, ptr: int, nbytes: int) -> bytes:
        """Read memory without the happens-before check."""
        with _known(ptr):
            return self.cuda._session.load(ptr, nbytes)

    def write(self, stream: int, region: Region, value: Any, name: str = "the write") -> None:
        """Queue a write."""
        self._stream(stream).fill(region, value, name=name)

    def read(self, stream: int, region: Region, name: str = "the read") -> Reading:
        """Queue a read."""
        return self._stream(stream).read(region, name=name)

    def copy(self, stream: int, target: Region, source: Region) -> None:
        """Queue a copy."""
        self._stream(stream).copy(target, source)

    def device_of(self, ptr: int) -> tuple[int, int] | None:
        """Ask the simulated driver."""
        ordinal = self.cuda._session.device_of(ptr)
        return None if ordinal is None else (2, ordinal)
