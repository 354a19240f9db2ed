"""What the simulated device claims of the driver, shown on the real one. Each name is the claim.

No library and no bridge here: the driver's own calls on its own streams.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from another_thread import in_another_thread

from .driver import ADDRESS, BLOCKING, INT, LEGACY, NON_BLOCKING, PER_THREAD, Driver

COUNT = 1024
SPIN_MS = 5.0
ROUNDS = 50

# cuPointerGetAttribute's numbers
CONTEXT, MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL = 1, 2, 8, 9
HOST_MEMORY, DEVICE_MEMORY = 1, 2


class Ordered:
    """A late write on one stream and a read on another, with `edge` between: right or not?"""

    def __init__(self, driver: Driver, words: Callable[..., int]) -> None:
        self.driver = driver
        self.source, self.target = words(COUNT), words(COUNT)
        self.value = 0

    def is_right(
        self, producer: int, consumer: int, edge: Callable[[], object] = lambda: None
    ) -> bool:
        self.value += 1
        self.driver.synchronize()
        self.driver.spin(producer, SPIN_MS)
        self.driver.write(self.source, self.value, COUNT, producer)
        edge()
        self.driver.copy(self.target, self.source, 4 * COUNT, consumer)
        self.driver.synchronize()
        return self.driver.words(self.target, COUNT) == [self.value] * COUNT


@pytest.fixture
def stream_of(new_stream):
    """A stream of each kind."""
    return lambda kind: {
        "legacy": lambda: LEGACY,
        "per-thread": lambda: PER_THREAD,
        "blocking": lambda: new_stream(BLOCKING),
        "non-blocking": lambda: new_stream(NON_BLOCKING),
    }[kind]()


@pytest.fixture
def ordered(driver, words):
    found = Ordered(driver, words)
    found.is_right(LEGACY, LEGACY)  # everything loaded before anything is timed
    return found


def test_an_event_may_be_re_recorded_as_soon_as_the_wait_on_it_is_queued(
    driver, ordered, event, new_stream
):
    producer, consumer, idle = new_stream(), new_stream(), new_stream()

    def edge() -> None:
        driver("cuEventRecord", event, producer)
        driver("cuStreamWaitEvent", consumer, event, 0)
        driver("cuEventRecord", event, idle)

    assert all(ordered.is_right(producer, consumer, edge) for _ in range(20))
    assert not ordered.is_right(producer, consumer), "without the edge the read must come too early"


def test_a_record_in_one_context_is_waited_for_by_a_stream_of_another(driver, event):
    other = driver.get("cuCtxCreate_v2", 0, driver.device)
    driver.get("cuCtxPopCurrent_v2")
    try:
        consumer = driver.stream()
        with driver.context(other):
            producer, mark = driver.stream(), driver.event()
            driver.spin(producer, 0.01)
            driver("cuCtxSynchronize")
            driver.spin(producer, 100.0)
            driver("cuEventRecord", mark, producer)
        assert driver.current_context() == driver.primary
        driver("cuStreamWaitEvent", consumer, mark, 0)
        assert driver.is_pending(consumer)
        # An event belongs to its context: one of the primary context cannot be recorded over there.
        assert driver.result("cuEventRecord", event, producer) in (
            "CUDA_ERROR_INVALID_HANDLE",
            "CUDA_ERROR_INVALID_CONTEXT",
        )
        driver("cuStreamSynchronize", consumer)
        driver("cuStreamDestroy_v2", consumer)
    finally:
        driver.forget(other)
        driver("cuCtxDestroy_v2", other)


class On(NamedTuple):
    """The streams of a row: one that writes, one that reads, and an idle one."""

    driver: Driver
    event: int
    producer: int
    consumer: int
    idle: int

    def record(self, stream: int) -> None:
        self.driver("cuEventRecord", self.event, stream)

    def wait(self, stream: int) -> None:
        self.driver("cuStreamWaitEvent", stream, self.event, 0)

    def by(self, recorded: int) -> None:
        """An event on a stream, which the reader waits for."""
        self.record(recorded)
        self.wait(self.consumer)


EDGES: dict[str, Callable[[On], object]] = {
    "nothing": lambda on: None,
    "event on legacy": lambda on: on.by(LEGACY),
    "event on idle": lambda on: on.by(on.idle),
    "legacy recorded": lambda on: on.record(LEGACY),
    # The legacy stream's own record stands for what blocking streams do, too.
    "legacy waits for itself": lambda on: (on.record(LEGACY), on.wait(LEGACY)),
    "legacy waits for writer": lambda on: (on.record(on.producer), on.wait(LEGACY)),
    "host waits for idle": lambda on: on.driver("cuStreamSynchronize", on.idle),
    "host waits for legacy": lambda on: on.driver("cuStreamSynchronize", LEGACY),
}


# Who writes, who reads, what is between the two, and the idle stream: right or not?
@pytest.mark.parametrize(
    ("writes", "reads", "edge", "idle", "is_right"),
    [
        ("blocking", "legacy", "nothing", "", True),
        ("legacy", "blocking", "nothing", "", True),
        ("non-blocking", "legacy", "nothing", "", False),
        ("legacy", "non-blocking", "nothing", "", False),
        ("blocking", "non-blocking", "event on legacy", "", True),
        ("non-blocking", "non-blocking", "event on legacy", "", False),
        ("legacy", "non-blocking", "host waits for idle", "blocking", False),
        ("blocking", "non-blocking", "host waits for legacy", "", True),
        ("blocking", "blocking", "nothing", "", False),
        ("blocking", "blocking", "legacy recorded", "", True),
        ("blocking", "blocking", "legacy waits for itself", "", True),
        ("non-blocking", "blocking", "legacy waits for writer", "", True),
        ("non-blocking", "blocking", "nothing", "", False),
        ("legacy", "non-blocking", "event on idle", "blocking", True),
        ("legacy", "non-blocking", "event on idle", "per-thread", True),
        ("legacy", "non-blocking", "event on idle", "non-blocking", False),
    ],
)
def test_the_legacy_stream_orders_blocking_streams_and_no_others(
    driver, ordered, event, stream_of, writes, reads, edge, idle, is_right
):
    on = On(driver, event, stream_of(writes), stream_of(reads), stream_of(idle) if idle else 0)
    runs = ROUNDS if is_right else 1
    for _ in range(runs):
        assert ordered.is_right(on.producer, on.consumer, lambda: EDGES[edge](on)) == is_right


def test_a_record_on_the_legacy_stream_orders_the_per_thread_streams_of_two_threads(driver, event):
    """What the end of a hand-over between two threads' own streams rests on, called by a third."""

    def is_waited_for(recorded: bool) -> bool:
        queued, ordered, answers = threading.Event(), threading.Event(), list[bool]()

        def producer() -> None:
            driver.use_primary()
            driver.spin(PER_THREAD, 100.0)
            queued.set()

        def consumer() -> None:
            driver.use_primary()
            ordered.wait(10)
            answers.append(driver.is_pending(PER_THREAD))

        threads = [threading.Thread(target=target) for target in (producer, consumer)]
        for thread in threads:
            thread.start()
        assert queued.wait(10)
        if recorded:
            driver("cuEventRecord", event, LEGACY)
        ordered.set()
        for thread in threads:
            thread.join()
        driver.synchronize()
        return answers[0]

    assert is_waited_for(recorded=True)
    assert not is_waited_for(recorded=False)


