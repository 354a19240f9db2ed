"""Consumers and producers that nobody keeps a stream of, and what stands in for it."""

import pytest

from cai_bridge import from_cai, to_cai
from soak.device.foreign import ByHand


@pytest.mark.parametrize("named", ["by its object", "by its handle", "not at all"])
@pytest.mark.parametrize("views", [1, 3])
def test_a_blocking_producer_that_nobody_keeps_follows_a_blocking_consumer(cuda, named, views):
    producer = cuda.stream("producer's", blocking=True)
    consumer = cuda.stream("consumer's", blocking=True)
    array = cuda.array([1.0] * 4, speaks="cai3", stream=producer)
    view = from_cai(array.__cuda_array_interface__, owner=array)
    for _ in range(views - 1):
        view = from_cai(to_cai(view))
    stream = {"by its object": consumer, "by its handle": consumer.handle}.get(named)
    given = to_cai(view, stream=stream)
    cuda.consumer("cai-waits", consumer).read(given)
    del view, given
    producer.fill(array, 2.0)
    cuda.synchronize()
    assert not cuda.reports


@pytest.mark.parametrize("views", [1, 2, 3])
def test_whoever_reads_the_dict_of_a_view_of_a_dlpack_view_is_a_consumer(cuda, views):
    producer = cuda.stream("producer's")
    consumer = cuda.stream("consumer's", blocking=True)
    array = cuda.array([1.0] * 4, speaks="cai3", stream=producer)
    view = array
    for _ in range(views):
        given = to_cai(from_cai(view))
        view = given
    cuda.consumer("cai-waits", consumer).read(given)
    del view, given
    producer.fill(array, 2.0)
    cuda.synchronize()
    assert not cuda.reports


@pytest.mark.parametrize("named", ["by its object", "by its handle"])
def test_who_takes_memory_on_by_the_legacy_stream_may_work_on_a_second_blocking_one(cuda, named):
    producer = cuda.stream("producer's", blocking=True)
    second = cuda.stream("second", blocking=True)
    array = cuda.array([1.0] * 4, speaks="cai3", stream=producer)
    stream = producer if named == "by its object" else producer.handle
    tensor = ByHand(from_cai(array, stream=stream).__dlpack__(stream=1, max_version=(1, 0)))
    read = tensor.read(second, "the second's read")
    cuda.synchronize()
    assert read.value == [1.0] * 4
    read.release()
    tensor.delete(None)
