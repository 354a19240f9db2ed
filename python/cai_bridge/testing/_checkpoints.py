"""Arrays that `cai-bridge perturb --compare checkpoints` compares between runs."""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PREFIX = "CAI_BRIDGE_PERTURB_"
_ROOM = 1 << 26
"""The bytes of pinned memory for pending copies."""
_SHOWN = 1024
"""How many elements are recorded if numbers may differ by a tolerance."""


def checkpoint(name: str, x: object) -> None:
    """Record an array's elements, in order on its own stream, for ``cai-bridge perturb``.

    Outside the command this does nothing, and does not look at `x`. Under the command the array is
    copied to the host behind the work queued on its stream. The host does not wait, so a missing
    wait stays visible. The command compares a line with the name, the type, the shape and a hash of
    the elements between its runs.

    Parameters
    ----------
    name : str
        The array's name. A name may be used again; the order of the lines counts.
        x : object
        An array that `to_cai` takes, or anything that `numpy.asarray` takes.

    Raises
    ------
    DriverError
        The copy cannot be queued.
    """
    if folder := os.environ.get(_PREFIX + "LOG"):
        _record(folder, name, x)


@dataclass
class _Pending:
    """A queued copy."""

    name: str
    at: int
    low: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    event: int


class _Book:
    """The queued copies of this process."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / f"{os.getpid()}.checkpoints"
        self.process = os.getpid()
        self.pending: list[_Pending | str] = []
        self.base = 0
        self.room = 0
        self.used = 0
        self.driver: Any = None
        atexit.register(self.flush)
        if util := sys.modules.get("multiprocessing.util"):
            # Its worker processes end without calling functions of `atexit`.
            util.Finalize(None, self.flush, exitpriority=0)

    def host(self, name: str, array: Any) -> None:
        """Record a host array at once."""
        self.pending.append(_line(name, array))

    def queue(self, name: str, view: Any, stream: int) -> None:
        """Queue a copy of a view, on the stream on which the view is ready."""
        low, size = _extent(view.shape, view.strides, view.itemsize)
        if not size:
            self.pending.append(_line(name, _empty(view)))
            return
        state = ctypes.c_uint()
        self.call("cuStreamIsCapturing", _handle(stream), ctypes.byref(state))
        if state.value:
            self.pending.append(f"{name!r} in a capture")
            return
        if self.used + size > self.room:
            self.flush()
            self.make_room(size)
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(2))  # without timing
        source = ctypes.c_uint64(view.ptr + low)
        to = ctypes.c_void_p(self.base + self.used)
        self.call("cuMemcpyDtoHAsync_v2", to, source, ctypes.c_size_t(size), _handle(stream))
        self.call("cuEventRecord", event, _handle(stream))
        one = _Pending(
            name, self.used, low, view.shape, view.strides, _dtype(view), event.value or 0
        )
        self.pending.append(one)
        self.used += size + -size % 256

    def make_room(self, size: int) -> None:
        """Allocate this many bytes of pinned memory, once, since it makes the device wait."""
        self.used = 0
        if size <= self.room:
            return
        memory = ctypes.c_void_p()
        self.room = max(size, _ROOM)
        self.call("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(self.room), 1)
        self.base = memory.value or 0

    def flush(self) -> None:
        """Wait for the queued copies, and write their lines."""
        if os.getpid() != self.process:
            return
        lines = []
        for one in self.pending:
            if isinstance(one, str):
                lines.append(one)
                continue
            self.call("cuEventSynchronize", ctypes.c_void_p(one.event))
            lines.append(_line(one.name, _strided(self.base + one.at - one.low, one)))
            self.call("cuEventDestroy_v2", ctypes.c_void_p(one.event))
        self.pending.clear()
        with self.path.open("a", encoding="utf-8") as to:
            to.writelines(f"{one}\n" for one in lines)

    def call(self, name: str, *arguments: Any) -> None:
        """Call the driver, below the preloaded library."""
        from cai_bridge._core import DriverError  # noqa: PLC0415  (only where a GPU is)

        if self.driver is None:
            self.driver = ctypes.CDLL("libcuda.so.1")
        if code := getattr(self.driver, name)(*arguments):
            raise DriverError(f"checkpoint: {name} returned {code}")


_books: list[_Book] = []
_lock = threading.Lock()


def _record(folder: str, name: str, x: Any) -> None:
    # Only under the command. The undecorated function, since checkpoints of checkpoints never end.
    from cai_bridge._core import to_cai  # noqa: PLC0415

    with _lock:
        if not _books or _books[0].process != os.getpid():
            _books[:] = [_Book(folder)]
        book = _books[0]
        if not _on_gpu(x):
            book.host(name, x)
            return
        view = to_cai(x.detach() if hasattr(x, "detach") else x)
        stream = view.stream or 1
        book.queue(name, view, stream)
        # The producer waits for the copy only. Any further wait would hide a missing one.
        view.release(stream)


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a checkpoint of each result of a function that hands arrays over."""
    counted = itertools.count(1)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        name = f"{function.__name__} {next(counted)}"
        for place, one in enumerate(_arrays(result)):
            checkpoint(f"{name}.{place}" if place else name, one)
        return result

    return call


