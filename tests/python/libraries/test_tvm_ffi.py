"""tvm-ffi's tensors, whose ``__dlpack__`` takes no notice of the stream that it is asked for.

The real library, over memory of the simulated device. Its environment stream stands for the work.
"""

import pytest
import tvm_ffi

from cai_bridge import from_cai, to_cai

DEVICE = tvm_ffi.device("cuda", 0)


@pytest.fixture
def mine(cuda):
    return cuda.stream("consumer")


@pytest.fixture
def tensor(cuda):
    """A tensor of four items, and the stream that 7 is queued to be written to it on."""
    x = cuda.array([0.0] * 4, speaks="dlpack", name="x")
    made, producer = tvm_ffi.from_dlpack(x), cuda.stream("producer")
    producer.fill(x, 7.0)
    with tvm_ffi.use_raw_stream(DEVICE, producer.handle):
        producer.array = x
        yield made, producer
    cuda.synchronize()


class Lends:
    """Has only the protocol of a tensor."""

    def __init__(self, tensor):
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


@pytest.mark.unchecked
@pytest.mark.parametrize("waits", [True, False])
def test_the_consumers_stream_waits_for_the_one_that_the_environment_has(waits, cuda, mine, tensor):
    if not waits:
        cuda.suppress("cuStreamWaitEvent")
    seen = mine.read(to_cai(tensor[0], stream=mine))
    mine.synchronize()
    assert seen.value == [7.0] * 4 or not waits
    assert bool(cuda.reports) is not waits


def test_what_has_only_the_protocol_of_a_tensor_is_ready_there_too(mine, tensor):
    seen = mine.read(to_cai(Lends(tensor[0]), stream=mine))
    mine.synchronize()
    assert seen.value == [7.0] * 4


def test_the_dict_names_it_or_what_replaces_it(cuda, tensor):
    made, producer = tensor
    with cuda.current_stream(producer):
        assert to_cai(made).__cuda_array_interface__["stream"] == producer.handle
    # Nobody keeps it any more.
    assert to_cai(made).__cuda_array_interface__["stream"] == 1
    assert to_cai(made, stream=-1).__cuda_array_interface__["stream"] is None


def test_a_consumer_of_dlpack_waits_for_it(cuda, mine, tensor):
    seen = cuda.consumer("dlpack", mine).read(from_cai(to_cai(tensor[0])))
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_the_memory_goes_back_in_its_order(cuda, mine, tensor):
    made, producer = tensor
    # The producer's stream is known to be alive while a library works on it.
    with cuda.current_stream(producer):
        view = to_cai(made, stream=mine)
    seen = mine.read(view)
    view.release()
    producer.fill(producer.array, 9.0, name="the next write")
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_the_default_is_the_legacy_stream(cuda):
    made = tvm_ffi.from_dlpack(cuda.array([1.0], speaks="dlpack"))
    assert to_cai(made).__cuda_array_interface__["stream"] == 1


def test_a_library_that_cannot_be_asked_is_taken_at_its_word(cuda, tensor, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(tvm_ffi, "get_raw_stream")
        assert to_cai(tensor[0]).__cuda_array_interface__["stream"] == 1
    cuda.synchronize()
