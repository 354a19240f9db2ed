"""Copies that a `DLPackView` makes, on the real driver: values, order, who waits, other devices and
kinds of memory, and what the simulated device claims of stream-ordered memory.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import convert, from_cai, to_cai

from . import capsules
from .driver import ADDRESS, INT, LEGACY, NON_BLOCKING, PER_THREAD, Driver
from .libraries import raw_values, same_bits
from .streams import fresh_values, handle_of

SPIN_MS = 60.0
COUNT = 4096
NEWEST = (1, 3)


def cai_of(address: int, shape: tuple[int, ...] = (COUNT,), **entries: Any) -> Any:
    """The bytes at an address as an object that speaks CAI only, float32."""
    return capsules.OnlyCai(capsules.interface(address, shape, **entries))


def copied(view: Any, **wishes: Any) -> Any:
    """A copy as an array that speaks CAI, with no order made beside the copy's own."""
    return to_cai(view.__dlpack__(copy=True, max_version=NEWEST, **wishes), stream=-1)


def floats(driver: Driver, view: Any) -> np.ndarray[Any, Any]:
    driver.synchronize()
    return raw_values(view.ptr, view.shape, view.strides, np.dtype(np.float32))


def write(driver: Driver, address: int, value: float, stream: int) -> None:
    bits = int(np.float32(value).view(np.uint32))
    driver.write(address, bits, COUNT, stream)


HOST = np.arange(1, 121, dtype=np.float32).reshape(2, 3, 4, 5)
LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "C-contiguous": lambda of, x: x,
    "transposed": lambda of, x: x.transpose(3, 1, 0, 2),
    "rows with gaps": lambda of, x: x[..., 1:4],
    "planes with gaps": lambda of, x: x[:, :, 1:3, 1:4],
    "steps": lambda of, x: x[:, ::2, :, ::2],
    "reversed": lambda of, x: x[::-1, :, ::-1, ::-1],
    "one column": lambda of, x: x[..., 2:3],
    "0-d": lambda of, x: x[1, 2, 3, 4, ...],
    "zero-size": lambda of, x: x[:, :0],
    "broadcast": lambda of, x: of.broadcast_to(x[0, 0], (2, 3, 4, 5)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("where", ["gpu", "cpu"])
def test_any_layout_is_copied_right(driver, cupy, where, layout):
    base = cupy.asarray(HOST)
    array, host = LAYOUTS[layout](cupy, base), LAYOUTS[layout](np, HOST)
    driver.synchronize()
    view = from_cai(array, stream=-1)
    if where == "cpu":
        seen = np.from_dlpack(view, device="cpu")
    else:
        copy = copied(view)
        seen = floats(driver, copy) if host.size else np.empty(host.shape, np.float32)
        assert copy.__cuda_array_interface__["strides"] is None
        assert not host.size or copy.ptr not in (0, view.ptr)
    assert seen.shape == host.shape
    assert same_bits(np.ascontiguousarray(seen), np.ascontiguousarray(host))


KINDS = ["legacy", "per-thread", "non-blocking", "object"]


class Stream:
    """A driver stream as an object that owns it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.handle = driver.stream(NON_BLOCKING)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)

    def __del__(self) -> None:
        self._driver("cuStreamDestroy_v2", self.handle)


def stream_of(driver: Driver, kind: str, new_stream: Callable[..., int]) -> Any:
    if kind == "object":
        return Stream(driver)
    return {"legacy": LEGACY, "per-thread": PER_THREAD}.get(kind) or new_stream()


@pytest.mark.alone
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_of_what_was_pending_and_the_host_does_not_wait(
    driver, words, new_stream, kind, note
):
    producer, address = new_stream(), words(COUNT)
    stream = stream_of(driver, kind, new_stream)
    handle = handle_of(stream) if kind == "object" else stream
    view = from_cai(cai_of(address, stream=producer))
    del_later = copied(view, stream=stream)  # everything is loaded before anything is timed
    driver.synchronize()
    del del_later
    for _, value in zip(range(10), fresh_values(), strict=False):
        driver.synchronize()
        driver.spin(producer, SPIN_MS)
        write(driver, address, value, producer)
        began = time.perf_counter()
        copy = copied(view, stream=stream)
        held = 1e3 * (time.perf_counter() - began)
        assert held < SPIN_MS / 2, "the host waited"
        assert driver.is_pending(handle)
        # The producer goes on, and must not be seen to.
        write(driver, address, -1.0, producer)
        assert (floats(driver, copy) == value).all()
        del copy
    note(f"copy queued on a {kind} stream: {1e3 * held:.0f} us")


@pytest.mark.parametrize("destroyed", [False, True])
def test_a_bare_handle_is_not_touched_when_the_memory_goes_back(driver, words, destroyed):
    # A regression ends this process: an event, or a free, on a dead stream is a SIGSEGV.
    view = from_cai(cai_of(words(COUNT)))
    for _ in range(20):
        stream = driver.stream()
        copy = copied(view, stream=stream)
        driver.spin(stream, 2.0)
        if destroyed:
            driver("cuStreamDestroy_v2", stream)
        del copy
        gc.collect()
        if not destroyed:
            assert not driver.is_pending(stream, patience_ms=0.0), "the host has waited"
            driver("cuStreamDestroy_v2", stream)
    driver.synchronize()


@pytest.mark.alone
def test_a_thousand_copies_leave_no_memory_behind(driver, words):
    view = from_cai(cai_of(words(1 << 20), (1 << 20,)))

    for wishes in ({"stream": LEGACY}, {"stream": -1}, {"dl_device": (1, 0)}):
        for _ in range(10):
            view.__dlpack__(copy=True, **wishes)
        driver.synchronize()
        before = driver.free_bytes()
        for _ in range(1000):
            view.__dlpack__(copy=True, **wishes)
        driver.synchronize()
        assert before - driver.free_bytes() < 256 << 20, "4 GB were copied"


def test_torch_takes_a_reversed_array_as_a_copy(cupy, torch):
    # Without the copy torch ends the process: it has no negative strides.
    x = cupy.arange(6, dtype="float32")[::-1]
    tensor = torch.from_dlpack(from_cai(x), copy=True)
    assert tensor.tolist() == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]


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


def test_torch_takes_managed_memory_as_plain_cuda_memory(driver, torch, everywhere):
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
def test_torch_asks_for_copies(driver, torch, words, new_stream, device):
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
