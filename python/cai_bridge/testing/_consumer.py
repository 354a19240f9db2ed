"""Stand-in consumers, which import an array as the real libraries do."""

from __future__ import annotations

from typing import Any, ClassVar

from cai_bridge import _core
from cai_bridge._core import _Session

from . import _checks, _work
from ._pending import Pending, Result
from ._region import Region
from ._stream import SimulatedStream, working_on

# The version that today's consumers ask for.
MAX_VERSION = (1, 3)


class Consumer:
    """A library that imports an array and works on it; `SimulatedCuda.consumer` makes it.

    Each `read` and `write` imports the array again, in the way of its kind, and queues its work on
    the stream that it may use. The returned `Pending` holds the imported object.
    """

    kind: ClassVar[str]
    # Whether it ignores the stream that a dict names.
    ignores_dicts: ClassVar[bool] = False

    def __init__(self, session: _Session, stream: SimulatedStream) -> None:
        self._session = session
        self.stream = stream

    def _take(self, array: Any) -> tuple[Region, SimulatedStream, object]:
        """Import the array: return its memory, the stream to work on, and what to hold."""
        raise NotImplementedError

    def _taken(self, array: Any) -> tuple[Region, SimulatedStream, object]:
        """Import the array while the consumer's stream is current, as in the real libraries."""
        with working_on(self.stream, ignores_dicts=self.ignores_dicts):
            return self._take(array)

    def read(self, array: object, *, name: str | None = None) -> Pending:
        """Queue a read of an array or view.

        Returns
        -------
        Pending
            The values that the read saw, after the work has run.
        """
        region, stream, held = self._taken(array)
        return _work.read(stream, region, name=name or f"{self.kind} read", held=held)

    def write(self, array: object, value: object, *, name: str | None = None) -> Pending:
        """Queue a write of one value, or of nested lists of the array's shape.

        Raises
        ------
        BufferError
            The array is read-only.
        """
        region, stream, held = self._taken(array)
        _work.check_writable(region)
        name = name or f"{self.kind} write"
        store, result, items = self._session.store, Result(), region.pack(value)

        def run() -> None:
            region.write(items, store)
            result.set(None)

        _work.launch(stream, run, reads=(), writes=region.spans(), name=name)
        return Pending(name, result, held)

    def _on(self, device: int, handle: int) -> SimulatedStream:
        """Name another owner's stream by the driver's handle."""
        if (device, handle) == self.stream._queue:
            return self.stream
        return SimulatedStream._named(self._session, device, handle or 1)

    def __repr__(self) -> str:
        return f"<{self.kind} consumer on {self.stream.name!r}>"


class _Cai(Consumer):
    def _take(self, array: Any) -> tuple[Region, SimulatedStream, object]:
        interface = array.__cuda_array_interface__
        region = _work.region_of_dict(interface, array)
        theirs = interface.get("stream")
        if theirs is None:
            return region, self.stream, array
        device = self._session.device_of(region.ptr)
        device = self.stream.device if device is None else device
        return region, self._ordered(self._on(device, theirs)), array

    def _ordered(self, theirs: SimulatedStream) -> SimulatedStream:
        raise NotImplementedError


class _CaiWaits(_Cai):
    kind = "cai-waits"

    def _ordered(self, theirs: SimulatedStream) -> SimulatedStream:
        self._session.order(theirs._queue, self.stream._queue)
        return self.stream


class _CaiEnqueues(_Cai):
    kind = "cai-enqueues"

    def _ordered(self, theirs: SimulatedStream) -> SimulatedStream:
        return theirs


class _CaiBlocks(_Cai):
    kind = "cai-blocks"

    def _ordered(self, theirs: SimulatedStream) -> SimulatedStream:
        theirs.synchronize()
        return self.stream


class _CaiTrusting(_Cai):
    kind = "cai-trusting"
    ignores_dicts = True

    def _ordered(self, theirs: SimulatedStream) -> SimulatedStream:
        del theirs
        return self.stream


class _DLPack(Consumer):
    kind = "dlpack"

    def _take(self, array: Any) -> tuple[Region, SimulatedStream, object]:
        tensor = _core._simulated_import_capsule(self._capsule(array))
        return _work.region_of(tensor), self._worker(tensor), tensor

    def _capsule(self, array: Any) -> Any:
        return _ask(array, self.stream.handle)

    def _worker(self, tensor: _core._Import) -> SimulatedStream:
        del tensor
        return self.stream


class _DLPackLegacyCapsule(_DLPack):
    kind = "dlpack-legacy-capsule"

    def _capsule(self, array: Any) -> Any:
        return array.__dlpack__(stream=self.stream.handle)


class _DLPackNone(_DLPack):
    kind = "dlpack-none"

    def _capsule(self, array: Any) -> Any:
        return _ask(array, None)

    def _worker(self, tensor: _core._Import) -> SimulatedStream:
        return self._on(_ordinal(_work.region_of(tensor), self.stream), 1)


class _DLPackUnordered(_DLPack):
    kind = "dlpack-unordered"

    def _capsule(self, array: Any) -> Any:
        return _ask(array, -1)


class _DLPackExchange(Consumer):
    kind = "dlpack-exchange"

    def _take(self, array: Any) -> tuple[Region, SimulatedStream, object]:
        tensor, handle = _core._simulated_import_exchange(array)
        region = _work.region_of(tensor)
        return region, self._on(_ordinal(region, self.stream), handle), tensor


class _DLPackBorrowed(Consumer):
    kind = "dlpack-borrowed"

    def _take(self, array: Any) -> tuple[Region, SimulatedStream, object]:
        made, handle = _core._simulated_borrow_exchange(array)
        region = Region(*made)
        return region, self._on(_ordinal(region, self.stream), handle), array


def _ordinal(region: Region, stream: SimulatedStream) -> int:
    """Return the device to work on; pinned and managed memory names none."""
    kind, ordinal = region.device
    return ordinal if kind == 2 else stream.device


def _ask(array: Any, stream: int | None) -> Any:
    """Call ``__dlpack__``, without a version if the producer takes none."""
    try:
        return array.__dlpack__(stream=stream, max_version=MAX_VERSION)
    except TypeError:
        return array.__dlpack__(stream=stream)


CONSUMERS: dict[str, type[Consumer]] = {
    consumer.kind: consumer
    for consumer in (
        _CaiWaits,
        _CaiEnqueues,
        _CaiBlocks,
        _CaiTrusting,
        _DLPack,
        _DLPackLegacyCapsule,
        _DLPackNone,
        _DLPackUnordered,
        _DLPackExchange,
        _DLPackBorrowed,
    )
}


def consumer(session: _Session, kind: str, stream: SimulatedStream) -> Consumer:
    """Make a consumer of this kind."""
    return CONSUMERS[_checks.choice("kind", kind, CONSUMERS)](session, stream)
