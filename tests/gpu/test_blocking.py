"""The host never waits for the producer: with 100 ms of work pending, a hand-over takes less than
0.1 ms.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import libraries, streams

pytestmark = pytest.mark.alone

PENDING_MS = 100.0
LIMIT_MS = 0.1
TRIES = 5
WARM_UP = 20

Action = Callable[[], Any]


def least_time(driver: Any, make_pending: Callable[[float], int], action: Action) -> float:
    """The least host time of `action` in ms over `TRIES`, each with `PENDING_MS` queued in front of
    it.

    `make_pending(ms)` queues the work and returns its stream.
    """
    for _ in range(WARM_UP):
        make_pending(0.01)
        action()
    driver.synchronize()
    times = []
    for _ in range(TRIES):
        stream = make_pending(PENDING_MS)
        gc.disable()
        start = time.perf_counter()
        result = action()
        times.append(1e3 * (time.perf_counter() - start))
        gc.enable()
        assert driver.is_pending(stream), "the producer had finished, so nothing was measured"
        driver.synchronize()
        del result
    return min(times)


def check(note: Callable[..., None], case: str, milliseconds: float) -> None:
    note(f"host held, {case}: {1e3 * milliseconds:.1f} us of {PENDING_MS:.0f} ms pending")
    assert milliseconds < LIMIT_MS


@pytest.mark.parametrize("ordered", [False, True], ids=["named", "ordered"])
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_to_cai_of_a_pending_array_and_its_dict_do_not_hold_the_host(
    driver, note, new_stream, library, ordered
):
    module, consumer = pytest.importorskip(library), new_stream()
    if library == "torch":
        side = module.cuda.Stream()
        array, write = module.zeros(streams.WORDS, device="cuda"), streams.torch_writes_late
    else:
        side = module.cuda.Stream(non_blocking=True)
        array, write = module.zeros(streams.WORDS, dtype=np.float32), streams.cupy_writes_late

    def pending(milliseconds: float) -> int:
        write(array, 1, side, milliseconds)
        return streams.handle_of(side)

    def action() -> Any:
        view = to_cai(array, stream=consumer) if ordered else to_cai(array)
        return view, view.__cuda_array_interface__

    with side if library == "cupy" else module.cuda.stream(side):
        milliseconds = least_time(driver, pending, action)
    check(note, f"to_cai({library}{', stream=side' if ordered else ''}) and its dict", milliseconds)


def test_to_cai_of_a_pending_jax_array_holds_the_host_no_longer_than_jax_itself_needs(driver, note):
    libraries.gpu_jax()
    delay = streams.jax_delay(20.0)
    values = streams.fresh_values()
    exports: dict[str, Callable[[Any], Any]] = {
        "to_cai(jax) and its dict": lambda array: to_cai(array).__cuda_array_interface__,
        "JAX's own __dlpack__(stream=1)": lambda array: array.__dlpack__(stream=1),
    }
    times: dict[str, list[float]] = {label: [] for label in exports}
    for _ in range(TRIES + 3):
        for label, export in exports.items():
            driver.synchronize()
            array = delay(next(values))
            start = time.perf_counter()
            export(array)
            times[label].append(1e3 * (time.perf_counter() - start))
    ours, own = (min(spent[3:]) for spent in times.values())
    note(
        f"host held, to_cai(jax) and its dict: {1e3 * ours:.1f} us of 20 ms pending, "
        f"JAX's own __dlpack__(stream=1): {1e3 * own:.1f} us",
    )
    assert ours < own + 1.0


@pytest.fixture
def pending_cupy(driver):
    """A CuPy array, what queues work on it, and its non-blocking stream."""
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    array = cupy.zeros(streams.WORDS, dtype=np.float32)

    def pending(milliseconds: float) -> int:
        streams.cupy_writes_late(array, 1, stream, milliseconds)
        return streams.handle_of(stream)

    driver.synchronize()
    return array, pending, stream


@pytest.mark.parametrize("what", ["stream=side", "no stream", "exchange API", "dropped"])
def test_from_cai_and_what_it_hands_out_do_not_hold_the_host(
    driver, note, cupy, pending_cupy, what
):
    array, pending, stream = pending_cupy
    consumer = cupy.cuda.Stream(non_blocking=True)
    handle = consumer.ptr
    tvm_ffi = pytest.importorskip("tvm_ffi") if what == "exchange API" else None

    def made_and_dropped() -> None:
        view = from_cai(array)
        view.__dlpack__(stream=consumer)
        view.release()

    action: Action = {
        "stream=side": lambda: from_cai(array).__dlpack__(stream=handle),
        "no stream": lambda: from_cai(array).__dlpack__(),
        "exchange API": lambda: tvm_ffi.from_dlpack(from_cai(array)),
        "dropped": made_and_dropped,
    }[what]
    with stream:
        milliseconds = least_time(driver, pending, action)
    check(note, f"from_cai(cupy), {what}", milliseconds)
