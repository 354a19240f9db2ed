"""The interface of every lab."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Self, cast

from cai_bridge._environment import QUEUES
from cai_bridge.testing._kit.dlpack_abi import TensorFields
from cai_bridge.testing._kit.said import Said
from cai_bridge.testing._kit.said_dlpack import said_by_tensor
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import compact_strides, flat

from ..requirement import NotApplicableError, UnmetError, expect
from .objects import Hold, LabStream, Late, Reading, Watch

HELD_MS = 1.0
"""A host that is held for longer has waited: a hand-over takes some 0.01 ms."""

PATIENT_S, HASTY_S = 1.0, 0.02
"""How long to wait for what another thread may do a moment later, at first and after that."""

_DEFAULT_STREAMS = {
    None: "no stream",
    1: "the legacy default stream",
    2: "the per-thread default stream",
}

_values = itertools.count(1)


@contextlib.contextmanager
def _collecting_what_is_new() -> Iterator[None]:
    """Let garbage collections look at objects made within only.

    A collection of everything that libraries keep takes most of a hold's time: 60 ms for Numba's
    kernels.
    """
    gc.freeze()
    try:
        yield
        gc.collect()
    finally:
        gc.unfreeze()


class Lab(ABC):
    """A device to judge on, as a context manager; `open_lab` makes one.

    Attributes
    ----------
    name : str
        The device's name in reports.
    where : str
        The lab's kind, as `open_lab` takes it.
    rounds : int
        How often to try a check that depends on timing; 1 if none does.
    timed : bool
        Whether races show only in values and times, since the device reports none.
    items : int
        The number of items of an array with pending work.
    device : tuple of (int, int)
        DLPack's device of the lab's memory.
    expendable : bool
        Whether a check may crash the process.
    thorough : bool
        Whether every combination of values is judged, and not only every pair.
    """

    name: str
    where: str
    rounds: int
    timed: bool
    items: int = 1024
    device: tuple[int, int] = (2, 0)
    expendable: bool = False
    thorough: bool = False
    _tried = 0
    _shown = 0
    _turns = 0
    _patience_s = PATIENT_S

    @functools.cached_property
    def own(self) -> dict[Any, Any]:
        """The kit's own libraries in this lab, and their outcomes: see `conformance.reference`."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Free the lab's resources."""

    def on_device(self, ordinal: int) -> contextlib.AbstractContextManager[None]:
        """Make a device the current one, if there are several.

        Raises
        ------
        NotApplicableError
            The lab has only one device.
        """
        del ordinal
        raise NotApplicableError("there is one device")

    @abstractmethod
    def begin_thread(self) -> None:
        """Leave the calling thread without a current device, like a new thread on a GPU."""

    @abstractmethod
    def current(self) -> contextlib.AbstractContextManager[None]:
        """Make the lab's device the calling thread's current one."""

    @abstractmethod
    def has_device(self) -> bool:
        """Return whether the calling thread has a current device."""

    # Streams.

    @abstractmethod
    def stream(self, name: str = "the kit's") -> LabStream:
        """Make a stream that has no implicit order with any other stream."""

    @abstractmethod
    def per_thread(self) -> Any:
        """Return the per-thread default stream, as an object with ``__cuda_stream__``."""

    @abstractmethod
    def order(self, first: int, then: int) -> None:
        """Make work queued on `then` from now on run after work queued on `first`; handles."""

    @abstractmethod
    def hold(self, stream: int) -> Hold:
        """Queue work on a stream, by its handle, that holds back later work on it."""

    @abstractmethod
    def is_behind(self, stream: int, hold: Hold, region: Region, before: float) -> bool:
        """Return whether the last write to a region is queued on a stream, after a hold.

        Parameters
        ----------
        stream : int
            The stream's handle.
        hold : Hold
            The hold on the stream.
        region : Region
            The region that was written.
        before : float
            The value of all its items before the write, for a device that is timed.
        """

    def turn(self, count: int) -> int:
        """Count from 0 to `count` - 1 and start again, one step for each round."""
        self._turns += 1
        return (self._turns - 1) % count

    def overtakes(self, stream: int | None, hold: Hold) -> bool | None:
        """Return whether all work on a stream is seen done while a hold still holds.

        Always false if nothing is timed, since such a lab reports missing orders. For None, a
        stream without a name, the lab waits as long as for others and sees nothing.

        Returns
        -------
        bool or None
            None if even work on an idle stream was not done in that time, so that the check cannot
            be judged.
        """
        del stream, hold
        return False

    def count(self, shown: bool) -> None:
        """Count a round of `values`, and whether a fault would have shown in it."""
        self._tried += 1
        self._shown += shown

    def called(self, stream: object) -> str:
        """Return a stream's name in reports, from the handle that a protocol passes."""
        return _DEFAULT_STREAMS.get(stream) or (  # type: ignore[call-overload]
            f"stream {stream:#x}" if type(stream) is int else repr(stream)
        )

    @abstractmethod
    def wait(self, stream: int) -> None:
        """Make the host wait for a stream."""

    @abstractmethod
    def synchronize(self) -> None:
        """Make the host wait for all work."""

    @abstractmethod
    def reports(self) -> list[str]:
        """Return the races found since the last call, if the lab finds any, and forget them."""

    @contextlib.contextmanager
    def no_waits(self) -> Iterator[None]:
        """Fail if anything makes a stream wait within the block, as far as the lab can see.

        Raises
        ------
        UnmetError
            Something made a stream wait.
        """
        yield

    def failing_waits(self) -> contextlib.AbstractContextManager[None]:
        """Make the driver's waits between streams fail within the block, if the lab can.

        Raises
        ------
        NotApplicableError
            The lab cannot.
        """
        raise NotApplicableError("no driver call can be made to fail here")

    @contextlib.contextmanager
    def watched(self, hold: Hold | None = None) -> Iterator[Watch]:
        """Watch whether the host waits for the device within the block; by default by the time.

        On a busy machine a block can take as long without a wait. So pass the `hold` of the work:
        if it still holds afterwards, the host did not wait for this work.
        """
        watch, start = Watch(), time.perf_counter()
        try:
            yield watch
        finally:
            watch.ms = 1e3 * (time.perf_counter() - start)
            watch.waited = watch.ms >= HELD_MS and not (hold and hold.pending)

    def soon(self, happened: Callable[[], bool]) -> bool:
        """Return whether something has happened, or happens in a moment, in another thread.

        The first time that it never happens takes the full limit, later times a shorter one.
        """
        end = time.perf_counter() + self._patience_s
        while not happened():
            if time.perf_counter() > end:
                self._patience_s = HASTY_S
                return False
            time.sleep(HASTY_S / 20)
            self.synchronize()
        return True

    # Memory.

    @abstractmethod
    def memory(self, nbytes: int, stream: int | None = None, kind: str = "device") -> Any:
        """Allocate bytes of a kind for use on a stream; dropping the object frees them.

        The object has a ``ptr``.
        """

    @abstractmethod
    def store(self, ptr: int, data: bytes) -> None:
        """Write memory from the host, at once."""

    @abstractmethod
    def load(self, ptr: int, nbytes: int) -> bytes:
        """Read memory from the host, at once."""

    @abstractmethod
    def write(self, stream: int, region: Region, value: Any, name: str = "the write") -> None:
        """Queue a write of one value to all items of a float32 region."""

    @abstractmethod
    def read(self, stream: int, region: Region, name: str = "the read") -> Reading:
        """Queue a read of a region's items."""

    @abstractmethod
    def copy(self, stream: int, target: Region, source: Region) -> None:
        """Queue a copy of a region's items to another of its shape and type."""

    @abstractmethod
    def device_of(self, ptr: int) -> tuple[int, int] | None:
        """Return DLPack's device of an address; None if CUDA does not know it."""

    # What checks are made of.

    @contextlib.contextmanager
    def fresh(self) -> Iterator[None]:
        """Run one check. Nothing is pending before it, and races that it leaves behind are found.

        Raises
        ------
        UnmetError
            A race that the check did not expect.
        """
        self.synchronize()
        self.reports()
        try:
            with _collecting_what_is_new() if self.timed else contextlib.nullcontext():
                yield
        except BaseException:
            self.synchronize()
            self.reports()
            raise
        self.synchronize()
        found = self.reports()
        expect(not found, "; ".join(found))

    def values(self) -> Iterator[float]:
        """Yield a new value in each round, so that a stale right value does not pass.

        Raises
        ------
        NotApplicableError
            At the end, if a fault would have shown in no round.
        """
        self._shown = self._tried = 0
        for _ in range(self.rounds):
            yield float(next(_values))
        if self._tried and not self._shown:
            [queues] = map("=".join, QUEUES.items())
            raise NotApplicableError(
                "each time what was held back was done too early, or the device was too busy for "
                "work on an idle stream, so that no fault could show (streams share queues, too, "
                f"if CUDA began without {queues} in the environment)"
            )

    def region(self, said: Said) -> Region:
        """Make a region from a protocol's description of an array.

        Raises
        ------
        UnmetError
            The description lacks something that is needed to find the memory.
        """
        expect(said.error is None, f"{said.door} could not be read: {said.error}")
        for field in ("ptr", "shape", "strides", "itemsize"):
            expect(getattr(said, field) is not None, f"{said.door} does not say {field}")
        ptr, shape = cast("int", said.ptr), cast("tuple[int, ...]", said.shape)
        strides = cast("tuple[int, ...]", said.strides)
        return Region(ptr, shape, strides, str(said.dtype), cast("int", said.itemsize))

    def tensor_region(self, fields: TensorFields) -> Region:
        """Make a region from the fields of a DLPack tensor."""
        return self.region(said_by_tensor("the tensor", fields))

    def put(self, region: Region, value: Any) -> None:
        """Write one value, or nested lists of the region's shape, from the host, at once."""
        region.write(region.pack(value), self.store)

    def get(self, region: Region) -> Any:
        """Read a region's items from the host, at once, as nested lists."""
        return region.read(self.load)

    def words(self, ptr: int, count: int) -> Region:
        """Make a region of `count` float32 items at an address."""
        return Region(ptr, (count,), compact_strides((count,), 4), "float32", 4)

    def expect_read(self, stream: int, region: Region, late: Late, allowed: str) -> str:
        """Read an array on a stream that the protocol has ordered, and judge the values.

        Parameters
        ----------
        stream : int
            The handle of the stream to read on.
        region : Region
            The array's items.
        late : Late
            The array with its held-back write.
        allowed : str
            What the consumer did, which should be enough for the order.

        Raises
        ------
        UnmetError
            The read did not see the write, or nothing orders the two.
        """
        seen = self.read(stream, region)
        pending = late.hold.pending
        early = self.overtakes(stream, late.hold)
        late.hold.release()
        self.wait(stream)
        self.synchronize()
        found = self.reports()
        wrong = [value for value in flat(seen.value) if value != late.value]
        if found or early:
            what = "; ".join(found) or (
                f"the read was done while the write was held back, and {len(wrong)} of "
                f"{region.size} items were {wrong[0] if wrong else late.value} instead of "
                f"{late.value}"
            )
            raise UnmetError(f"{allowed}, and nothing orders the two: {what}")
        if wrong:
            what = f"{wrong[0]} instead of {late.value}"
            raise UnmetError(f"{allowed}, but the read saw other items: {what}")
        self.count(pending and early is not None)
        return f"{allowed}, and read what was written"
