"""Ends that foreign code leaves for later: they are carried out by the end of the call around it.

Whoever is asked for something may drop a view of another array while its end cannot be ordered, as
in a graph capture, or where the driver fails.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
from fakes import StreamObject, interface
from stand_in import Array, StandIn, no_libraries

from cai_bridge import _core, adapt, convert, from_cai, register, to_cai, to_dlpack

__all__ = ["no_libraries"]


class Scene:
    """An array to be asked for, and another whose view ends meanwhile."""

    def __init__(self, cuda: Any) -> None:
        self.cuda, self.asked = cuda, 0
        self.x = cuda.array([1.0] * 4, speaks=())
        producer, consumer = cuda.stream("producer"), cuda.stream("consumer")
        other = cuda.array([1.0] * 4, speaks="cai3", memory="pool", stream=producer)
        self.gone, self.held = weakref.ref(other), [to_cai(other, stream=consumer)]

    def leave(self, *_: Any, **__: Any) -> None:
        """End that view where its order fails."""
        self.asked += 1
        if self.held:
            self.cuda.fail("cuEventRecord")
            self.held.clear()
            assert self.cuda.clear_faults() == 0, "the end was not tried"
            assert self.gone() is not None


def exporter(scene: Scene, name: str) -> Any:
    """An object that speaks both protocols, and is asked for `name` of them."""

    class Exporter:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            if name == "dict":
                scene.leave()
            return interface(scene.x, stream=1)

        def __dlpack_device__(self) -> tuple[int, int]:
            if name == "device":
                scene.leave()
            return (2, 0)

        def __dlpack__(self, **how: Any) -> Any:
            scene.leave()
            return from_cai(interface(scene.x), owner=scene.x).__dlpack__(**how)

    if name == "dict":
        del Exporter.__dlpack__, Exporter.__dlpack_device__
    return Exporter()


def stream_object(scene: Scene) -> Any:
    class Asked(StreamObject):
        def __cuda_stream__(self) -> tuple[int, int]:
            scene.leave()
            return (0, 1)

    return Asked((0, 1))


def library(scene: Scene, method: str) -> str:
    class Asked(StandIn):
        def current_stream(self, device: int) -> Any:
            if method == "current_stream":
                scene.leave()
            return super().current_stream(device)

        def make(self, view: Any, stream: Any) -> Any:
            if method == "make":
                scene.leave()
            return Array(view, stream)

    register(Asked({0: scene.cuda.legacy}))
    return "stand_in"


def speaking(scene: Scene) -> Any:
    return scene.cuda.array([1.0], speaks="dlpack")


ASKED: dict[str, Callable[[Scene], Any]] = {
    "__dlpack__, by to_cai": lambda s: to_cai(exporter(s, "dlpack")),
    "__dlpack__, by convert": lambda s: convert([exporter(s, "dlpack")], "cai"),
    "__dlpack_device__": lambda s: to_cai(exporter(s, "device")),
    "the dict": lambda s: from_cai(exporter(s, "dict")),
    "the dict, by to_dlpack": lambda s: to_dlpack(exporter(s, "dict")),
    "a stream object": lambda s: to_cai(speaking(s), stream=stream_object(s)),
    "a stream object, by a view": lambda s: to_dlpack(s.x).__dlpack__(stream=stream_object(s)),
    "a library's stream": lambda s: convert(speaking(s), library(s, "current_stream")),
    "a library's array": lambda s: convert(speaking(s), library(s, "make")),
    "a function": lambda s: adapt(s.leave, to="cai")(speaking(s)),
}


@pytest.mark.usefixtures("no_libraries")
@pytest.mark.parametrize("who", ASKED)
def test_an_end_that_was_left_is_carried_out_by_the_end_of_the_call(cuda: Any, who: str) -> None:
    scene = Scene(cuda)
    if who == "a stream object, by a view":
        scene.x = speaking(scene)
    made = ASKED[who](scene)
    assert scene.asked
    assert scene.gone() is None, "left until somebody calls again"
    del made
    assert _core._settle() == 0
