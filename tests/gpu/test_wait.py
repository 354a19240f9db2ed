"""`view.wait()` on the real driver: it waits for one array, quickly, and harms no capture."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cai_bridge import DriverError, convert, from_cai, to_cai

from . import capsules
from .driver import BLOCKING, NON_BLOCKING, PER_THREAD, Driver
from .test_host_wait import MODES, NOT_READY, SUCCESS, WHERE, by, capturing, marks, reached

__all__ = ["marks"]

COUNT, VIEWS = 1024, 500
MILLISECONDS, SECOND = 50.0, 1000.0
MOST_MICROSECONDS = 10.0


@pytest.fixture
def late(
    driver: Driver, new_stream: Callable[..., int], words: Callable[..., int]
) -> Iterator[Callable[..., Any]]:
    """Arrays that are written late, on a stream that their dict names."""

    def array(stream: int = 0, milliseconds: float = MILLISECONDS, value: int = 7) -> Any:
        stream, block = stream or new_stream(), words(COUNT)
        driver.spin(stream, milliseconds)
        driver.write(block, value, COUNT, stream)
        entries = {**capsules.interface(block, (COUNT,)), "stream": stream}
        return capsules.OnlyCai(entries)

    driver.spin(new_stream(), 0.01)  # the kernel is loaded before anything is pending
    driver.synchronize()
    yield array
    driver.synchronize()


@pytest.mark.parametrize("flags", [BLOCKING, NON_BLOCKING], ids=["blocking", "non-blocking"])
def test_the_work_of_another_stream_has_not_run_when_it_returns(
    flags: int,
    driver: Driver,
    new_stream: Callable[..., int],
    marks: Callable[[int], int],
    late: Callable[..., Any],
) -> None:
    busy, stream = new_stream(flags), new_stream(flags)
    array = late(stream)  # it allocates, which waits: before the other stream is busy
    driver.spin(busy, SECOND)
    mine, others = marks(stream), marks(busy)
    view = to_cai(array)
    assert reached(driver, mine) == NOT_READY
    start = time.perf_counter()
    view.wait()
    took = 1e3 * (time.perf_counter() - start)
    assert reached(driver, mine) == SUCCESS
    assert reached(driver, others) == NOT_READY, f"it waited for another stream, {took:.0f} ms"
    assert took < SECOND / 2
    assert view.__cuda_array_interface__["stream"] is None
    assert driver.words(view.ptr, 2) == [7, 7]


def test_it_waits_for_the_threads_own_default_stream(
    driver: Driver, new_stream: Callable[..., int], marks: Callable[[int], int], late: Any
) -> None:
    busy, array = new_stream(), late(PER_THREAD)
    driver.spin(busy, SECOND)
    mine, others = marks(PER_THREAD), marks(busy)
    view = to_cai(array)
    view.wait()
    assert (reached(driver, mine), reached(driver, others)) == (SUCCESS, NOT_READY)


@pytest.mark.alone
def test_it_takes_at_most_10_microseconds_more_than_the_drivers_own_wait(
    driver: Driver,
    new_stream: Callable[..., int],
    words: Callable[..., int],
    note: Callable[..., None],
) -> None:
    stream, block = new_stream(), words(COUNT)
    array = capsules.OnlyCai({**capsules.interface(block, (COUNT,)), "stream": stream})
    event = driver.event()

    def bare() -> None:
        driver("cuEventRecord", event, stream)
        driver("cuEventSynchronize", event)

    def microseconds(waits: list[Callable[[], object]]) -> float:
        took = []
        for wait in waits:
            driver.write(block, 7, COUNT, stream)
            start = time.perf_counter_ns()
            wait()
            took.append(time.perf_counter_ns() - start)
        return statistics.median(took) / 1e3

    try:
        with driver.context():
            microseconds([bare] * VIEWS)
            drivers = microseconds([bare] * VIEWS)
            ours = microseconds([to_cai(array).wait for _ in range(VIEWS)])
    finally:
        driver("cuEventDestroy_v2", event)
    note(f"wait(): {ours:.1f} us, cuEventRecord and cuEventSynchronize: {drivers:.1f} us")
    assert ours <= drivers + MOST_MICROSECONDS


@MODES
def test_work_that_is_captured_is_refused_and_the_capture_goes_on(
    mode: int, driver: Driver, new_stream: Callable[..., int], late: Callable[..., Any]
) -> None:
    stream = new_stream()
    view = to_cai(late(stream, 0.01))
    with capturing(driver, stream, mode) as ended:
        with pytest.raises(DriverError, match="graph capture: got a wait for work on the stream"):
            view.wait()
        assert view.stream == stream
    assert ended.said == SUCCESS
    view.wait()
    assert view.stream is None


@MODES
@WHERE
def test_captures_of_other_streams_go_on(
    where: str,
    mode: int,
    driver: Driver,
    new_stream: Callable[..., int],
    words: Callable[..., int],
    marks: Callable[[int], int],
) -> None:
    captured, stream, block = new_stream(), new_stream(), words(COUNT)
    array = capsules.OnlyCai({**capsules.interface(block, (COUNT,)), "stream": stream})
    with capturing(driver, captured, mode) as ended:
        driver.spin(stream, MILLISECONDS)
        mine = marks(stream)
        view = to_cai(array)
        assert reached(driver, mine) == NOT_READY
        by(where, view.wait)
        assert reached(driver, mine) == SUCCESS
    assert ended.said == SUCCESS


def test_other_threads_of_python_run_meanwhile(late: Callable[..., Any]) -> None:
    view, ran = to_cai(late()), list[float]()
    begun = threading.Event()

    def running() -> None:
        begun.wait()
        for _ in range(5):
            time.sleep(2e-3)
            ran.append(time.perf_counter())

    thread = threading.Thread(target=running)
    thread.start()
    begun.set()
    view.wait()
    returned = time.perf_counter()
    thread.join()
    assert sum(at < returned for at in ran) >= 3


@pytest.mark.parametrize("library", ["torch", "cupy", "jax"])
def test_arrays_of_the_libraries(library: str, driver: Driver) -> None:
    if library == "jax":
        view = to_cai(pytest.importorskip("jax.numpy").full(COUNT, 7, dtype="float32"))
    elif library == "cupy":
        cupy = pytest.importorskip("cupy")
        with cupy.cuda.Stream(non_blocking=True):
            x = cupy.zeros(COUNT, dtype="float32")
            x += 7
            view = to_cai(x)
            view.wait()
    else:
        torch = pytest.importorskip("torch")
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(50_000_000)
            view = to_cai(torch.full((COUNT,), 7.0, device="cuda"))
    view.wait()
    assert convert(from_cai(view, stream=-1), "numpy").tolist() == [7.0] * COUNT