@pytest.mark.alone
@pytest.mark.parametrize("call", ["cuStreamSynchronize", "cuStreamQuery"])
@pytest.mark.parametrize("kind", ["per-thread", "blocking", "non-blocking"])
def test_the_host_waits_with_the_idle_legacy_stream_for_the_blocking_ones(
    driver, stream_of, kind, call
):
    busy = stream_of(kind)
    driver.synchronize()
    driver.spin(busy, 100.0)
    began = time.perf_counter()
    if call == "cuStreamQuery":
        waits = driver.result(call, LEGACY) == "CUDA_ERROR_NOT_READY"
    else:
        driver(call, LEGACY)
        waits = time.perf_counter() - began > 0.03
    driver.synchronize()
    assert waits == (kind != "non-blocking")


def test_a_stream_tells_its_context_and_whether_it_is_blocking(driver, new_stream):
    for flags in (BLOCKING, NON_BLOCKING):
        stream = new_stream(flags)
        assert driver.get_of("cuStreamGetFlags", stream, kind=ctypes.c_uint) == flags
        assert driver.get_of("cuStreamGetCtx", stream) == driver.primary


def test_a_later_stream_may_have_a_destroyed_ones_handle_but_never_its_number(driver):
    for flags in (BLOCKING, NON_BLOCKING):
        passed_on, kept = 0, []
        for tries in range(500):
            first = driver.stream(flags)
            number = driver.get_of("cuStreamGetId", first, ctypes.c_ulonglong)
            assert number == driver.get_of("cuStreamGetId", first, ctypes.c_ulonglong) != 0
            driver.spin(first, 2.0)
            driver("cuStreamDestroy_v2", first)
            # What was freed beside may be taken first, so each is kept.
            kept.append(driver.stream(flags))
            passed_on += kept[-1] == first
            assert driver.get_of("cuStreamGetId", kept[-1], ctypes.c_ulonglong) != number
            if passed_on and tries >= 20:
                break
        for stream in kept:
            driver("cuStreamDestroy_v2", stream)
        assert passed_on, "the driver passes no handle on: the tests of that test nothing"
    driver.synchronize()


