"""The memory of the CPU as a lab: for libraries whose arrays are there, by DLPack alone."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, NoReturn

from ..requirement import NotApplicableError
from .array import HostMemory
from .base import Lab

CPU = (1, 0)
NO_STREAMS = "arrays in memory of the CPU have no streams"


class HostLab(Lab):
    """Memory of the CPU. What needs streams, or memory that CUDA knows, is not judged."""

    name = "the CPU, where its arrays are: what needs streams or GPU memory is not judged"
    where = "host"
    rounds = 1
    timed = False
    items = 64
    device = CPU

    def __init__(self, beside: Lab) -> None:
        self.expendable, self.thorough = beside.expendable, beside.thorough

    def close(self) -> None:
        """Give back nothing."""

    def begin_thread(self) -> None:
        """Change nothing: there is no device."""

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Change nothing."""
        return contextlib.nullcontext()

    def has_device(self) -> bool:
        """Tell that there is none to be needed."""
        return True

    def _no_streams(self, *_: object, **_more: object) -> NoReturn:
        raise NotApplicableError(NO_STREAMS)

    stream = per_thread = order = hold = is_behind = write = read = copy = _no_streams

    def wait(self, stream: int) -> None:
        """Wait for nothing."""

    def synchronize(self) -> None:
        """Wait for nothing."""

    def reports(self) -> list[str]:
        """Tell of no races."""
        return []

    def memory(self, nbytes: int, stream: int | None = None, kind: str = "device") -> Any:
        """Allocate bytes."""
        if stream is not None:
            raise NotApplicableError(NO_STREAMS)
        if kind != "device":
            raise NotApplicableError(f"{kind} memory is CUDA's")
        return HostMemory(nbytes)

    def store(self, ptr: int, data: bytes) -> None:
        """Write memory."""
        ctypes.memmove(ptr, data, len(data))

    def load(self, ptr: int, nbytes: int) -> bytes:
        """Read memory."""
        return ctypes.string_at(ptr, nbytes)

    def device_of(self, ptr: int) -> tuple[int, int] | None:
        """Tell that any address is the CPU's."""
        del ptr
        return CPU
