"""Memory that several consumers read, that several streams wait for, or whose producer moves."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from moving import host_waits
from scenes import Scene, again, converted, done, once_more
from stand_in import StandIn

from cai_bridge import adapt, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import _current_streams


@pytest.fixture
def scene(cuda):
    return Scene(cuda, "cai3", "non-blocking", "non-blocking")


@pytest.fixture
def between(cuda):
    return cuda.stream("between")


# How a view is taken in again: itself, or by its dict.
TAKE = {
    "view": from_cai,
    "dict": lambda view, **said: from_cai(view.__cuda_array_interface__, owner=view, **said),
}


@pytest.mark.parametrize("how", TAKE)
@pytest.mark.parametrize("writes", ["declared", "first", "freed"])
def test_a_stream_that_is_declared_for_a_view_waits_beside_the_memorys_own(writes, how, cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    declared = cuda.stream("declared")
    with scene.current():
        view = to_cai(scene.array)
    taken = TAKE[how](view, stream=declared)
    declared.wait(scene.producer.record())
    declared.fill(scene.array, 1.0)
    seen = cuda.consumer("dlpack", scene.consumer).read(taken)
    for one in (taken, view, seen):
        one.release()
    if writes == "declared":
        declared.fill(scene.array, 2.0)
    else:
        (once_more if writes == "first" else again)(scene)
    assert done(seen) == [1.0] * 8


MADE_AGAIN = {
    "to_cai": to_cai,
    "by way of from_cai": lambda first, stream: to_cai(from_cai(first), stream=stream),
    "by its dict": lambda first, stream: to_cai(TAKE["dict"](first), stream=stream),
}


@pytest.mark.parametrize("how", MADE_AGAIN)
@pytest.mark.parametrize("ends", ["second", "first and second"])
@pytest.mark.parametrize("reader", ["consumer", "producer", "between"])
@pytest.mark.parametrize("writer", ["producer", "between"])
def test_the_stream_of_the_view_between_waits_for_the_next_consumer(
    writer, reader, ends, how, scene, between
):
    streams = {"consumer": scene.consumer, "producer": scene.producer, "between": between}
    first = to_cai(scene.array, stream=between)
    # Unsaid, the second view names the stream of the first.
    second = MADE_AGAIN[how](first, stream=None if reader == "between" else streams[reader])
    seen = streams[reader].read(second)
    if ends == "first and second" or reader == "between":
        first.release()
    second.release()
    streams[writer].fill(scene.array, 2.0)
    assert done(seen) == [1.0] * 8


@pytest.mark.parametrize("works", [True, False])
def test_a_view_between_for_a_bare_handle_waits_or_the_host_does(works, scene, between, cuda):
    first = to_cai(scene.array, stream=between.handle)
    second = to_cai(first, stream=scene.consumer)
    seen = scene.consumer.read(second)
    cuda.clear_calls()
    with cuda.current_stream(between if works else cuda.legacy):
        second.release()
    assert host_waits(cuda) == (not works)
    between.fill(scene.array, 2.0)
    assert done(seen) == [1.0] * 8


# Classes of one's own that speak both protocols: the bridge asks `__dlpack__`, and at the end the
# stream that the dict names waits, too. `test_give_back.py` has those that stay on one stream.


class Own:
    """A buffer that is used again and again, on a stream of its own or on another one."""

    def __init__(self, cuda: Any, stream: Any) -> None:
        self.array = cuda.array([0.0] * 4, speaks=("dlpack", "cai3"), stream=stream, name="x")
        self.stream, self.reads = stream, 0

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.array.__dlpack__(**wishes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.reads += 1
        return dict(self.array.__cuda_array_interface__, stream=self.stream.handle)


class Around(Own):
    """Its dict names the stream that a library works on at the moment."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        now = _current_streams(0)
        named = now[-1][0].handle if now else 1
        return dict(self.array.__cuda_array_interface__, stream=named)


TAKEN = {
    "to_cai": to_cai,
    "to_cai, unsaid": lambda x, stream: to_cai(x),
    "convert": lambda x, stream: convert(x, "dlpack", stream=stream),
    "a tree": converted,
}


