"""What the bridge has on a GPU for sharing: streams, events, pools, and opened allocations."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

from cai_bridge._core import DriverError, _IpcDevice, _IpcEvent, _IpcStream


class Gpu:
    """The bridge's streams, events and pools on a GPU, and memory opened from other processes."""

    def __init__(self, device: _IpcDevice) -> None:
        self.device = device
        self.lock = threading.Lock()
        self._streams: list[_IpcStream] = []
        self._events: list[_IpcEvent] = []
        self._pool: int | None = None
        self._imported: dict[str, int] = {}
        self._opened: dict[tuple[str | None, str], list[int]] = {}

    def take_stream(self) -> _IpcStream:
        with contextlib.suppress(IndexError):
            return self._streams.pop()
        return self.device.stream()

    def give_stream(self, stream: _IpcStream) -> None:
        self._streams.append(stream)

    def take_event(self) -> _IpcEvent:
        with contextlib.suppress(IndexError):
            return self._events.pop()
        return self.device.event()

    def give_event(self, event: _IpcEvent) -> None:
        self._events.append(event)

    def pool(self) -> int:
        """Return the GPU's pool for copies."""
        with self.lock:
            if self._pool is None:
                self._pool = self.device.create_pool()
            return self._pool

    def open(self, memory: dict[str, Any], files: list[int]) -> int:
        """Open an allocation of another process. If it is open already, count one more user."""
        with self.lock:
            if known := self._opened.get(_key(memory)):
                known[1] += 1
                return known[0]
            name = bytes.fromhex(memory["name"])
            if memory["pool"] is None:
                ptr = self.device.open_memory(name)
            else:
                if memory["pool"] not in self._imported:
                    self._imported[memory["pool"]] = self.device.import_pool(files[0])
                ptr = self.device.import_pointer(self._imported[memory["pool"]], name)
            self._opened[_key(memory)] = [ptr, 1]
            return int(ptr)

    def close(self, memory: dict[str, Any], stream: _IpcStream) -> None:
        """Close an allocation: a pool's in the order of `stream`, others after all work is done."""
        with self.lock:
            known = self._opened[_key(memory)]
            if known[1] == 1:
                if memory["pool"] is None:
                    twice(lambda: self.device.close_memory(known[0]))
                else:
                    twice(lambda: stream.free(known[0]))
                del self._opened[_key(memory)]
            known[1] -= 1


def _key(memory: dict[str, Any]) -> tuple[str | None, str]:
    return memory["pool"], memory["name"]


GPUS: dict[tuple[int, int], Gpu] = {}


def gpu_at(ordinal: int) -> Gpu:
    """Return what the bridge has on a GPU of this process."""
    device = _IpcDevice(ordinal)
    return GPUS.setdefault(device.key, Gpu(device))


def twice(call: Callable[[], Any]) -> Any:
    """Retry a failed driver call once, since nobody could handle an exception at an end."""
    try:
        return call()
    except DriverError:
        return call()


class Block:
    """Memory from the bridge's own pool."""

    def __init__(self, stream: _IpcStream, ptr: int) -> None:
        self._stream, self._ptr, self._pid = stream, ptr, os.getpid()

    def __del__(self) -> None:
        if self._pid == os.getpid():
            twice(lambda: self._stream.free(self._ptr))
