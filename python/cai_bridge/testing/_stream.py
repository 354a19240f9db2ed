"""Streams and events of the simulated device."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, Self

from cai_bridge._core import DriverError, _Session

from . import _checks, _work
from ._errors import SimulatedError
from ._pending import Pending


class _Current(threading.local):
    """The streams that the simulated libraries use now, in one thread."""

    def __init__(self) -> None:
        self.streams: list[tuple[SimulatedStream, bool]] = []
        self.blocks: list[contextlib.AbstractContextManager[None]] = []


_current = _Current()


@contextlib.contextmanager
def working_on(stream: SimulatedStream, *, ignores_dicts: bool = False) -> Iterator[None]:
    """Make a stream a library's current one; the library may ignore the streams in dicts."""
    entry = (stream, ignores_dicts)
    _current.streams.append(entry)
    try:
        yield
    finally:
        _current.streams.remove(entry)


@contextlib.contextmanager
def current(stream: SimulatedStream) -> Iterator[None]:
    """Make a stream the current one of the arrays' library, in the calling thread."""
    device, session = stream.device, stream._session
    _work.check_open(session)
    before = session.set_current_stream(device, stream.handle)
    try:
        with working_on(stream):
            yield
    finally:
        session.set_current_stream(device, before)


def _current_streams(device: int) -> list[tuple[SimulatedStream, bool]]:
    """Return a device's current streams, and whether each one's library ignores dicts' streams.

    The returned objects keep their streams alive.
    """
    return [entry for entry in _current.streams if entry[0].device == device]


class SimulatedEvent:
    """An event, recorded on a stream.

    Attributes
    ----------
    handle : int
        The driver's handle.
    """

    def __init__(self, session: _Session, handle: int) -> None:
        self._session = session
        self.handle = handle

    @property
    def done(self) -> bool:
        """Whether the work before the event has run. If so, the host is ordered after it."""
        return self._session.query_event(self.handle)

    def synchronize(self) -> None:
        """Wait on the host, which runs the work before the event."""
        try:
            self._session.synchronize_event(self.handle)
        finally:
            _work.raise_kept(self._session)


class SimulatedStream:
    """A stream of the simulated device; it speaks CUDA's stream protocol.

    `SimulatedCuda.stream` makes it. The stream is destroyed with this object, as in other
    libraries; then its bare handle names a destroyed stream. In a ``with`` block it is the current
    one, as in `SimulatedCuda.current_stream`.
    """

    def __init__(self, session: _Session, device: int | None, handle: int, name: str) -> None:
        self._session = session
        self._device = device
        self._alive = handle > 2
        self._destroyed = False
        self.handle = handle
        self.name = name

    @classmethod
    def _named(cls, session: _Session, device: int | None, handle: int) -> SimulatedStream:
        """Return another owner's stream, which is not destroyed with this object."""
        known = {1: "legacy default stream", 2: "per-thread default stream"}
        stream = cls(session, device, handle, known.get(handle, f"stream {handle:#x}"))
        stream._alive = False
        return stream

    @property
    def external(self) -> bool:
        """Whether another owner has the stream, as with `SimulatedCuda.stream_of`."""
        return self.handle > 2 and not (self._alive or self._destroyed)

    @property
    def device_index(self) -> int | None:
        """The ordinal of the stream's device; None for the default stream of the current device."""
        return self._device

    @property
    def device(self) -> int:
        """The ordinal of the stream's device; a default stream's is the thread's current one."""
        if self._device is not None:
            return self._device
        current = self._session.device
        if current is None:
            raise SimulatedError("the calling thread has no current device")
        return current

    @property
    def _queue(self) -> tuple[int, int]:
        return (self.device, self.handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        if self._destroyed:
            raise SimulatedError(f"{self!r} was destroyed")
        return (0, self.handle)

    def __enter__(self) -> Self:
        block = current(self)
        block.__enter__()
        _current.blocks.append(block)
        return self

    def __exit__(self, *error: object) -> None:
        _current.blocks.pop().__exit__(None, None, None)

    def synchronize(self) -> None:
        """Wait on the host for all work of the stream, as `SimulatedCuda.synchronize` does."""
        try:
            self._session.synchronize_stream(*self._queue)
        finally:
            _work.raise_kept(self._session)

    def record(self) -> SimulatedEvent:
        """Record a new event on the stream."""
        return SimulatedEvent(self._session, self._session.record_event(*self._queue))

    def wait(self, event: SimulatedEvent) -> None:
        """Make later work on this stream wait for an event; the host does not wait."""
        if not isinstance(event, SimulatedEvent):
            _checks.refuse(TypeError, "event", event, "what record() of a stream returned")
        self._session.wait_event(*self._queue, event.handle)

    def launch(
        self,
        run: Callable[[], object] | None = None,
        *,
        reads: Iterable[object] = (),
        writes: Iterable[object] = (),
        name: str = "launch",
    ) -> None:
        """Queue work; see `SimulatedCuda.launch`."""
        _work.launch(self, run, reads=reads, writes=writes, name=name)

    def fill(self, array: object, value: object, *, name: str = "fill") -> None:
        """Queue a write of one value, or of nested lists of the array's shape, to an array or view.

        An array of the simulated device is then pending on this stream.
        """
        _work.fill(self, array, value, name=name)

    def copy(self, dst: object, src: object, *, name: str = "copy") -> None:
        """Queue a copy between arrays or views of the same shape and element type."""
        _work.copy(self, dst, src, name=name)

    def read(self, array: object, *, name: str = "read") -> Pending:
        """Queue a read of an array or view.

        Returns
        -------
        Pending
            The values that the read saw, after the work has run.
        """
        _work.check_array(array)
        return _work.read(self, _work.region_of(array), name=name)

    def destroy(self) -> None:
        """Destroy the stream. Queued work still runs; the handle is no longer valid.

        Raises
        ------
        SimulatedError
            The stream is a default stream, or was destroyed before.
        """
        if not self._alive:
            why = "was destroyed before" if self._destroyed else "is not yours to destroy"
            raise SimulatedError(f"{self!r} {why}")
        self._alive, self._destroyed = False, True
        self._session.destroy_stream(self.handle)

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot copy or pickle a SimulatedStream: it owns its stream")

    def __del__(self) -> None:
        # A fork leaves streams to its parent process. A reset context has destroyed its own
        # streams.
        if getattr(self, "_alive", False) and self._session.is_here:
            with contextlib.suppress(DriverError):
                self.destroy()

    def __repr__(self) -> str:
        return f"<SimulatedStream {self.name!r} {self.handle:#x}>"


def a_stream(value: Any) -> SimulatedStream:
    """Return `value` if it is a simulated stream; a bare handle does not tell its owner."""
    if not isinstance(value, SimulatedStream):
        allowed = "a SimulatedStream: cuda.default_stream(0), cuda.stream_of(handle), cuda.stream()"
        _checks.refuse(TypeError, "stream", value, allowed)
    return value
