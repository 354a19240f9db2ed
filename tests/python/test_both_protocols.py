"""Classes of one's own that speak both protocols: the bridge asks `__dlpack__`, and at the end the
stream that the dict names waits, too.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from moving import host_waits

from cai_bridge import convert, to_cai, to_dlpack
from cai_bridge._core import _settle
from cai_bridge.testing import _current_streams

TAKEN = {
    "to_cai": lambda x, stream: to_cai(x, stream=stream),
    "to_cai, unsaid": lambda x, stream: to_cai(x),
    "convert": lambda x, stream: convert(x, "dlpack", stream=stream),
    "a tree": lambda x, stream: convert([x], "cai", stream=stream)[0],
}
each_way = pytest.mark.parametrize("way", TAKEN)


class Own:
    """A buffer that is used again and again, on a stream of its own or on another one."""

    def __init__(self, cuda: Any, stream: Any) -> None:
        self.array = cuda.array(
            [0.0] * 4, speaks=("dlpack", "cai3"), memory="pool", stream=stream, name="x"
        )
        self.stream, self.reads = stream, 0

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.array.__dlpack__(**wishes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.reads += 1
        return dict(self.array.__cuda_array_interface__, stream=self.stream.handle)


def seen_by(cuda: Any, taken: Any, consumer: Any, way: str) -> Any:
    if way != "to_cai, unsaid":
        return consumer.read(taken, name="the consumer's read")
    with cuda.current_stream(consumer):
        assert taken.__cuda_array_interface__["stream"] == 1
        consumer.wait(cuda.legacy.record())
        return consumer.read(taken, name="the consumer's read")


@each_way
@pytest.mark.parametrize("moves", [False, True])
def test_the_next_write_in_place_comes_after_the_consumers_read(
    cuda: Any, way: str, moves: bool
) -> None:
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    own = Own(cuda, home)
    home.fill(own.array, 7.0, name="the late write")
    taken = TAKEN[way](own, consumer)
    seen = seen_by(cuda, taken, consumer, way)
    if moves:
        own.stream = cuda.stream("then")
        own.stream.wait(home.record())
    del taken
    own.stream.fill(own.array, 9.0, name="the next write")
    assert host_waits(cuda) == 0
    cuda.synchronize()
    assert seen.value == [7.0] * 4


@each_way
def test_the_buffer_goes_back_in_the_order_of_the_dicts_stream(cuda: Any, way: str) -> None:
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    own = Own(cuda, home)
    taken = TAKEN[way](own, consumer)
    seen = seen_by(cuda, taken, consumer, way)
    del taken, own
    gc.collect()
    assert _settle() == 0, "it goes back at once"
    cuda.synchronize()
    assert seen.value == [0.0] * 4


class Around(Own):
    """Its dict names the stream that a library works on at the moment."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        now = _current_streams(0)
        named = now[-1][0].handle if now else 1
        return dict(self.array.__cuda_array_interface__, stream=named)


@pytest.mark.parametrize("way", ["to_cai", "convert", "a tree"])
def test_the_stream_that_was_named_first_waits_beside_that_of_the_end(cuda: Any, way: str) -> None:
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    own = Around(cuda, home)
    with cuda.current_stream(home):
        home.fill(own.array, 7.0, name="the late write")
        taken = TAKEN[way](own, consumer)
    seen = seen_by(cuda, taken, consumer, way)
    with cuda.current_stream(cuda.stream("then")):
        del taken
    home.fill(own.array, 9.0, name="the next write")
    assert host_waits(cuda) == 0
    cuda.synchronize()
    assert seen.value == [7.0] * 4


class Jaxs(Own):
    """Of a library that is known: its dict would make the host wait."""


Jaxs.__module__ = "jaxlib._jax"


def test_a_library_that_is_known_is_not_asked_for_its_dict(cuda: Any) -> None:
    own = Jaxs(cuda, cuda.stream("home"))
    to_cai(own, stream=cuda.stream("consumer")).release()
    assert own.reads == 0


def test_a_method_that_is_none_is_named(cuda: Any) -> None:
    class Array:
        __dlpack__ = 3

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    for call in (to_cai, to_dlpack, lambda x: convert(x, "cai")):
        with pytest.raises(
            TypeError, match=r"^object: got .*Array whose __dlpack__ is 3; allowed:"
        ):
            call(Array())
