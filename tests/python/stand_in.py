"""A library as `register` takes one: its arrays hold a view, and work on the stream that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from cai_bridge import CaiView, Library, _libraries, convert, register


class OddError(Exception):
    """What nobody but the test raises."""


class Array:
    """An array of the stand-in. It speaks by the dict, whose stream is the one it is usable on."""

    def __init__(self, view: Any, stream: Any) -> None:
        self.view, self.stream = view, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.view.__cuda_array_interface__, "stream": self.stream.handle}

    def read(self) -> Any:
        return self.stream.read(self.view, name="the consumer's read")

    def write(self, value: Any) -> None:
        self.stream.fill(self.view, value, name="the consumer's write")


class StandIn(Library):
    """A library that works on the stream of each device that it was told."""

    name = "stand_in"
    arrays: ClassVar[tuple[type | str, ...]] = ("stand_in:Array",)
    view: ClassVar[type] = CaiView

    def __init__(self, streams: dict[int, Any]) -> None:
        self.streams = streams
        self.asked: list[int] = []
        self.refused: set[int] = set()

    def current_stream(self, device: int) -> Any:
        self.asked.append(device)
        return self.streams[device]

    def make(self, view: Any, stream: Any) -> Array:
        if view.ptr in self.refused:
            raise BufferError("strides: got odd ones; allowed: even ones")
        return Array(view, stream)


@pytest.fixture
def no_libraries() -> Iterator[None]:
    """Nothing is registered; what the test registers is forgotten at its end."""
    before = _libraries._registered
    know({})
    yield
    know(before)


def know(registered: dict[str, Library]) -> None:
    """These are the libraries that were registered."""
    _libraries._registered = registered
    _libraries.ask_for_streams()
    _libraries.FOUND.clear()


@pytest.fixture
def library(cuda: Any, no_libraries: None) -> StandIn:
    """The stand-in, registered, on a stream of its own on each of the devices."""
    made = StandIn({device: cuda.stream("consumer", device=device) for device in range(2)})
    register(made)
    return made


@pytest.fixture(params=["first call", "known library"], autouse=True)
def known(request: Any, library: StandIn) -> bool:
    """Whether the library is known by now, so that plain trees need no Python of the bridge's."""
    if request.param == "known library":
        assert convert([None], "stand_in") == [None]
    return bool(request.param == "known library")


@pytest.fixture
def producer(cuda: Any) -> Any:
    """The producer's stream, which is its library's current one."""
    stream = cuda.stream("producer")
    with cuda.current_stream(stream):
        yield stream
        cuda.synchronize()


def made_on(cuda: Any, stream: Any, value: float = 1.0, speaks: Any = "exchange") -> Any:
    """An array that `value` is written to by queued work."""
    array = cuda.array([0.0] * 4, speaks=speaks, memory="pool", stream=stream, name="x")
    stream.fill(array, value, name="the producer's write")
    return array


def count(cuda: Any, call: str) -> int:
    return sum(record.call == call for record in cuda.calls)


class Odd:
    """An array that does something as it is asked where it is."""

    def __init__(self, x: Any, does: Any) -> None:
        self.x, self.does = x, does

    def __dlpack_device__(self) -> Any:
        self.does()
        return self.x.__dlpack_device__()

    def __dlpack__(self, **asked: Any) -> Any:
        return self.x.__dlpack__(**asked)
