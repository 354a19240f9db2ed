"""Memory that several consumers read, or that more than one stream of the producer's waits for."""

from __future__ import annotations

import capsules
import pytest
import tables
from scenes import Scene, again, done, once_more, read_before

from cai_bridge import from_cai, to_cai


@pytest.fixture
def scene(cuda):
    return Scene(cuda, "cai3", "non-blocking", "non-blocking")


@pytest.fixture
def between(cuda):
    return cuda.stream("between")


@pytest.mark.parametrize("again", [to_cai, from_cai, lambda view: to_cai(from_cai(view))])
def test_a_view_of_a_view_is_ordered_for_the_stream_that_it_names(again, scene):
    first = to_cai(scene.array, stream=scene.consumer)
    second = again(first)
    first.release()
    assert second.stream == scene.consumer.handle
    seen = scene.consumer.read(second)
    second.release()
    assert read_before(once_more, scene, seen) == [1.0] * 8


def test_a_borrowed_tensor_is_waited_for_at_the_end_of_the_view_that_lent_it(scene, cuda):
    view = from_cai(scene.array)
    seen = cuda.consumer("dlpack-borrowed", cuda.legacy).read(view)
    seen.release()
    view.release()
    assert read_before(once_more, scene, seen) == [1.0] * 8


def test_a_capsule_of_a_view_that_lent_its_array_ends_for_its_own_consumer_alone(scene, cuda):
    view = from_cai(scene.array)
    tables.borrowed(view)
    taken = capsules.take(view.__dlpack__(stream=scene.producer))
    cuda.clear_calls()
    taken.delete()
    assert cuda.calls == []


# How a view is taken in again: itself, or by its dict.
TAKE = {
    "view": from_cai,
    "dict": lambda view, **said: from_cai(view.__cuda_array_interface__, owner=view, **said),
}
each_way = pytest.mark.parametrize("how", TAKE)


@each_way
@pytest.mark.parametrize("writes", ["declared", "first", "freed"])
def test_a_stream_that_is_declared_for_a_view_waits_beside_the_memorys_own(writes, how, cuda):
    scene, declared = (
        Scene(cuda, "exchange", "non-blocking", "non-blocking"),
        cuda.stream("declared"),
    )
    with scene.current():
        view = to_cai(scene.array)
    taken = TAKE[how](view, stream=declared)
    declared.wait(scene.producer.record())
    declared.fill(scene.array, 1.0)
    seen = cuda.consumer("dlpack", scene.consumer).read(taken)
    taken.release()
    view.release()
    seen.release()
    if writes == "declared":
        declared.fill(scene.array, 2.0)
    else:
        (once_more if writes == "first" else again)(scene)
    assert done(seen) == [1.0] * 8


@pytest.mark.parametrize("given", ["object", "handle"])
@each_way
def test_a_stream_that_was_declared_waits_where_a_handle_is_declared_after_it(how, given, cuda):
    x = cuda.array(fill=1.0, shape=(8,), speaks=("exchange", "cai2"))
    declared, consumer = cuda.stream("declared"), cuda.stream("consumer")
    view = to_cai(from_cai(to_cai(x), stream=declared), stream=cuda.per_thread)
    taken = TAKE[how](view, stream=declared if given == "object" else declared.handle)
    seen = cuda.consumer("dlpack", consumer).read(taken)
    taken.release()
    seen.release()
    declared.fill(x, 2.0)
    assert done(seen) == [1.0] * 8


def test_a_dict_of_another_gpus_memory_goes_back_there_whoever_owns_it(cuda):
    # Nobody names the producer's streams: the legacy one of the memory's GPU stands in for them.
    owner = to_cai(cuda.array([0.0] * 4, speaks=("dlpack",)))
    x = cuda.array([1.0] * 4, device=1, speaks=("cai",))
    taken = from_cai(dict(x.__cuda_array_interface__, stream=None), owner=owner)
    seen = cuda.consumer("dlpack", cuda.stream("consumer", device=1)).read(taken)
    seen.release()
    taken.release()
    cuda.stream_of(1, device=1).fill(x, 2.0)
    assert done(seen) == [1.0] * 4


MADE_AGAIN = {
    "to_cai": to_cai,
    "by way of from_cai": lambda first, stream: to_cai(from_cai(first), stream=stream),
    "by its dict": lambda first, stream: to_cai(TAKE["dict"](first), stream=stream),
}


@pytest.mark.parametrize("how", MADE_AGAIN)
@pytest.mark.parametrize("ends", ["second", "first and second"])
@pytest.mark.parametrize("consumer", ["its own", "the producer's"])
def test_the_stream_of_the_view_between_waits_for_the_next_consumer(
    consumer, ends, how, scene, between
):
    reader = scene.consumer if consumer == "its own" else scene.producer
    first = to_cai(scene.array, stream=between)
    second = MADE_AGAIN[how](first, stream=reader)
    seen = reader.read(second)
    if ends == "first and second":
        first.release()
    second.release()
    between.fill(scene.array, 2.0)
    scene.producer.wait(between.record())
    assert done(seen) == [1.0] * 8


@pytest.mark.parametrize("works", [True, False])
def test_a_view_between_for_a_bare_handle_waits_or_the_host_does(works, scene, between, cuda):
    first = to_cai(scene.array, stream=between.handle)
    second = to_cai(first, stream=scene.consumer)
    seen = scene.consumer.read(second)
    cuda.clear_calls()
    with cuda.current_stream(between if works else cuda.legacy):
        second.release()
    waited = "cuModuleUnload" in [call.call for call in cuda.calls]
    assert waited is not works
    between.fill(scene.array, 2.0)
    assert done(seen) == [1.0] * 8


def test_whoever_read_the_dict_of_the_view_between_waits_for_the_next_consumer(
    scene, between, cuda
):
    first = to_cai(scene.array)
    with cuda.current_stream(between):
        cuda.consumer("cai-waits", between).read(first).release()
        second = to_cai(first, stream=scene.consumer)
    seen = scene.consumer.read(second)
    second.release()
    between.fill(scene.array, 2.0)
    assert done(seen) == [1.0] * 8