def watched_adapt(adapt: Callable[..., Any]) -> Callable[..., Any]:
    """Make a checkpoint of each array that an adapted function receives."""

    @functools.wraps(adapt)
    def call(function: Any = None, *arguments: Any, **named: Any) -> Any:
        if function is None:
            return lambda one: adapt(_watching(one), *arguments, **named)
        return adapt(_watching(function), *arguments, **named)

    return call


def _watching(function: Callable[..., Any]) -> Callable[..., Any]:
    counted = itertools.count(1)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        name = f"adapt {getattr(function, '__name__', 'function')} {next(counted)}"
        for place, one in enumerate(_arrays((arguments, named))):
            checkpoint(f"{name}.{place}" if place else name, one)
        return function(*arguments, **named)

    return call


def _arrays(tree: Any) -> Iterator[Any]:
    """Find the arrays on a GPU in lists, tuples and dicts."""
    if isinstance(tree, list | tuple):
        for one in tree:
            yield from _arrays(one)
    elif isinstance(tree, dict):
        for one in tree.values():
            yield from _arrays(one)
    elif _on_gpu(tree):
        yield tree


def _on_gpu(x: Any) -> bool:
    if hasattr(x, "__dlpack_device__"):
        return x.__dlpack_device__()[0] in {2, 13}
    return hasattr(x, "__cuda_array_interface__")


def _handle(stream: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(stream)


def _extent(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return the lowest byte, relative to the first element, and the number of bytes from there."""
    if 0 in shape:
        return 0, 0
    ends = [stride * (extent - 1) for extent, stride in zip(shape, strides, strict=True)]
    low = sum(min(end, 0) for end in ends)
    return low, sum(max(end, 0) for end in ends) + itemsize - low


def _dtype(view: Any) -> Any:
    import numpy as np  # noqa: PLC0415

    try:
        return np.dtype(view.dtype)
    except (TypeError, ValueError):  # a type that NumPy lacks is compared by its bytes
        return np.dtype(f"V{view.itemsize}")


def _empty(view: Any) -> Any:
    import numpy as np  # noqa: PLC0415

    return np.empty(view.shape, _dtype(view))


def _strided(address: int, one: _Pending) -> Any:
    import numpy as np  # noqa: PLC0415

    size = _extent(one.shape, one.strides, one.dtype.itemsize)[1]
    memory = memoryview((ctypes.c_char * size).from_address(address + one.low)).cast("B")
    return np.ndarray(one.shape, one.dtype, memory, -one.low, one.strides)


def _line(name: str, array: Any) -> str:
    """Make the line to compare: a hash, or some elements if numbers may differ."""
    import numpy as np  # noqa: PLC0415

    array = np.asarray(array)
    start = f"{name!r} {array.dtype} {array.shape}"
    if os.environ.get(_PREFIX + "VALUES") and array.dtype.kind in "fc":
        flat = array.reshape(-1)
        return f"{start} {flat[:: max(1, -(-flat.size // _SHOWN))].tolist()}"
    return f"{start} {hashlib.sha256(array.tobytes()).hexdigest()[:32]}"
