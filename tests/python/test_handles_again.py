"""Handles that the driver gives to another stream at once: none is taken for the one before.

Of each stream the driver has a number, which no other stream has (`cuStreamGetId`).
"""

from __future__ import annotations

import gc
from typing import Any

import capsules
import pytest
from test_dead_streams import Closing

from cai_bridge import DriverError, from_cai, to_cai

WAIT = "cuCtxSynchronize"


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


@pytest.mark.parametrize("way", ["view", "capsule"])
@pytest.mark.parametrize("named", ["handle", "object"])
def test_a_library_on_a_stream_with_the_consumers_handle_is_not_the_consumer(
    named: str, way: str, cuda: Any
) -> None:
    scene = Scene(cuda, named, way)
    scene.object.close()
    other = again(cuda, scene.stream)
    with cuda.current_stream(other):
        cuda.clear_calls()
        scene.end()
    assert WAIT in calls(cuda)
    scene.reuse()
    assert scene.seen.value == [1.0] * 8


@pytest.mark.parametrize("way", ["view", "capsule"])
def test_a_library_on_the_consumers_own_stream_is(way: str, cuda: Any) -> None:
    scene = Scene(cuda, "handle", way)
    with cuda.current_stream(scene.stream):
        cuda.clear_calls()
        scene.end()
    assert WAIT not in calls(cuda)
    scene.reuse()
    assert scene.seen.value == [1.0] * 8


def test_an_end_that_cannot_ask_keeps_the_view(cuda: Any) -> None:
    scene = Scene(cuda, "handle", "view")
    with cuda.current_stream(scene.stream):
        cuda.fail("cuStreamGetId", 1)
        with pytest.raises(DriverError, match="cuStreamGetId"):
            scene.held.release()
        cuda.clear_faults()
        scene.end()
    scene.reuse()
    assert scene.seen.value == [1.0] * 8


def test_only_a_destroyed_stream_has_a_handle_to_pass_on(cuda: Any) -> None:
    stream = cuda.stream()
    for given in (stream, cuda.legacy, cuda.stream_of(stream.handle)):
        with pytest.raises(ValueError, match=r"handle_of: got .*; allowed: a destroyed stream"):
            cuda.stream(handle_of=given)
    with pytest.raises(TypeError):
        cuda.stream(handle_of=stream.handle)
    other = again(cuda, stream)
    with pytest.raises(DriverError, match="cuStreamCreate"):
        cuda.stream(handle_of=stream)
    del other