def test_the_per_thread_streams_of_two_threads_are_two_streams(driver):
    driver.spin(PER_THREAD, 100.0)
    assert driver.is_pending(PER_THREAD)

    def other() -> None:
        driver.use_primary()
        assert not driver.is_pending(PER_THREAD)

    in_another_thread(other)
    assert driver.is_pending(PER_THREAD)


def attribute(driver: Driver, address: int, number: int, kind: type = INT) -> int | str:
    found = kind()
    result = driver.result("cuPointerGetAttribute", ctypes.byref(found), number, address)
    return int(found.value or 0) if result == "CUDA_SUCCESS" else result


def attributes(driver: Driver, address: int) -> tuple[str, int, int, int]:
    """One call for all: its result, the memory type, whether managed, the device's ordinal."""
    kind, managed, ordinal = INT(), INT(), INT(-7)
    numbers = (INT * 3)(MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL)
    places = (ctypes.c_void_p * 3)(*(ctypes.addressof(place) for place in (kind, managed, ordinal)))
    result = driver.result("cuPointerGetAttributes", 3, numbers, places, address)
    return result, kind.value, managed.value, ordinal.value


def test_pointer_attributes_tell_device_pinned_managed_and_unknown_memory_apart(driver, words):
    device = words(COUNT)
    managed = driver.get("cuMemAllocManaged", 4 * COUNT, 1, kind=ADDRESS)
    pinned = driver.get("cuMemHostAlloc", 4 * COUNT, 0)
    host = ctypes.create_string_buffer(4 * COUNT)

    def look() -> None:
        for inside in (0, 4, 4 * COUNT - 1):
            assert attributes(driver, device + inside) == ("CUDA_SUCCESS", DEVICE_MEMORY, 0, 0)
            assert attributes(driver, managed + inside)[0::2] == ("CUDA_SUCCESS", 1)
            assert attributes(driver, pinned + inside)[:3] == ("CUDA_SUCCESS", HOST_MEMORY, 0)
        result, kind, is_managed, ordinal = attributes(driver, ctypes.addressof(host))
        assert (result, kind, is_managed) == ("CUDA_SUCCESS", 0, 0)
        assert ordinal == -2
        assert (
            attribute(driver, ctypes.addressof(host), DEVICE_ORDINAL) == "CUDA_ERROR_INVALID_VALUE"
        )
        assert attribute(driver, device, CONTEXT, ctypes.c_void_p) == driver.primary

    def without_context() -> None:
        assert driver.current_context() == 0
        look()
        assert driver.current_context() == 0

    try:
        look()
        in_another_thread(without_context)
    finally:
        driver("cuMemFree_v2", managed)
        driver("cuMemFreeHost", pinned)
