"""Copies to other devices, managed and pinned memory, and what the simulated device claims of
stream-ordered memory, on the real driver.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np
import pytest

from cai_bridge import convert, from_cai, to_cai

from . import capsules
from .copies import COUNT, NEWEST, SPIN_MS, cai_of, copied, floats, write
from .driver import ADDRESS, INT, LEGACY, PER_THREAD
from .streams import fresh_values


@pytest.fixture(params=["pinned", "managed"])
def everywhere(driver, request):
    """The address of memory that every GPU reaches, and its kind."""
    if request.param == "pinned":
        address, kind = driver.get("cuMemHostAlloc", 4 * COUNT, 0), 3
    else:
        address, kind = driver.get("cuMemAllocManaged", 4 * COUNT, 1, kind=ADDRESS), 13
    yield address, kind
    driver.synchronize()
    if request.param == "pinned":
        driver("cuMemFreeHost", address)
    else:
        driver("cuMemFree_v2", address)


def test_managed_and_pinned_memory_goes_both_ways_and_to_a_gpu(driver, everywhere, new_stream):
    (address, kind), producer, consumer = everywhere, new_stream(), new_stream()
    value = next(fresh_values())
    view = from_cai(cai_of(address, stream=producer))
    assert view.device == to_cai(view).device == (kind, 0)
    driver.spin(producer, SPIN_MS)
    write(driver, address, value, producer)
    shared = capsules.read_capsule(
        kept := view.__dlpack__(stream=consumer, dl_device=(2, 0), copy=False, max_version=NEWEST)
    )
    assert (shared.device, shared.ptr) == ((2, 0), address)
    assert driver.is_pending(consumer)
    copy = copied(view, stream=consumer, dl_device=(2, 0))
    assert copy.ptr != address
    assert (floats(driver, copy) == value).all()
    assert (np.from_dlpack(view, device="cpu", copy=True) == value).all()
    # Who names no stream may read on the CPU.
    assert (np.from_dlpack(view, copy=True) == value).all()
    own = copied(view, stream=consumer)
    assert (own.device, own.ptr != address) == ((2, 0), True)
    assert (floats(driver, own) == value).all()
    del kept


def test_torch_takes_managed_memory_as_plain_cuda_memory(driver, everywhere):
    torch = pytest.importorskip("torch")
    address, _ = everywhere
    write(driver, address, 5.0, LEGACY)
    driver.synchronize()
    by_hand = torch.from_dlpack(from_cai(cai_of(address), device=(2, 0)))
    for tensor in (by_hand, convert(from_cai(cai_of(address)), torch)):
        assert (tensor.data_ptr(), tensor.device.type) == (address, "cuda")
        assert bool((tensor == 5.0).all())


def torch_takes_copy(torch: Any) -> bool:
    with contextlib.suppress(TypeError):
        torch.from_dlpack(np.zeros(1), copy=False)
        return True
    return False


@pytest.mark.parametrize("device", [None, "cuda:0", "cpu"])
def test_torch_asks_for_copies(driver, words, new_stream, device):
    torch = pytest.importorskip("torch")
    if not torch_takes_copy(torch):
        pytest.skip("this torch's from_dlpack takes no copy=")
    producer, address = new_stream(), words(COUNT)
    view = from_cai(cai_of(address, stream=producer))
    for _, value in zip(range(5), fresh_values(), strict=False):
        driver.synchronize()
        driver.spin(producer, SPIN_MS)
        write(driver, address, value, producer)
        with torch.cuda.stream(torch.cuda.Stream()):
            tensor = torch.from_dlpack(view, device=device, copy=True)
            write(driver, address, -1.0, producer)
            assert bool((tensor == value).all())
            assert tensor.data_ptr() != address
            assert tensor.device.type == ("cpu" if device == "cpu" else "cuda")


@pytest.mark.parametrize("rows", [False, True])
def test_a_copy_goes_to_another_gpu(driver, words, new_stream, rows):
    if driver.get("cuDeviceGetCount", kind=INT) < 2:
        pytest.skip("one GPU: a copy to another one needs two")
    other = driver.get("cuDevicePrimaryCtxRetain", 1)
    with driver.context(other):
        consumer = driver.stream()
    producer, address = new_stream(), words(COUNT)
    shape, strides = ((COUNT // 8, 4), (32, 4)) if rows else ((COUNT,), None)
    view = from_cai(cai_of(address, shape, strides=strides, stream=producer))
    for stream in (consumer, LEGACY, PER_THREAD, None, -1):
        value = next(fresh_values())
        driver.synchronize()
        driver.spin(producer, SPIN_MS)
        write(driver, address, value, producer)
        capsule = view.__dlpack__(stream=stream, dl_device=(2, 1), max_version=NEWEST)
        write(driver, address, -1.0, producer)
        seen = capsules.read_capsule(capsule)
        assert (seen.device, seen.shape) == ((2, 1), shape)
        copy = to_cai(capsule, stream=-1)
        with driver.context(other):
            driver("cuCtxSynchronize")
        driver.synchronize()
        assert (floats(driver, copy) == value).all()
        del copy
        assert driver.current_context() == driver.primary
    with driver.context(other):
        driver("cuCtxSynchronize")
        driver("cuStreamDestroy_v2", consumer)


@pytest.mark.alone
def test_a_free_at_once_of_stream_ordered_memory_waits_for_nothing(driver, new_stream):
    stream = new_stream()
    warm = driver.get("cuMemAllocAsync", 4 * COUNT, stream, kind=ADDRESS)
    driver.synchronize()
    driver("cuMemFree_v2", warm)
    block = driver.get("cuMemAllocAsync", 4 * COUNT, stream, kind=ADDRESS)
    driver("cuStreamSynchronize", stream)
    driver.spin(stream, SPIN_MS)
    began = time.perf_counter()
    driver("cuMemFree_v2", block)
    held = 1e3 * (time.perf_counter() - began)
    assert held < SPIN_MS / 2


def test_stream_ordered_memory_is_handed_out_again_on_its_stream_at_once(driver, new_stream):
    stream = new_stream()
    block = driver.get("cuMemAllocAsync", 4 * COUNT, stream, kind=ADDRESS)
    driver.spin(stream, SPIN_MS)
    driver("cuMemFreeAsync", block, stream)
    again = driver.get("cuMemAllocAsync", 4 * COUNT, stream, kind=ADDRESS)
    assert driver.is_pending(stream)
    assert again == block
    driver("cuMemFreeAsync", again, stream)


@pytest.mark.parametrize("stream", [LEGACY, PER_THREAD])
def test_default_streams_take_and_give_back_memory(driver, stream):
    block = driver.get("cuMemAllocAsync", 64, stream, kind=ADDRESS)
    assert from_cai(cai_of(block, (16,))).device == (2, 0)
    driver("cuMemFreeAsync", block, stream)
