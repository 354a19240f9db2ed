"""Handles that the driver gives to another stream at once: none is taken for the one before.

Of each stream the driver has a number, which no other stream has (`cuStreamGetId`).
"""

from __future__ import annotations

import gc
from typing import Any

import capsules
import pytest
from scenes import done
from stream_objects import Closing

from another_thread import in_another_thread
from cai_bridge import DriverError, adapt, from_cai, to_cai

WAIT = "cuModuleUnload"


def again(cuda: Any, stream: Any, **how: Any) -> Any:
    """Destroy a stream; the next one is given its handle."""
    handle = stream.handle
    stream.destroy()
    made = cuda.stream("another", handle_of=stream, **how)
    assert made.handle == handle
    return made


def calls(cuda: Any) -> list[str]:
    return [call.call for call in cuda.calls]


class Scene:
    """An array of a pool, and a consumer on a stream whose handle a library's has at the end."""

    def __init__(self, cuda: Any, named: str, way: str) -> None:
        self.cuda, self.home = cuda, cuda.stream("home")
        self.array = cuda.array([1.0] * 8, speaks="cai3", memory="pool", stream=self.home, name="x")
        stream = cuda.stream("the consumer's")
        self.object = Closing(stream)
        said = stream.handle if named == "handle" else self.object
        if way == "view":
            self.held: Any = to_cai(self.array, stream=said)
        else:
            self.held = capsules.take(from_cai(self.array).__dlpack__(stream=said))
        self.seen = stream.read(self.array, name="the read")
        self.stream = stream

    def end(self) -> None:
        if hasattr(self.held, "delete"):
            self.held.delete()
        self.held = None
        gc.collect()

    def reuse(self) -> None:
        """The producer writes on its own stream, which the end has ordered after the read."""
        self.home.fill(self.array, 9.0)
        self.cuda.synchronize()


class Reopened(Closing):
    """A stream object that closes its stream and opens another, which is given the handle."""

    def reopen(self, cuda: Any) -> None:
        self.stream = again(cuda, self.stream)


def test_nor_has_a_producers(cuda: Any) -> None:
    named, mine = Reopened(cuda.stream("the producer's")), cuda.stream("mine")
    x = cuda.array([0.0] * 8, speaks=(), name="x")
    named.stream.fill(x, 7.0, name="the write")
    dictionary = {"shape": (8,), "typestr": "<f4", "data": (x.ptr, False), "version": 3}
    view = from_cai(dictionary, owner=x, stream=named)
    named.reopen(cuda)
    seen = mine.read(to_cai(view, stream=mine), name="the read")
    assert done(seen) == [7.0] * 8


@pytest.mark.parametrize("named", ["handle", "object"])
def test_a_captured_stream_with_the_consumers_handle_is_not_the_consumer(
    named: str, cuda: Any
) -> None:
    """Its number cannot be asked, so the host waits."""
    scene = Scene(cuda, named, "view")
    scene.object.close()
    other = again(cuda, scene.stream)
    cuda.clear_calls()
    with cuda.capture(other) as graph, cuda.current_stream(other):
        scene.end()
        assert WAIT in calls(cuda)
    scene.reuse()
    assert scene.seen.value == [1.0] * 8
    graph.launch(other)


@pytest.mark.parametrize("named", ["handle", "object"])
@pytest.mark.parametrize("between", [False, True])
def test_uses_of_two_streams_with_one_handle_are_two(named: str, between: bool, cuda: Any) -> None:
    """Of a call's array, at the end of the call, in whatever order they are noted there."""
    home = cuda.stream("home")
    x = cuda.array([1.0] * 8, speaks="cai3", memory="pool", stream=home, name="x")
    seen, kept = list[Any](), list[Any]()

    def function(array: Any) -> None:
        # What is released meanwhile leaves its place to the last.
        first = to_cai(array, stream=-1) if between else None
        stream = cuda.stream("first")
        for _ in range(2):
            said = Closing(stream)
            view = to_cai(array, stream=stream.handle if named == "handle" else said)
            seen.append(stream.read(view, name="a read"))
            kept.extend([view, said, stream])
            if len(seen) == 1:
                said.close()
                stream = again(cuda, stream)
        if first is not None:
            first.release()

    adapt(function, to="cai")(x)
    home.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert [one.value for one in seen] == [[1.0] * 8] * 2
    kept.clear()


@pytest.mark.parametrize("also", ["cuStreamGetId", "cuCtxGetId"])
def test_an_end_that_cannot_ask_knows_the_libraries_streams_when_it_is_tried_again(
    also: str, cuda: Any
) -> None:
    home, other = cuda.stream("home"), cuda.stream("a library's")
    x = cuda.array([1.0] * 8, speaks="cai3", memory="pool", stream=home, name="x")
    view = to_cai(x)
    assert view.__cuda_array_interface__["stream"] == home.handle
    other.wait(home.record())
    seen = other.read(view, name="the read")
    with cuda.current_stream(other):
        for nth in range(1, 9):
            cuda.fail(also, nth)
        cuda.fail("cuEventRecord", 1)
        with pytest.raises(DriverError):
            view.release()
        cuda.clear_faults()
    in_another_thread(view.release)
    home.fill(x, 9.0, name="the producer's next write")
    assert done(seen) == [1.0] * 8
