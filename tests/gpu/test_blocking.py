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

from cai_bridge import HostSyncWarning, from_cai, to_cai

from . import capsules, libraries, streams

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


def check(
    note: Callable[..., None], case: str, milliseconds: float, limit: float = LIMIT_MS
) -> None:
    note(
        f"host held, {case}: {1e3 * milliseconds:.1f} us of {PENDING_MS:.0f} ms pending",
        milliseconds=milliseconds,
    )
    assert milliseconds < limit


@pytest.mark.parametrize("ordered", [False, True], ids=["named", "ordered"])
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_to_cai_of_a_pending_array_and_its_dict_do_not_hold_the_host(
    driver: Any, note: Any, new_stream: Any, library: str, ordered: bool
) -> None:
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


def test_to_cai_of_a_pending_jax_array_holds_the_host_no_longer_than_jax_itself_needs(
    driver: Any, note: Any
) -> None:
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
        milliseconds=ours,
    )
    assert ours < own + 1.0


@pytest.fixture
def pending_cupy(driver: Any) -> tuple[Any, Callable[[float], int], Any]:
    """A CuPy array, what queues work on it, and its non-blocking stream."""
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    array = cupy.zeros(streams.WORDS, dtype=np.float32)

    def pending(milliseconds: float) -> int:
        streams.cupy_writes_late(array, 1, stream, milliseconds)
        return streams.handle_of(stream)

    driver.synchronize()
    return array, pending, stream


def test_from_cai_and_dlpack_on_a_side_stream_do_not_hold_the_host(
    driver: Any, note: Any, new_stream: Any, pending_cupy: Any
) -> None:
    array, pending, stream = pending_cupy
    consumer = new_stream()
    with stream:
        milliseconds = least_time(
            driver, pending, lambda: from_cai(array).__dlpack__(stream=consumer)
        )
    check(note, "from_cai(cupy).__dlpack__(stream=side)", milliseconds)


def test_from_cai_and_dlpack_on_the_default_stream_do_not_hold_the_host(
    driver: Any, note: Any, pending_cupy: Any
) -> None:
    array, pending, stream = pending_cupy
    with stream:
        milliseconds = least_time(driver, pending, lambda: from_cai(array).__dlpack__())
    check(note, "from_cai(cupy).__dlpack__()", milliseconds)


def test_from_cai_and_the_exchange_api_do_not_hold_the_host(
    driver: Any, note: Any, pending_cupy: Any
) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    array, pending, stream = pending_cupy
    with stream:
        milliseconds = least_time(driver, pending, lambda: tvm_ffi.from_dlpack(from_cai(array)))
    check(note, "tvm_ffi.from_dlpack(from_cai(cupy))", milliseconds)


def test_dropping_views_and_capsules_with_work_pending_does_not_hold_the_host(
    driver: Any, note: Any, new_stream: Any, pending_cupy: Any
) -> None:
    array, pending, stream = pending_cupy
    consumer = pytest.importorskip("cupy").cuda.Stream(non_blocking=True)

    def made_and_dropped() -> None:
        view = from_cai(array)
        view.__dlpack__(stream=consumer)
        view.release()

    with stream:
        milliseconds = least_time(driver, pending, made_and_dropped)
    check(note, "a view and a capsule made and dropped", milliseconds)


def test_for_a_bare_handle_that_nobody_keeps_the_host_waits_and_says_how_to_avoid_it(
    driver: Any, note: Any, new_stream: Any, pending_cupy: Any, caplog: Any
) -> None:
    array, pending, stream = pending_cupy
    consumer = new_stream()
    with stream:
        pending(20.0)
        capsule = from_cai(array).__dlpack__(stream=consumer)
    assert driver.is_pending(consumer)
    start = time.perf_counter()
    del capsule
    waited = 1e3 * (time.perf_counter() - start)
    assert not driver.is_pending(consumer)
    note(f"host held, end for a bare handle: {waited:.1f} of 20 ms pending", waited=waited)
    (record,) = [one for one in caplog.records if getattr(one, "order", None) == "impossible"]
    assert (record.levelname, record.consumer) == ("WARNING", consumer)


def test_for_a_bare_handle_that_another_stream_has_by_now_the_host_waits(
    driver: Any, new_stream: Any, pending_cupy: Any
) -> None:
    array, pending, stream = pending_cupy
    cupy = pytest.importorskip("cupy")
    consumer = driver.stream()
    with stream:
        pending(20.0)
        capsule = from_cai(array).__dlpack__(stream=consumer)
    driver("cuStreamDestroy_v2", consumer)
    another = new_stream()
    if another != consumer:
        pytest.skip("the driver has not given the handle to the next stream")
    with cupy.cuda.ExternalStream(another):
        start = time.perf_counter()
        del capsule
        waited = 1e3 * (time.perf_counter() - start)
    assert waited > 5.0, f"{waited} of 20 ms: CuPy's stream was taken for the consumer's"


def test_an_unordered_old_dict_holds_the_host_once_and_a_named_stream_avoids_it(
    driver: Any, note: Any, words: Any, new_stream: Any
) -> None:
    address, stream = words(16), new_stream()

    class Old(capsules.OnlyCai):
        """A v2 exporter: it says nothing of streams, so the bridge has to wait, unless the caller
        says.
        """

    interface = capsules.interface(address, (16,), version=2)

    def pending(milliseconds: float) -> int:
        driver.spin(stream, milliseconds)
        return stream

    milliseconds = least_time(driver, pending, lambda: from_cai(Old(interface), stream=stream))
    check(note, "from_cai of a v2 dict with stream=", milliseconds)

    driver.synchronize()
    pending(20.0)
    start = time.perf_counter()
    with pytest.warns(HostSyncWarning, match="stream"):
        from_cai(Old(interface))
    waited = 1e3 * (time.perf_counter() - start)
    assert not driver.is_pending(stream)
    note(
        f"host held, from_cai of a v2 dict without stream=: {waited:.1f} of 20 ms pending",
        waited=waited,
    )
    assert waited > 10.0
