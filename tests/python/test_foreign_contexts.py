"""Memory of one device and streams of another: managed, pinned and peer memory is used so."""

import threading

import pytest
import tables
from capsules import HandMade
from fakes import only_cai

from cai_bridge import from_cai, to_cai

DEVICES = pytest.mark.parametrize("device", [0, 1])


@pytest.fixture(params=["device", "managed", "pinned"])
def memory(request):
    return request.param


@pytest.mark.parametrize("theirs", [0, 1])
@pytest.mark.parametrize("mine", [0, 1])
@pytest.mark.parametrize("door", ["to_cai", "__dlpack__"])
@DEVICES
def test_an_order_between_streams_of_any_devices_is_made(device, door, mine, theirs, memory, cuda):
    if memory == "device" and mine != device:
        pytest.skip("refused: see the next test")
    producer, consumer = cuda.stream("p", device=theirs), cuda.stream("c", device=mine)
    x = cuda.array(shape=4, device=device, memory=memory, speaks="cai")
    producer.fill(x, 7.0)
    if door == "to_cai":
        view = to_cai(only_cai(x, stream=producer.handle), stream=consumer)
    else:
        view = from_cai(only_cai(x, stream=producer.handle))
        view.__dlpack__(stream=consumer)
    seen = consumer.read(x)
    cuda.synchronize()
    assert seen.value == [7.0] * 4
    assert (cuda.current_device, view.ptr) == (0, x.ptr)


WRONG = (
    r"^stream: got the stream 0x\w+ of device {} for an array on device {}; allowed: a stream of"
)


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "dlpack-bare", "cai3"])
@pytest.mark.parametrize("given", ["object", "handle"])
@DEVICES
def test_a_consumers_stream_of_another_device_is_refused_by_its_number(device, given, speaks, cuda):
    stream = cuda.stream(device=1 - device)
    wrong = stream if given == "object" else stream.handle
    x = cuda.array([7.0], device=device, speaks=speaks)
    refused = pytest.raises(ValueError, match=WRONG.format(1 - device, device))
    with refused:
        to_cai(x, stream=wrong)
    view = from_cai(x, stream=1) if speaks == "cai3" else from_cai(to_cai(x))
    with refused:
        view.__dlpack__(stream=wrong)
    with refused:
        from_cai(to_cai(x), stream=wrong)
    with refused:
        view.release(wrong)
    assert cuda.read(view) == [7.0]
    assert cuda.current_device == 0


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize("speaks", ["exchange", "cai3"])
def test_default_streams_are_those_of_the_arrays_device(speaks, stream, cuda):
    late = cuda.stream("late", device=1)
    x = cuda.array(shape=4, device=1, speaks=speaks)
    with cuda.current_stream(late):
        late.fill(x, 7.0)
        view = to_cai(x, stream=stream)
    assert view.stream == stream
    seen = cuda.default_stream(1, per_thread=stream == 2).read(view)
    cuda.synchronize()
    assert (seen.value, cuda.current_device) == ([7.0] * 4, 0)


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "dlpack-bare", "cai3"])
@DEVICES
def test_memory_that_dlpack_gives_no_device_is_where_the_driver_says(device, speaks, memory, cuda):
    producer, consumer = cuda.stream("p", device=device), cuda.stream("c", device=device)
    x = cuda.array([7.0], device=device, memory=memory, speaks=speaks, stream=producer)
    cuda.set_device(device)
    with cuda.current_stream(producer):
        view = to_cai(x, stream=consumer)
    seen = consumer.read(view)
    cuda.synchronize()
    assert seen.value == [7.0]


@DEVICES
def test_the_exchange_api_is_asked_for_the_stream_of_that_device(device, memory, cuda):
    x, asked = cuda.array(shape=4, device=device, memory=memory), []
    kind = {"device": 2, "managed": 13, "pinned": 3}[memory]
    fields = {"device_type": kind, "device_id": device if kind == 2 else 0}
    table = tables.table(lambda _: HandMade(x.ptr, **fields), asked=asked)
    assert to_cai(tables.speaker(table)()).stream == 1
    assert asked == [(2, device)]


def test_a_thread_that_has_never_used_the_driver_is_left_as_it_was(cuda):
    producer, consumer = cuda.stream("p", device=1), cuda.stream("c", device=1)
    x, seen = cuda.array([7.0], speaks="cai", stream=producer), []

    def convert():
        before = cuda.current_device
        from_cai(x).__dlpack__(stream=consumer)
        seen.append((before, cuda.current_device))

    thread = threading.Thread(target=convert)
    thread.start()
    thread.join()
    assert seen == [(0, 0)]
    read = consumer.read(x)
    cuda.synchronize()
    assert read.value == [7.0]
