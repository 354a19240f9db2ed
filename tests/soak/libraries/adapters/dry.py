"""Stand-ins over NumPy that work at once, for a machine without a GPU, and a bridge for them.

They try the soak, not the bridge. `plant` puts a fault in, which the soak has to find.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ... import doors
from ...steps import CallLibrary, Export, FromCai, ToCai
from .. import adapters

POOL: dict[tuple[str, int, int], list[Any]] = {}


class Memory:
    """A block, with what it held before the last write."""

    def __init__(self, values: Any) -> None:
        self.values, self.before = values, values.copy()

    def write(self, value: int) -> None:
        self.before = self.values.copy()
        self.values[:] = value


class Array:
    """An array; that of a producer gives its block back to the pool."""

    def __init__(self, memory: Memory, keeps: Any = None, home: Any = None) -> None:
        self.memory, self.keeps, self.home = memory, keeps, home
        self.is_stale = False

    def __del__(self) -> None:
        if self.home is not None:
            POOL.setdefault(self.home, []).append(self.memory.values)


class View:
    """A view, or a capsule: it keeps what is behind it."""

    def __init__(self, array: Any, fault: str) -> None:
        self.memory, self.fault = array.memory, fault
        # Views over views are not stacked: each keeps the array.
        kept: Any = array.keeps if isinstance(array, View) else array
        self.keeps: Any = None if fault == "early" else kept

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: Any = None, **wishes: Any) -> View:
        return self

    def __del__(self) -> None:
        if self.fault == "die" and threading.current_thread() is not threading.main_thread():
            os.kill(os.getpid(), signal.SIGSEGV)


class Bridge(doors.Bridge):
    """A bridge for stand-ins, which has nothing to order."""

    converts = False

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def to_cai(self, source: Any, step: ToCai, stream: Any) -> Any:
        return View(source, self.fault)

    def from_cai(self, source: Any, step: FromCai, stream: Any, **more: Any) -> Any:
        if self.fault == "raise" and step.as_dict:
            raise BufferError("a planted fault")
        return View(source, self.fault)

    def to_host(self, view: Any) -> Any:
        return view.memory.values.copy()

    def export(self, source: Any, step: Export, stream: Any) -> Any:
        return View(source, self.fault)

    def adapted(
        self, function: Any, step: CallLibrary, source: Any, libraries: doors.Libraries
    ) -> Any:
        def taken(adapter: Any, array: Any) -> Any:
            return adapter.take("convert", View(array, self.fault), None)

        return doors.called(function, source, libraries, taken)

    def release(self, view: Any, stream: Any, *, block: bool) -> None:
        while self.fault == "hang" and block:
            time.sleep(1)
        view.keeps = None


class Adapter(adapters.Adapter):
    """A library whose work is done when it is queued."""

    def __init__(self, name: str, fault: str = "") -> None:
        self.name, self.fault = name, fault
        super().__init__()

    def start(self) -> None:
        self.streams = 0

    def new_stream(self, kind: str) -> Any:
        self.streams += 1
        return self.streams

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def handle(self, stream: Any) -> int:
        return int(stream or 1)

    def is_pending(self, stream: Any) -> bool:
        return False

    def spin(self, stream: Any, milliseconds: float) -> None:
        return

    def synchronize(self) -> None:
        return

    def full(self, words: int, value: int, stream: Any, spin: float) -> Any:
        home = self.name, self.handle(stream), words
        free = POOL.setdefault(home, [])
        array = Array(Memory(free.pop() if free else np.full(words, -1, np.float32)), home=home)
        array.memory.write(value)
        return array

    def fill(self, array: Any, words: int, value: int, stream: Any, spin: float) -> None:
        array.memory.write(value)

    def copy(self, array: Any, words: int, stream: Any, spin: float) -> Any:
        stale = isinstance(array, Array) and array.is_stale
        return (array.memory.before if stale else array.memory.values).copy()

    def values(self, copied: Any) -> Any:
        return copied

    def pointer(self, array: Any) -> int | None:
        return int(array.memory.values.ctypes.data)

    def has(self, array: Any) -> bool:
        return isinstance(array, Array)

    def take(self, how: str, source: Any, stream: Any) -> Any:
        if how == "argument":
            return source
        by_dict = how in {"asarray", "memory", "as_tensor", "as_cuda_array", "no_sync", "array"}
        source = source if by_dict or isinstance(source, Array) else source.__dlpack__()
        # A tensor keeps the producer, whatever becomes of the view.
        kept = source if by_dict or isinstance(source, Array) else source.keeps
        array = Array(source.memory, None if self.fault == "early" else kept)
        array.is_stale = self.fault == "stale" and how == "asarray"
        return array

    def take_natively(self, how: str, source: Any, stream: Any) -> Any:
        return self.take(how, source, stream)
