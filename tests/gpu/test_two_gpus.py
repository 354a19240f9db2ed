"""Two GPUs: arrays of the one while the other is current, streams of the wrong one, copies of none.

Skipped where there is one GPU; the simulated device shows the same with two.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai
from cai_bridge.conformance import UnmetError
from cai_bridge.testing import describe

from . import capsules, libraries, streams
from .streams import WORDS, handle_of

RUNS = 100
HERE, THERE = 0, 1
WRONG = r"^stream: got the stream 0x\w+ of device {} for an array on device {}; allowed: "


@pytest.fixture(autouse=True)
def two(driver):
    count = driver.get("cuDeviceGetCount", kind=ctypes.c_int)
    if count < 2:
        pytest.skip("one GPU")
    before = driver.current_context()
    yield driver
    assert driver.current_context() == before, "the caller's context is current again"


@pytest.fixture
def far(two):
    """The primary context of the other device."""
    return two.get("cuDevicePrimaryCtxRetain", two.get("cuDeviceGet", THERE, kind=ctypes.c_int))


def test_arrays_of_either_device_go_both_ways_whichever_is_current(torch, cupy):
    for device in (HERE, THERE):
        tensor = torch.arange(12, device=f"cuda:{device}", dtype=torch.float32)
        with cupy.cuda.Device(device):
            array = cupy.arange(12, dtype=np.float32)
        for current in (HERE, THERE):
            with torch.cuda.device(current):
                view = to_cai(tensor)
                assert (view.device, view.ptr) == ((2, device), tensor.data_ptr())
                back = torch.from_dlpack(from_cai(array))
                assert (back.device.index, back.data_ptr()) == (device, array.data.ptr)
                assert torch.cuda.current_device() == current
                assert (back.cpu().numpy() == np.arange(12)).all()
            with cupy.cuda.Device(current):
                taken = cupy.asarray(view)
                # CuPy copies what is on another device than its current one.
                assert (taken.data.ptr == tensor.data_ptr()) == (device == current)
                assert (cupy.asnumpy(taken) == np.arange(12)).all()


def test_a_stream_of_the_wrong_device_is_refused_by_its_number(torch, cupy):
    with torch.cuda.device(THERE):
        far = torch.cuda.Stream()
    near = torch.cuda.Stream()
    for device, wrong in ((HERE, far), (THERE, near)):
        tensor = torch.ones(4, device=f"cuda:{device}")
        view = to_cai(tensor)
        for given in (wrong, wrong.cuda_stream):
            refused = pytest.raises(ValueError, match=WRONG.format(1 - device, device))
            with refused:
                to_cai(tensor, stream=given)
            with refused:
                from_cai(view).__dlpack__(stream=given)
            with refused:
                from_cai(view, stream=given)
            with refused:
                view.release(given)
        assert (cupy.asnumpy(cupy.asarray(view)) == 1).all()


@pytest.mark.parametrize("kind", ["legacy", "side"])
def test_a_pending_producer_of_the_device_that_is_not_current_is_waited_for(
    torch, cupy, two, far, kind
):
    with cupy.cuda.Device(THERE):
        mine = cupy.cuda.Stream(non_blocking=True)
        out = cupy.zeros(WORDS, dtype=np.float32)
    with torch.cuda.device(THERE):
        side = torch.cuda.Stream() if kind == "side" else torch.cuda.default_stream()
    tensor = torch.zeros(WORDS, device=f"cuda:{THERE}")
    values, wrong = streams.fresh_values(), 0
    for _ in range(RUNS):
        value = next(values)
        with two.context(far):
            two.spin(handle_of(side), 2.0)
        with torch.cuda.device(THERE), torch.cuda.stream(side):
            tensor.fill_(value)
        # From here on device 0 is current, and device 1's streams are PyTorch's current ones there.
        with torch.cuda.stream(side), torch.cuda.device(HERE):
            view = to_cai(tensor, stream=mine)
        with cupy.cuda.Device(THERE), mine:
            out[...] = streams.cupy_view_without_sync(view)
            wrong += not bool((cupy.asnumpy(out, stream=mine) == value).all())
        view.release()
    assert wrong == 0


@pytest.mark.parametrize("stream", [1, 2])
def test_default_streams_are_those_of_the_arrays_device(two, far, stream):
    with two.context(far):
        block, side = two.allocate(4 * WORDS), two.stream()
        two.spin(side, 200)
        two.write(block, 7, WORDS, side)
    array = capsules.OnlyCai(capsules.interface(block, (WORDS,), stream=side))
    capsule = from_cai(array).__dlpack__(stream=stream)
    with two.context(far):
        event = two.event()
        two("cuEventRecord", event, stream)
        time.sleep(0.004)
        waits = two.result("cuEventQuery", event) == "CUDA_ERROR_NOT_READY"
        target = two.allocate(4 * WORDS)
        two.copy(target, block, 4 * WORDS, stream)
        two("cuCtxSynchronize")
        seen = two.words(target, 4)
        del capsule
        two("cuEventDestroy_v2", event)
        two("cuStreamDestroy_v2", side)
        for address in (block, target):
            two("cuMemFree_v2", address)
    assert (waits, seen) == (True, [7] * 4)


def test_memory_of_a_context_that_is_not_primary(two):
    device = two.get("cuDeviceGet", THERE, kind=ctypes.c_int)
    context = two.get("cuCtxCreate_v2", 0, device)
    two.get("cuCtxPopCurrent_v2")
    with two.context(context):
        block, side, mine = two.allocate(4 * WORDS), two.stream(), two.stream()
        two.spin(side, 20)
        two.write(block, 7, WORDS, side)
    array = capsules.OnlyCai(capsules.interface(block, (WORDS,), stream=side))
    view = from_cai(array)
    capsule = view.__dlpack__(stream=mine)
    with two.context(context):
        target = two.allocate(4 * WORDS)
        two.copy(target, block, 4 * WORDS, mine)
        two("cuStreamSynchronize", mine)
        host = ctypes.create_string_buffer(16)
        two("cuMemcpyDtoH_v2", ctypes.addressof(host), target, 16)
    del capsule, view
    seen = list((ctypes.c_uint32 * 4).from_buffer_copy(host.raw))
    two.forget(context)
    two("cuCtxDestroy_v2", context)
    assert seen == [7] * 4


def test_the_kit_works_on_the_gpu_of_jaxs_arrays(two):
    from cai_bridge.conformance.libraries.jax import Producer

    with two.context():  # JAX starts here if this test runs first, and leaves another one current
        libraries.gpu_jax().devices("gpu")
    with two.context():
        array = Producer().make((4,), "float32")
        assert two.get("cuCtxGetDevice", kind=ctypes.c_int) == array.device.local_hardware_id


def test_the_kit_says_that_an_array_is_on_another_gpu_than_it_works_on(torch):
    from cai_bridge.conformance.lab.gpu import GpuLab

    lab = GpuLab()
    here = lab.device[1]
    there = HERE + THERE - here
    array = torch.zeros(4, device=f"cuda:{there}")
    what = f"^the array is on CUDA device {there}, and device {here} was current "
    with pytest.raises(UnmetError, match=what):
        lab.region(describe(array)["CAI"])
    lab.close()
