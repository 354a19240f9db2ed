"""Two GPUs: arrays of the one while the other is current, and streams of the wrong one.

Skipped where there is one GPU; the simulated device shows the same with two.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import libraries, streams
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


def test_the_kit_works_on_the_gpu_of_jaxs_arrays(two):
    from cai_bridge.conformance.libraries.jax import Producer

    with two.context():  # JAX starts here if this test runs first, and leaves another one current
        libraries.gpu_jax().devices("gpu")
    with two.context():
        array = Producer().make((4,), "float32")
        assert two.get("cuCtxGetDevice", kind=ctypes.c_int) == array.device.local_hardware_id
