"""`trace`: records what the bridge does for a while, as a file that trace viewers open."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ContextDecorator, contextmanager, suppress
from operator import index

from cai_bridge import _core, _events
from cai_bridge._core import _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

LIMIT = 100_000
"""How many events a trace keeps: at up to 1 KB each, 100 MB of memory."""


def trace(
    path: str | os.PathLike[str],
    *,
    limit: int = LIMIT,
    streams: Mapping[int, str] | None = None,
) -> AbstractContextManager[None]:
    """Write what the bridge does during a ``with`` block to a file that trace viewers open.

    The file is in the trace event format (JSON), for https://ui.perfetto.dev or chrome://tracing.
    Each host thread has a lane, with a slice for every exchange (a conversion, an export, a dict
    that a consumer reads), copy, host wait and end. Each stream has a lane under its device. A
    wait is an arrow from the stream where the event is recorded to the stream that waits. A wait
    that is left out is a mark with the reason. The file has threads unknown to Python as well.

    Parameters
    ----------
    path : str or path-like
        The file. The block empties it at its start and writes it at its end, also after an
        exception. If the process is killed before, the file stays empty.
    limit : int, optional
        How many events to keep, 100,000 by default. Each takes up to 1 KB of memory until the
        block ends, and as much in the file. Later events are left out, and the file says how
        many. A conversion and its end make four events.
    streams : mapping of int to str, optional
        Names for streams, by handle. Streams of the simulated device have names already.

    Raises
    ------
    OSError
        The file cannot be opened, or cannot be written at the end; then it holds no trace.
    RuntimeError
        A trace is open already, in this process or in the process that it was forked from; or
        this trace's block was entered before.
    TypeError, ValueError
        An argument of another type, or a limit below 1.

    Notes
    -----
    **Times are the host's**, in microseconds since the block began. They show when a call was made
    and how long it took, and not when the device did the work. A forked process writes nothing.
    While a trace is open, an event takes about 0.5 µs; without a trace, one memory read.

    Examples
    --------
    >>> import os, tempfile
    >>> from cai_bridge import to_cai, trace
    >>> from cai_bridge.testing import simulated_cuda
    >>> path = os.path.join(tempfile.mkdtemp(), "trace.json")
    >>> with simulated_cuda() as cuda, trace(path):
    ...     view = to_cai(cuda.array([1.0]))
    >>> os.path.getsize(path) > 0
    True
    """
    # `open` would take an integer for an open file, and close it at the end.
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(
            f"path: got {_shown(path):.80}; allowed: a str, bytes or a path-like object"
        )
    if not isinstance(limit, int) or isinstance(limit, bool) or not hasattr(limit, "__index__"):
        raise TypeError(f"limit: got {_shown(limit):.80}; allowed: an integer of 1 or more")
    if limit < 1:
        raise ValueError(f"limit: got {limit}; allowed: an integer of 1 or more")
    # A limit above the memory's size changes nothing.
    return _Block(path, min(limit, sys.maxsize), _named(streams))


def _named(streams: Mapping[int, str] | None) -> dict[int, str]:
    given = {} if streams is None else streams
    try:
        return {index(handle): str(name) for handle, name in given.items()}
    except (AttributeError, TypeError):
        raise TypeError(
            f"streams: got {_shown(streams):.80}; allowed: a mapping of handles to names, "
            "{7: 'mine'}"
        ) from None


class _Block(ContextDecorator):
    """The block of one trace. As a decorator it opens a trace at each call."""

    def __init__(self, *how: Any) -> None:
        self._how, self._open = how, _traced(*how)
        self._entered = False

    def _recreate_cm(self) -> _Block:
        return _Block(*self._how)

    def __call__(self, function: Any) -> Any:
        import functools  # noqa: PLC0415
        import inspect  # noqa: PLC0415

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                "function: got a generator function; allowed: functions, methods and coroutines"
            )
        if not inspect.iscoroutinefunction(function):
            return super().__call__(function)

        # Calling a coroutine function does no work yet: the trace covers the `await`.
        @functools.wraps(function)
        async def traced(*args: Any, **kwargs: Any) -> Any:
            with self._recreate_cm():
                return await function(*args, **kwargs)

        return traced

    def __enter__(self) -> None:
        if self._entered:
            raise RuntimeError("trace: got one that was used; allowed: a new one for each block")
        self._entered = True
        self._open.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._open.__exit__(*error)


@contextmanager
def _traced(path: str | os.PathLike[str], limit: int, names: dict[int, str]) -> Iterator[None]:
    # First of all, so that a second trace does not empty the file of the first.
    _core._start_trace(limit)
    try:
        file = open(path, "w", encoding="ascii")  # noqa: PTH123, SIM115
    except BaseException:
        _core._stop_trace()
        raise
    with file:
        try:
            yield
        finally:
            # A fork has no trace, and shares the file, which the parent must write. A block that
            # the interpreter's end cut short can import nothing any more.
            recording = _core._stop_trace()
            if recording is not None and not sys.is_finalizing():
                _write(file, recording, names)


def _write(file: TextIO, recording: _core._Recording, streams: Mapping[int, str]) -> None:
    # Only now: most programs never trace, and need no `json`.
    from cai_bridge import _trace_format  # noqa: PLC0415

    try:
        _trace_format.write(file, recording, {**_events.stream_names, **streams})
        file.flush()
    except BaseException:
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
        raise


def thread_name() -> str:
    """Return the calling thread's name. The extension asks once for each trace."""
    ident = threading.get_ident()
    # Not `current_thread`, which would make an object for a thread unknown to Python.
    names = (thread.name for thread in threading.enumerate() if thread.ident == ident)
    return next(names, f"native thread {threading.get_native_id()}")
