"""Copies that a `DLPackView` makes, on the real driver: values, order, who waits, and where the
memory goes.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai

from . import capsules
from .copies import COUNT, NEWEST, SPIN_MS, cai_of, copied, floats, write
from .driver import LEGACY, NON_BLOCKING, PER_THREAD, Driver
from .libraries import PRODUCERS, host_values, same_bits
from .streams import fresh_values, handle_of

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
def test_any_layout_is_copied_right(driver, where, layout):
    cupy = pytest.importorskip("cupy")
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


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "complex128", "bfloat16"])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_any_dtype_is_copied_to_the_host(driver, producer, dtype):
    if dtype == "bfloat16" and producer in ("numba", "jax"):
        pytest.skip("no CUDA Array Interface for this type")
    host = host_values(dtype)
    array = PRODUCERS[producer](host, dtype)
    driver.synchronize()
    view = from_cai(array, stream=-1)
    seen = capsules.read_capsule(capsule := view.__dlpack__(dl_device=(1, 0), max_version=NEWEST))
    content = ctypes.string_at(seen.ptr, host.nbytes)
    assert content == np.ascontiguousarray(host).tobytes()
    assert seen.ptr % 256 == 0
    del capsule


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
    note(f"copy queued on a {kind} stream: {1e3 * held:.0f} us", held_ms=held)


@pytest.mark.parametrize("pending", [False, True])
def test_the_cpu_has_what_was_pending(driver, words, new_stream, pending):
    producer, address = new_stream(), words(COUNT)
    view = from_cai(cai_of(address, stream=producer))
    for _, value in zip(range(5), fresh_values(), strict=False):
        driver.synchronize()
        if pending:
            driver.spin(producer, SPIN_MS)
        write(driver, address, value, producer)
        array = np.from_dlpack(view, device="cpu", copy=True)
        assert (array == value).all()
        array[:] = 0.0
    assert (floats(driver, view) == value).all()


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["legacy", "per-thread", "object"])
def test_memory_goes_back_in_order_and_the_host_does_not_wait(driver, words, new_stream, kind):
    address, stream = words(COUNT), stream_of(driver, kind, new_stream)
    handle = handle_of(stream) if kind == "object" else stream
    view = from_cai(cai_of(address))
    target = words(COUNT)
    for _, value in zip(range(10), fresh_values(), strict=False):
        write(driver, address, value, LEGACY)
        driver.synchronize()
        copy = copied(view, stream=stream)
        driver.spin(handle, SPIN_MS)
        driver.copy(target, copy.ptr, 4 * COUNT, handle)
        began = time.perf_counter()
        del copy
        assert 1e3 * (time.perf_counter() - began) < SPIN_MS / 2, "the host waited"
        # The pool may hand the block out at once; the copy to `target` comes first all the same.
        again = copied(from_cai(cai_of(words(COUNT))), stream=stream)
        driver.synchronize()
        assert driver.words(target, COUNT) == [int(np.float32(value).view(np.uint32))] * COUNT
        del again


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

    def free_bytes() -> int:
        driver.synchronize()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        driver("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    for wishes in ({"stream": LEGACY}, {"stream": -1}, {"dl_device": (1, 0)}):
        for _ in range(10):
            view.__dlpack__(copy=True, **wishes)
        before = free_bytes()
        for _ in range(1000):
            view.__dlpack__(copy=True, **wishes)
        assert before - free_bytes() < 256 << 20, "4 GB were copied"


def test_torch_takes_a_reversed_array_as_a_copy():
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    # Without the copy torch ends the process: it has no negative strides.
    x = cupy.arange(6, dtype="float32")[::-1]
    tensor = torch.from_dlpack(from_cai(x), copy=True)
    assert tensor.tolist() == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
