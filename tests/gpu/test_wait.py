"""`view.wait()` on the real driver: it waits for one array, quickly, and harms no capture."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest

from cai_bridge import to_cai

from .capsules import OnlyCai, interface
from .driver import BLOCKING, NON_BLOCKING
from .test_host_wait import MODES, NOT_READY, SUCCESS, WHERE, by, reached

COUNT, VIEWS = 1024, 500
MILLISECONDS, SECOND = 200.0, 2000.0
MOST_MICROSECONDS = 10.0


@pytest.mark.parametrize("flags", [BLOCKING, NON_BLOCKING], ids=["blocking", "non-blocking"])
def test_the_work_of_another_stream_has_not_run_when_it_returns(
    flags, driver, new_stream, marks, words
):
    busy, stream, block = new_stream(flags), new_stream(flags), words(COUNT)
    driver.spin(stream, 0.01)  # the kernel is loaded before anything is pending
    driver.synchronize()
    driver.spin(stream, MILLISECONDS)
    driver.write(block, 7, COUNT, stream)
    driver.spin(busy, SECOND)
    mine, others = marks(stream), marks(busy)
    view = to_cai(OnlyCai(interface(block, (COUNT,), stream=stream)))
    assert reached(driver, mine) == NOT_READY
    start = time.perf_counter()
    view.wait()
    took = 1e3 * (time.perf_counter() - start)
    assert reached(driver, mine) == SUCCESS
    assert reached(driver, others) == NOT_READY, f"it waited for another stream, {took:.0f} ms"
    assert took < SECOND / 2
    assert view.__cuda_array_interface__["stream"] is None
    assert driver.words(view.ptr, 2) == [7, 7]


@pytest.mark.alone
def test_it_takes_at_most_10_microseconds_more_than_the_drivers_own_wait(
    driver, new_stream, words, note
):
    stream, block = new_stream(), words(COUNT)
    array = OnlyCai(interface(block, (COUNT,), stream=stream))
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
@WHERE
def test_captures_of_other_streams_go_on(where, mode, driver, new_stream, words, marks):
    captured, stream, block = new_stream(), new_stream(), words(COUNT)
    array = OnlyCai(interface(block, (COUNT,), stream=stream))
    with driver.capture(captured, mode) as capture:
        driver.spin(captured, 0.01)
        driver.spin(stream, MILLISECONDS)
        mine = marks(stream)
        view = to_cai(array)
        assert reached(driver, mine) == NOT_READY
        by(where, view.wait)
        assert reached(driver, mine) == SUCCESS
        driver.spin(captured, 0.01)
    assert capture.ended == SUCCESS
