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

# values

HOST = np.arange(1, 121, dtype=np.float32).reshape(2, 3, 4, 5)
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C-contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(3, 1, 0, 2),
    "rows with gaps": lambda x: x[..., 1:4],
    "planes with gaps": lambda x: x[:, :, 1:3, 1:4],
    "steps": lambda x: x[:, ::2, :, ::2],
    "reversed": lambda x: x[::-1, :, ::-1, ::-1],
    "one column": lambda x: x[..., 2:3],
    "0-d": lambda x: x[1, 2, 3, 4, ...],
    "zero-size": lambda x: x[:, :0],
}


def broadcast(library: Any, x: Any) -> Any:
    return library.broadcast_to(x[0, 0], (2, 3, 4, 5))


@pytest.mark.parametrize("layout", [*LAYOUTS, "broadcast"])
@pytest.mark.parametrize("where", ["gpu", "cpu"])
def test_any_layout_is_copied_right(driver: Driver, where: str, layout: str) -> None:
    cupy = pytest.importorskip("cupy")
    base = cupy.asarray(HOST)
    if layout == "broadcast":
        array, host = broadcast(cupy, base), broadcast(np, HOST)
    else:
        array, host = LAYOUTS[layout](base), LAYOUTS[layout](HOST)
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
def test_any_dtype_is_copied_to_the_host(driver: Driver, producer: str, dtype: str) -> None:
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


# order

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
    driver: Driver, words: Any, new_stream: Any, kind: str, note: Any
) -> None:
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


def test_with_minus_one_a_copy_is_ready_on_the_producers_stream(
    driver: Driver, words: Any, new_stream: Any
) -> None:
    producer, address = new_stream(), words(COUNT)
    view = from_cai(cai_of(address, stream=producer))
    value = next(fresh_values())
    driver.spin(producer, SPIN_MS)
    write(driver, address, value, producer)
    copy = copied(view, stream=-1)
    assert not driver.is_pending(new_stream())
    driver("cuStreamSynchronize", producer)
    assert (floats(driver, copy) == value).all()


@pytest.mark.parametrize("pending", [False, True])
def test_the_cpu_has_what_was_pending(
    driver: Driver, words: Any, new_stream: Any, pending: bool
) -> None:
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


def test_only_the_producers_stream_is_waited_for(
    driver: Driver, words: Any, new_stream: Any
) -> None:
    producer, other, address = new_stream(), new_stream(), words(COUNT)
    view = from_cai(cai_of(address, stream=producer))
    np.from_dlpack(view, device="cpu")
    driver.spin(other, SPIN_MS)
    np.from_dlpack(view, device="cpu")
    assert driver.is_pending(other)


# the memory's end


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["legacy", "per-thread", "object"])
def test_memory_goes_back_in_order_and_the_host_does_not_wait(
    driver: Driver, words: Any, new_stream: Any, kind: str
) -> None:
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
def test_a_bare_handle_is_not_touched_when_the_memory_goes_back(
    driver: Driver, words: Any, destroyed: bool
) -> None:
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
def test_a_thousand_copies_leave_no_memory_behind(driver: Driver, words: Any) -> None:
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


def test_torch_takes_a_reversed_array_as_a_copy() -> None:
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    # Without the copy torch ends the process: it has no negative strides.
    x = cupy.arange(6, dtype="float32")[::-1]
    tensor = torch.from_dlpack(from_cai(x), copy=True)
    assert tensor.tolist() == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
