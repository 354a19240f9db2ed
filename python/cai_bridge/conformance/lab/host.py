"""CPU memory as a lab, for libraries with arrays there; DLPack only."""

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
    """CPU memory. Requirements about streams or CUDA memory are not judged."""

    name = "the CPU, where its arrays are: what needs streams or GPU memory is not judged"
    where = "host"
    rounds = 1
    timed = False
    items = 64
    device = CPU

    def __init__(self, beside: Lab) -> None:
        self.expendable, self.thorough = beside.expendable, beside.thorough

    def close(self) -> None:
        """Do nothing."""

    def begin_thread(self) -> None:
        """Do nothing: there is no device."""

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing."""
        return contextlib.nullcontext()

    def has_device(self) -> bool:
        """Return true: no device is needed."""
        return True

    def _no_streams(self, *_: object, **_more: object) -> NoReturn:
        raise NotApplicableError(NO_STREAMS)

    stream = per_thread = order = hold = is_behind = write = read = copy = _no_streams

    def wait(self, stream: int) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def reports(self) -> list[str]:
        """Return no reports."""
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
        """Return the CPU's device, for any address."""
        del ptr
        return CPU
