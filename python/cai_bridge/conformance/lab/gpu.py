"""A GPU as a lab: a spinning kernel holds work back, and the values show a missing wait.

All streams of the lab are non-blocking, so the legacy default stream orders none of them. A GPU
reports no races: a check sees only whether its work ran before the held-back write.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import time
import weakref
from collections.abc import Iterator
from typing import Any

from cai_bridge.testing._kit.said import Said
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import compact_strides, flat

from ..requirement import NotApplicableError, UnmetError
from .base import Lab
from .cuda import NOT_READY, TYPE_DEVICE, TYPE_HOST, load
from .gpu_objects import GpuStream, Memory, Pinned, Reading, Spare, SpinningHold
from .objects import DefaultStream, Hold

LIMIT_MS = 100.0
STRAY_MS = 0.5
"""How long a write has, to show that nothing holds it back."""
PATIENCE_MS = 2.0
"""How long a read has, to overtake what it should have waited for.

Work on an idle stream of an H200 is done within 0.1 ms; where it is not, a read has longer. What a
library queues on a stream without a name has twice as long: its host may be slow.
"""
_FLAGS = 1024
_STAGING = 16 << 20


class GpuLab(Lab):
    """The GPU of this process's current context.

    Parameters
    ----------
    rounds : int, optional
        How often to try a check that depends on timing.
    limit_ms : float, optional
        How long a hold lasts if nobody releases it. If a library makes the host wait for held-back
        work, the host waits this long.
    """

    where = "gpu"
    timed = True

    def __init__(self, rounds: int = 5, limit_ms: float = LIMIT_MS) -> None:
        self.rounds = rounds
        self.limit_ms = limit_ms
        self.driver = load()
        self.device = (2, self.driver.ordinal)
        self.name = self.driver.describe()
        if not self.has_device():
            # As after a program's first CUDA call. Other threads have no current context.
            self.driver("cuCtxSetCurrent", self.driver.primary)
        # Allocate all pinned memory now, since a later allocation may wait for the device.
        self._flags = Pinned(self.driver, 4 * _FLAGS)
        self._staging = Pinned(self.driver, _STAGING)
        self._staged = 0
        self._readings: set[Reading] = set()
        self._holds: dict[int, weakref.ref[SpinningHold]] = {}
        self._held = 0
        self._ended, self._blocks = Spare(self.driver), Spare(self.driver)
        self._own = self.stream("the lab's own")
        self._idle, self._small = GpuStream(self.driver, "an idle one"), self.memory(64)
        self._warm_up()

    def _warm_up(self) -> None:
        """Load the kernels now: loading a kernel may wait for the device."""
        memory = self.memory(64)
        region = self.words(memory.ptr, 16)
        hold = self.hold(self._own.handle)
        self.write(self._own.handle, region, 0.0)
        hold.release()
        self.read(self._own.handle, region)
        self.synchronize()

    def close(self) -> None:
        """Wait for queued work, and destroy the streams."""
        self.synchronize()
        self._ended.close()
        self._blocks.close()

    def begin_thread(self) -> None:
        """Change nothing: a new thread has no current context."""

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Make the primary context the calling thread's current one."""
        return self.driver.context()

    def has_device(self) -> bool:
        """Ask the driver for the calling thread's context."""
        return self.driver.current_context() != 0

    # Streams.

    def stream(self, name: str = "the kit's") -> GpuStream:
        """Return a non-blocking stream, which lives until the lab is closed.

        Once nothing refers to the stream, a later check may get it again.
        """
        return GpuStream(self.driver, name, self._ended)

    @contextlib.contextmanager
    def fresh(self) -> Iterator[None]:
        """Run one check, with the streams that earlier checks no longer use."""
        with super().fresh():
            self._ended.settle()
            yield

    def per_thread(self) -> DefaultStream:
        """Return the per-thread default stream."""
        return DefaultStream(2)

    def order(self, first: int, then: int) -> None:
        """Order two streams by an event."""
        if first != then:
            with self.driver.context():
                self.driver.order(first, then)

    def hold(self, stream: int) -> Hold:
        """Queue a kernel that spins until it is released, or for the lab's limit."""
        at, self._held = self._held, (self._held + 1) % _FLAGS
        before = self._holds.get(at)
        last = before() if before is not None else None
        if last is not None and last.pending:
            self.synchronize()
        made = SpinningHold(self.driver, stream, self._flags, at, self.limit_ms)
        self._holds[at] = weakref.ref(made)
        return made

    def is_behind(self, stream: int, hold: Hold, region: Region, before: float) -> bool:
        """Return whether the values stay the same while the hold holds."""
        del stream
        time.sleep(1e-3 * STRAY_MS)
        seen = set(flat(self.get(region)))
        return seen == {before} or not hold.pending

    def overtakes(self, stream: int | None, hold: Hold) -> bool | None:
        """Return whether all work on a stream is done while a hold still holds.

        Each time a write of the lab on an idle stream must overtake the hold, too. If it does not,
        the GPU is too busy to judge. A slow GPU gets twice the time that it took for this write.
        """
        with self.driver.context():
            events = [self.driver.event(), self.driver.event()]
            try:
                own = self._idle.handle
                self.driver("cuMemsetD32Async", self._small.ptr, 0, 1, own)
                self.driver("cuEventRecord", events[0], own)
                if stream is not None:
                    self.driver("cuEventRecord", events[1], stream)
                return self._race(events[0], None if stream is None else events[1], hold)
            finally:
                for event in events:
                    self.driver("cuEventDestroy_v2", event)

    def _race(self, control: Any, asked: Any, hold: Hold) -> bool | None:
        begin = time.perf_counter()
        patience = PATIENCE_MS if asked is not None else 2 * PATIENCE_MS
        until, idle_is_done = begin + 1e-3 * patience, False
        while hold.pending:
            now = time.perf_counter()
            if not idle_is_done and self._is_done(control):
                idle_is_done, until = True, max(until, now + (now - begin))
            if asked is not None and self._is_done(asked):
                return True if hold.pending else None
            if idle_is_done and now > until:
                return False
        return None

    def _is_done(self, event: Any) -> bool:
        return self.driver.result("cuEventQuery", event) != NOT_READY

    def wait(self, stream: int) -> None:
        """Wait on the host for a stream."""
        with self.driver.context():
            self.driver("cuStreamSynchronize", stream)

    def synchronize(self) -> None:
        """Release the holds, and make the host wait for all work."""
        ctypes.memset(self._flags.ptr, 0xFF, self._flags.nbytes)
        self._holds.clear()
        self.driver.synchronize()
        self._blocks.settle()
        for reading in list(self._readings):
            reading.settle()
        self._readings.clear()
        self._staged = 0

    def reports(self) -> list[str]:
        """Return nothing: a GPU reports no races."""
        return []

    # Memory.

    def region(self, said: Said) -> Region:
        """Make a region on the lab's GPU; another GPU has other default streams."""
        region = super().region(said)
        kind, _, ordinal = self.driver.attributes(region.ptr) if region.size else (0, 0, 0)
        here = self.device[1]
        if kind == TYPE_DEVICE and ordinal != here:
            raise UnmetError(
                f"the array is on CUDA device {ordinal}, and device {here} was current as the kit "
                "began, which it works on"
            )
        return region

    def memory(self, nbytes: int, stream: int | None = None, kind: str = "device") -> Any:
        """Allocate bytes; with a stream, from the driver's pool, freed in the stream's order.

        The stream must live as long as the memory.
        """
        if kind != "device":
            raise NotApplicableError(f"{kind} memory is judged on the simulated device")
        return Memory(self.driver, nbytes, stream, spare=self._blocks)

    def store(self, ptr: int, data: bytes) -> None:
        """Write memory from the host, past all streams."""
        if data:
            source = (ctypes.c_char * len(data)).from_buffer_copy(data)
            self._copy_now(ptr, ctypes.addressof(source), len(data))

    def load(self, ptr: int, nbytes: int) -> bytes:
        """Read memory from the host, past all streams."""
        target = ctypes.create_string_buffer(max(nbytes, 1))
        if nbytes:
            self._copy_now(ctypes.addressof(target), ptr, nbytes)
        return target.raw[:nbytes]

    def _copy_now(self, target: int, source: int, nbytes: int) -> None:
        own = self._own.handle
        with self.driver.context():
            self.driver("cuMemcpyAsync", target, source, nbytes, own)
            self.driver("cuStreamSynchronize", own)

    def write(self, stream: int, region: Region, value: Any, name: str = "the write") -> None:
        """Queue a write of one value to all items of a float32 region."""
        del name
        (bits,) = struct.unpack("<I", struct.pack("<f", float(value)))
        with self.driver.context():
            for ptr, length in region.spans():
                self.driver("cuMemsetD32Async", ptr, bits, length // 4, stream)

    def read(self, stream: int, region: Region, name: str = "the read") -> Reading:
        """Queue a copy of the bytes that the region's items cover into host memory."""
        del name
        spans = region.spans()
        low = min((ptr for ptr, _ in spans), default=0)
        nbytes = max((ptr + length for ptr, length in spans), default=0) - low
        staged, keep = self._stage(nbytes)
        if nbytes:
            with self.driver.context():
                self.driver("cuMemcpyAsync", staged, low, nbytes, stream)
        return Reading(region, (low, nbytes), staged, keep, self._readings)

    def copy(self, stream: int, target: Region, source: Region) -> None:
        """Queue a copy: one copy of all bytes if both regions are compact, else item by item."""
        nbytes = source.size * source.itemsize
        compact = compact_strides(source.shape, source.itemsize)
        pairs = [(target.ptr, source.ptr)] if nbytes else []
        if source.strides != compact or target.strides != compact:
            nbytes = source.itemsize
            steps = zip(target.offsets(), source.offsets(), strict=True)
            pairs = [(target.ptr + to, source.ptr + of) for to, of in steps]
        with self.driver.context():
            for to, of in pairs:
                self.driver("cuMemcpyAsync", to, of, nbytes, stream)

    def _stage(self, nbytes: int) -> tuple[int, Any]:
        """Find room in pinned memory, which is reused once all reads are taken out."""
        if not self._readings:
            self._staged = 0
        at, size = self._staged, -(-nbytes // 256) * 256
        if at + size > self._staging.nbytes:
            own = Pinned(self.driver, max(nbytes, 1))
            return own.ptr, own
        self._staged += size
        return self._staging.ptr + at, None

    def device_of(self, ptr: int) -> tuple[int, int] | None:
        """Ask the driver, which distinguishes managed and pinned memory from device memory."""
        kind, managed, ordinal = self.driver.attributes(ptr)
        if not kind:
            return None
        if managed == 1:
            return 13, 0
        return (3, 0) if kind == TYPE_HOST else (2, ordinal)
