"""`trace`: what goes over the bridge for a while, as a file that trace viewers open."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TextIO

from cai_bridge import _core

LIMIT = 100_000
"""How many events a trace keeps: at up to 1 KB each, 100 MB of memory."""


@contextmanager
def trace(
    path: str | os.PathLike[str],
    *,
    limit: int = LIMIT,
    streams: Mapping[int, str] | None = None,
) -> Iterator[None]:
    """Write what goes over the bridge during a ``with`` block to a file that trace viewers open.

    The file is in the trace event format (JSON), for https://ui.perfetto.dev or chrome://tracing.
    Each thread of the host is a lane, with a slice for every exchange (a conversion, an export, a
    dict that is read), copy, wait of the host and release. Each stream is a lane of its device; an
    order is an arrow from the stream that an event is recorded on to the one that waits for it, and
    one that is not made is a mark with the reason. All threads are seen, whether or not Python
    knows them.

    Parameters
    ----------
    path : str or path-like
        The file. It is opened, and emptied, when the block begins, and written when that ends,
        also by an exception; until then, and for good where the process ends before, it is empty.
    limit : int, optional
        How many events are kept, 100,000 unless told; each takes up to 1 KB of memory until the
        block ends, and as much in the file. What comes after them is left out: the file says how
        many. A conversion and its end are four.
    streams : mapping of int to str, optional
        What to call streams, by their handles.

    Raises
    ------
    OSError
        The file cannot be opened, or at the end not be written; what is there then is no trace.
    RuntimeError
        A trace is open already, in this process or in the one that it was forked from.
    ValueError
        A limit below 1.

    Notes
    -----
    **Times are the host's**, in microseconds since the block began: when a call was made and how
    long it took, not when the device did what was queued. A fork writes nothing. While a trace is
    open an event takes about 0.5 µs; while none is, one load.

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
    if limit < 1:
        raise ValueError(f"limit: got {limit}; allowed: 1 and above")
    names = {int(handle): str(name) for handle, name in (streams or {}).items()}
    # First of all, so that a second one does not empty the file of the first.
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
            # There is none in a fork, which shares the file: that is the parent's to write. A block
            # that the end of the interpreter cut short can import nothing any more.
            recording = _core._stop_trace()
            if recording is not None and not sys.is_finalizing():
                _write(file, recording, names)


def _write(file: TextIO, recording: _core._Recording, streams: Mapping[int, str]) -> None:
    # Only now: most programs never trace, and need no `json`.
    from cai_bridge import _trace_format  # noqa: PLC0415

    try:
        _trace_format.write(file, recording, streams)
        file.flush()
    except BaseException:
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
        raise


def thread_name() -> str:
    """Name the calling thread; asked by the extension, once a trace."""
    ident = threading.get_ident()
    # Not `current_thread`, which would make up an object for a thread that is none of Python's.
    names = (thread.name for thread in threading.enumerate() if thread.ident == ident)
    return next(names, f"native thread {threading.get_native_id()}")
