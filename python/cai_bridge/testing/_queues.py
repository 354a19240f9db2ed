"""Work of a program on the simulated device: launches, syncs, captures, consumers."""

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
            Called without arguments when the work runs, which is when something forces it: a sync,
            or the end of the ``with`` block. What it raises is raised there. It must not wait for
            the device.
        reads, writes : iterable
            What the work touches, checked now against all before: arrays, views (``ptr``,
            ``shape``, ``strides`` in bytes and ``itemsize``, or ``__cuda_array_interface__``), or
            pairs of an address and a number of bytes. Read-only arrays may not be written.
        name : str, optional
            What reports call it.
        """
        _work.launch(a_stream(stream), run, reads=reads, writes=writes, name=name)

    def synchronize(self) -> None:
        """Wait on the host for all work of all devices, which runs it.

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
        """Run all queued work without the host being ordered after it, as if time had passed."""
        try:
            self._session.run_all()
        finally:
            _work.raise_kept(self._session)

    @property
    def pending(self) -> int:
        """How many pieces of work are still to run."""
        return self._session.pending

    def capture(self, stream: SimulatedStream, mode: str = "global") -> SimulatedGraph:
        """Capture what is queued on a stream into a graph, as a context manager.

        Parameters
        ----------
        stream : SimulatedStream
            The stream that the capture begins and ends on.
        mode : str, optional
            ``"global"``, ``"thread_local"`` or ``"relaxed"``, as in ``cuStreamBeginCapture``.
        """
        return SimulatedGraph(self._session, stream, mode)

    def consumer(self, kind: str, stream: SimulatedStream | None = None) -> Consumer:
        """Make a stand-in for a library that takes arrays in.

        Parameters
        ----------
        kind : str
            Of CAI: ``"cai-waits"`` (its stream waits for the dict's by an event, as cuda.core),
            ``"cai-enqueues"`` (works on the dict's stream), ``"cai-blocks"`` (the host waits for
            the dict's stream, as Numba and CuPy), ``"cai-trusting"`` (ignores it, as torch). Of
            DLPack: ``"dlpack"`` (asks for its stream), ``"dlpack-legacy-capsule"`` (the same
            without ``max_version``), ``"dlpack-none"`` (asks for None, works on the legacy default
            stream), ``"dlpack-unordered"`` (asks for -1), ``"dlpack-exchange"`` (the exchange API;
            works on the stream that it names), ``"dlpack-borrowed"`` (the same with a borrowed
            ``DLTensor``).
        stream : SimulatedStream, optional
            The stream that it works on; the legacy default stream by default.
        """
        stream = self.legacy if stream is None else a_stream(stream)
        return consumer(self._session, kind, stream)
