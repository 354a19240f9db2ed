"""Stream objects that can be closed, or are around somebody else's handle; scenes for them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

KINDS = pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])


class Closing:
    """A stream object that can be closed while it is held, as some libraries have them."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.stream.handle if self.stream else 0)

    def close(self) -> None:
        self.stream = None


class ExternalStream(Closing):
    """An object around somebody else's handle, by the name that two libraries give it."""

    handle = 0

    def __init__(self, stream: Any) -> None:
        self.handle = stream.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class Flagged(ExternalStream):
    """The same by the flag that a third one gives it."""

    external = True


class Unowned(ExternalStream):
    """The same by what a fifth one says of its object."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.owner = False


class TorchExternal(ExternalStream):
    """The same by the id that a fourth one gives it."""

    @property
    def stream_id(self) -> int:
        return self.handle


def producer(cuda: Any, speaks: str, stream: Any) -> Any:
    return cuda.array([1.0] * 4, speaks=speaks, stream=stream, name="x")


def ended(cuda: Any, *kept: Any) -> None:
    del kept
    gc.collect()
    cuda.synchronize()