@pytest.mark.parametrize("way", TAKEN)
@pytest.mark.parametrize("kind", [Own, Around])
def test_the_next_write_comes_after_the_read_though_the_producer_moved(kind, way, cuda):
    home, then, consumer = (cuda.stream(name) for name in ("home", "then", "consumer"))
    own = kind(cuda, home)
    with cuda.current_stream(home):
        home.fill(own.array, 7.0, name="the late write")
        taken = TAKEN[way](own, consumer)
    if way == "to_cai, unsaid":
        with cuda.current_stream(consumer):
            assert taken.__cuda_array_interface__["stream"] == 1
        consumer.wait(cuda.legacy.record())
    seen = consumer.read(taken, name="the consumer's read")
    if kind is Own:
        own.stream = then
        then.wait(home.record())
    with cuda.current_stream(then):
        del taken
    own.stream.fill(own.array, 9.0, name="the next write")
    assert host_waits(cuda) == 0
    assert done(seen) == [7.0] * 4


def test_a_library_that_is_known_is_not_asked_for_its_dict(cuda):
    """JAX's would make the host wait."""
    own = type("Jaxs", (Own,), {"__module__": "jaxlib._jax"})(cuda, cuda.stream("home"))
    to_cai(own, stream=cuda.stream("consumer")).release()
    assert own.reads == 0


@pytest.mark.parametrize("call", [to_cai, to_dlpack, lambda x: convert(x, "cai")])
def test_a_method_that_is_none_is_named(call):
    array = type("Array", (), {"__dlpack__": 3, "__dlpack_device__": lambda _: (2, 0)})()
    with pytest.raises(TypeError, match=r"^object: got .*Array whose __dlpack__ is 3; allowed:"):
        call(array)


# The legacy default stream stands for blocking streams on both sides, as Numba's and CuPy's are. A
# blocking stream follows what is queued on the legacy one, and nothing that this one would follow.


class NumbaLike(StandIn):
    """As Numba: its default stream is the legacy one, and each kernel may name a blocking one."""

    _streams_by_call = True


def by_adapt_and_kept(x: Any, numba: StandIn, work: Any) -> Any:
    """The function reads the dict, says no stream, and keeps the view, which ends later."""
    kept: list[Any] = []

    def read(view: Any) -> Any:
        kept.append(view)
        assert view.__cuda_array_interface__["stream"] == 1
        return work(view)

    result = adapt(read)(x)
    # No end of the view's own comes between: the next call begins before it.
    weakref.finalize(x, kept.clear)
    return result


BY = {
    "convert": lambda x, numba, work: work(convert(x, numba).view),
    "adapt": lambda x, numba, work: adapt(lambda made: work(made.view), to=numba)(x),
    "adapt to the dict, which is kept": by_adapt_and_kept,
}


@pytest.mark.parametrize("speaks", ["exchange", "cai3", "dlpack"])
@pytest.mark.parametrize("by", BY)
def test_a_stream_of_the_consumers_follows_another_one_that_had_the_array_before(by, speaks, cuda):
    """Its library, on the legacy stream, queues nothing in between that these two would follow."""
    numba = NumbaLike({0: cuda.legacy})
    one, other = cuda.stream("one", blocking=True), cuda.stream("other", blocking=True)
    x = cuda.array([1.0] * 4, speaks=speaks, stream=cuda.legacy, name="x")
    BY[by](x, numba, lambda view: one.fill(view, 2.0, name="the write") and None)
    gc.collect()
    seen = BY[by](x, numba, lambda view: other.read(view, name="the read"))
    assert done(seen) == [2.0] * 4


def test_whoever_read_the_dict_of_the_view_between_waits_for_the_next_consumer(cuda):
    scene, reader = Scene(cuda, "cai3", "non-blocking", "non-blocking"), cuda.stream("reader")
    first = to_cai(scene.array)
    with cuda.current_stream(reader):
        cuda.consumer("cai-waits", reader).read(first).release()
        second = to_cai(first, stream=scene.consumer)
    seen = scene.consumer.read(second)
    second.release()
    reader.fill(scene.array, 2.0)
    assert done(seen) == [1.0] * 8
