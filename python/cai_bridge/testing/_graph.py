"""Graph capture on the simulated device."""

from __future__ import annotations

from cai_bridge._core import _CapturedGraph, _Session

from . import _checks, _work
from ._errors import SimulatedError
from ._stream import SimulatedStream, a_stream


class SimulatedGraph:
    """A capture inside its ``with`` block, and the graph after the block.

    `SimulatedCuda.capture` makes it.
    """

    def __init__(self, session: _Session, stream: SimulatedStream, mode: str) -> None:
        self._session = session
        self._stream = a_stream(stream)
        self._mode = _checks.choice("mode", mode, ("global", "thread_local", "relaxed"))
        self._captured: _CapturedGraph | None = None

    def __enter__(self) -> SimulatedGraph:
        _work.check_open(self._session)
        self._session.begin_capture(*self._stream._queue, self._mode)
        return self

    def __exit__(self, kind: object, *raised: object) -> None:
        try:
            self._captured = self._session.end_capture(*self._stream._queue)
        except RuntimeError:
            # The exception from inside says more than the spoiled capture.
            if kind is None:
                raise

    def launch(self, stream: SimulatedStream) -> None:
        """Queue the captured work, after the stream's work and after the previous launch.

        Raises
        ------
        SimulatedError
            The capture has not ended, or failed.
        """
        _work.check_open(self._session)
        if self._captured is None:
            raise SimulatedError("the capture has not become a graph")
        self._session.launch_graph(self._captured, *a_stream(stream)._queue)
