"""A program's work on the simulated device: launches, waits, captures, consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cai_bridge._core import _Session

from . import _work
from ._consumer import Consumer, consumer
from ._graph import SimulatedGraph
from ._stream import SimulatedStream, a_stream


class Queues:
    """The part of `SimulatedCuda` that queues work and waits for it."""

    _session: _Session
    legacy: SimulatedStream

    def launch(
        self,
        stream: SimulatedStream,
        run: Callable[[], object] | None = None,
        *,
        reads: Iterable[object] = (),
        writes: Iterable[object] = (),
        name: str = "launch",
    ) -> None:
        """Queue work on a stream.

        Parameters
        ----------
        stream : SimulatedStream
            The stream.
        run : callable, optional
            Called without arguments when the work runs, which something must force: a host wait, or
            the end of the ``with`` block. Its exception is raised there. It must not wait for the
            device.
        reads, writes : iterable
            The accessed memory, checked now against all earlier accesses: arrays, views (``ptr``,
            ``shape``, ``strides`` in bytes and ``itemsize``, or ``__cuda_array_interface__``), or
            pairs of an address and a number of bytes. Read-only arrays may not be written.
        name : str, optional
            The work's name in reports.
        """
        _work.launch(a_stream(stream), run, reads=reads, writes=writes, name=name)

    def synchronize(self) -> None:
        """Wait on the host for all work of all devices, which makes it run.

        Raises
        ------
        Exception
            The first exception of a callable in queued work, with later ones as its notes.
        """
        try:
            self._session.synchronize_all()
        finally:
            _work.raise_kept(self._session)

    def run(self) -> None:
        """Run all queued work, as if time had passed. This does not order the host after it."""
        try:
            self._session.run_all()
        finally:
            _work.raise_kept(self._session)

    @property
    def pending(self) -> int:
        """The number of pieces of work still to run."""
        return self._session.pending

    def capture(self, stream: SimulatedStream, mode: str = "global") -> SimulatedGraph:
        """Capture work queued on a stream into a graph, as a context manager.

        Parameters
        ----------
        stream : SimulatedStream
            The stream on which the capture begins and ends.
        mode : str, optional
            ``"global"``, ``"thread_local"`` or ``"relaxed"``, as in ``cuStreamBeginCapture``.
        """
        return SimulatedGraph(self._session, stream, mode)

    def consumer(self, kind: str, stream: SimulatedStream | None = None) -> Consumer:
        """Make a stand-in for a library that imports arrays.

        Parameters
        ----------
        kind : str
            For CAI: ``"cai-waits"`` (its stream waits for the dict's by an event, like cuda.core),
            ``"cai-enqueues"`` (works on the dict's stream), ``"cai-blocks"`` (the host waits for
            the dict's stream, like Numba and CuPy), ``"cai-trusting"`` (ignores the stream, like
            torch). For DLPack: ``"dlpack"`` (names its stream), ``"dlpack-legacy-capsule"`` (names
            its stream, without ``max_version``), ``"dlpack-none"`` (passes None, works on the
            legacy default stream), ``"dlpack-unordered"`` (passes -1), ``"dlpack-exchange"`` (the
            exchange API; works on the stream that it names), ``"dlpack-borrowed"`` (the exchange
            API with a borrowed ``DLTensor``).
        stream : SimulatedStream, optional
            The stream that it works on; the legacy default stream by default.
        """
        stream = self.legacy if stream is None else a_stream(stream)
        return consumer(self._session, kind, stream)
