"""Memory of one device and streams of another: managed, pinned and peer memory is used so."""

import threading

import pytest

from cai_bridge import from_cai, to_cai

DEVICES = pytest.mark.parametrize("device", [0, 1])


@pytest.fixture(params=["device", "managed", "pinned"])
def memory(request):
    return request.param


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
