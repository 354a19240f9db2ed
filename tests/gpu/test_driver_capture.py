"""What the simulated device claims of graph capture, shown on the real driver. Each name is the
claim.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from .driver import (
    BLOCKING,
    CAPTURE_GLOBAL,
    CAPTURE_RELAXED,
    INT,
    LEGACY,
    NON_BLOCKING,
    PER_THREAD,
    WAIT_DEFAULT,
    WAIT_EXTERNAL,
    Driver,
)

SUCCESS = "CUDA_SUCCESS"
ISOLATION = "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"
INVALIDATED = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
IMPLICIT = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
MERGE = "CUDA_ERROR_STREAM_CAPTURE_MERGE"
UNJOINED = "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
UNSUPPORTED = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"


@pytest.fixture
def event(driver: Driver) -> Iterator[int]:
    made = driver.event()
    yield made
    driver.synchronize()
    driver("cuEventDestroy_v2", made)


class Capture:
    """How a capture ended: the name of `cuStreamEndCapture`'s result."""

    ended = ""


Capturing = Callable[..., AbstractContextManager[Capture]]


@pytest.fixture
def capture(driver: Driver) -> Capturing:
    @contextmanager
    def capturing(stream: int, mode: int = CAPTURE_GLOBAL) -> Iterator[Capture]:
        driver.spin(stream, 0.01)  # the kernel is loaded before the capture
        driver("cuStreamSynchronize", stream)
        driver("cuStreamBeginCapture_v2", stream, mode)
        outcome, graph = Capture(), ctypes.c_void_p()
        try:
            yield outcome
        finally:
            outcome.ended = driver.result("cuStreamEndCapture", stream, ctypes.byref(graph))
            if graph.value:
                driver("cuGraphDestroy", graph.value)

    return capturing


def is_capturing(driver: Driver, stream: int) -> tuple[str, int]:
    status = INT(-1)
    return driver.result("cuStreamIsCapturing", stream, ctypes.byref(status)), status.value


def test_record_and_wait_between_two_streams_of_a_capture_forks_and_must_be_joined(
    driver: Driver, event: int, new_stream: Callable[..., int], capture: Capturing
) -> None:
    origin, fork = new_stream(), new_stream()

    def forked() -> None:
        driver("cuEventRecord", event, origin)
        driver("cuStreamWaitEvent", fork, event, WAIT_DEFAULT)
        driver.spin(fork, 0.01)

    with capture(origin) as joined:
        forked()
        assert is_capturing(driver, fork) == (SUCCESS, 1)
        driver("cuEventRecord", event, fork)
        driver("cuStreamWaitEvent", origin, event, WAIT_DEFAULT)
    assert joined.ended == SUCCESS

    with capture(origin) as unjoined:
        forked()
    assert unjoined.ended == UNJOINED


def test_an_event_used_in_a_capture_can_be_recorded_again_afterwards(
    driver: Driver, event: int, new_stream: Callable[..., int], capture: Capturing
) -> None:
    origin, fork = new_stream(), new_stream()
    with capture(origin) as outcome:
        driver("cuEventRecord", event, origin)
        driver("cuStreamWaitEvent", fork, event, WAIT_DEFAULT)
        driver("cuEventRecord", event, fork)
        driver("cuStreamWaitEvent", origin, event, WAIT_DEFAULT)
    assert outcome.ended == SUCCESS
    driver("cuEventRecord", event, origin)
    driver("cuEventSynchronize", event)
    assert driver.result("cuEventQuery", event) == SUCCESS


@pytest.mark.parametrize(
    ("wait", "said", "ended"),
    [(WAIT_DEFAULT, ISOLATION, INVALIDATED), (WAIT_EXTERNAL, SUCCESS, SUCCESS)],
    ids=["default", "external"],
)
def test_a_wait_for_an_uncaptured_stream_spoils_the_capture_unless_it_is_an_external_one(
    driver: Driver,
    event: int,
    new_stream: Callable[..., int],
    capture: Capturing,
    wait: int,
    said: str,
    ended: str,
) -> None:
    origin, uncaptured = new_stream(), new_stream()
    with capture(origin) as outcome:
        assert driver.result("cuEventRecord", event, uncaptured) == SUCCESS
        assert driver.result("cuStreamWaitEvent", origin, event, wait) == said
    assert outcome.ended == ended


def test_a_record_on_the_legacy_stream_beside_a_capture_of_a_non_blocking_stream_is_legal(
    driver: Driver, event: int, new_stream: Callable[..., int], capture: Capturing
) -> None:
    with capture(new_stream()) as outcome:
        assert driver.result("cuEventRecord", event, LEGACY) == SUCCESS
    assert outcome.ended == SUCCESS


@pytest.mark.parametrize(
    "call", ["cuEventQuery", "cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"]
)
def test_a_query_or_a_host_wait_in_global_capture_mode_spoils_the_capture(
    driver: Driver,
    event: int,
    new_stream: Callable[..., int],
    capture: Capturing,
    call: str,
) -> None:
    origin, other = new_stream(), new_stream()
    driver("cuEventRecord", event, other)
    driver.synchronize()
    arguments = {
        "cuEventQuery": (event,),
        "cuEventSynchronize": (event,),
        "cuStreamSynchronize": (other,),
    }
    with capture(origin) as outcome:
        said = driver.result(call, *arguments.get(call, ()))
    if call == "cuEventQuery":
        assert (said, outcome.ended) == (UNSUPPORTED, INVALIDATED)
    else:
        assert (said, outcome.ended) != (SUCCESS, SUCCESS), "the capture survived a host wait"


def test_an_event_query_in_global_capture_mode_is_fine_with_the_thread_in_relaxed_mode(
    driver: Driver, event: int, new_stream: Callable[..., int], capture: Capturing
) -> None:
    driver("cuEventRecord", event, LEGACY)
    driver.synchronize()
    with capture(new_stream()) as outcome:
        mode = INT(CAPTURE_RELAXED)
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        said = driver.result("cuEventQuery", event)
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    assert (said, outcome.ended) == (SUCCESS, SUCCESS)


@pytest.mark.parametrize("mode", [CAPTURE_GLOBAL, CAPTURE_RELAXED])
def test_pointer_attributes_and_is_capturing_are_always_safe(
    driver: Driver,
    new_stream: Callable[..., int],
    words: Callable[..., int],
    capture: Capturing,
    mode: int,
) -> None:
    origin, other, address = new_stream(), new_stream(), words(16)
    with capture(origin, mode) as outcome:
        kind = INT()
        assert driver.result("cuPointerGetAttribute", ctypes.byref(kind), 2, address) == SUCCESS
        assert is_capturing(driver, origin) == (SUCCESS, 1)
        assert is_capturing(driver, other) == (SUCCESS, 0)
    assert outcome.ended == SUCCESS


@pytest.mark.parametrize("call", ["cuStreamGetFlags", "cuStreamGetCtx", "cuStreamGetId"])
def test_a_stream_beside_a_capture_tells_its_flags_its_context_and_its_number(
    driver: Driver, new_stream: Callable[..., int], capture: Capturing, call: str
) -> None:
    with capture(new_stream()) as outcome:
        said = driver.result(call, new_stream(), ctypes.byref(ctypes.c_uint64()))
    assert (said, outcome.ended) == (SUCCESS, SUCCESS)


def test_a_captured_stream_tells_its_context(
    driver: Driver, new_stream: Callable[..., int], capture: Capturing
) -> None:
    origin = new_stream()
    with capture(origin) as outcome:
        said = driver.result("cuStreamGetCtx", origin, ctypes.byref(ctypes.c_uint64()))
    assert (said, outcome.ended) == (SUCCESS, SUCCESS)


@pytest.mark.parametrize("thread", [CAPTURE_GLOBAL, CAPTURE_RELAXED])
@pytest.mark.parametrize("mode", [CAPTURE_GLOBAL, CAPTURE_RELAXED])
@pytest.mark.parametrize("call", ["cuStreamGetFlags", "cuStreamGetId"])
def test_asking_a_captured_stream_for_its_flags_or_its_number_spoils_the_capture(
    driver: Driver,
    new_stream: Callable[..., int],
    capture: Capturing,
    call: str,
    mode: int,
    thread: int,
) -> None:
    origin, threads = new_stream(), INT(thread)
    with capture(origin, mode) as outcome:
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(threads))
        said = driver.result(call, origin, ctypes.byref(ctypes.c_uint64()))
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(threads))
    assert (said, outcome.ended) == (UNSUPPORTED, INVALIDATED)


def test_a_graph_waits_for_the_latest_record_of_its_external_event_whenever_it_runs(
    driver: Driver, event: int, new_stream: Callable[..., int]
) -> None:
    origin, outside = new_stream(), new_stream()
    for stream in (origin, outside):
        driver.spin(stream, 0.01)
    driver.synchronize()
    made = ctypes.c_void_p()
    driver("cuStreamBeginCapture_v2", origin, CAPTURE_GLOBAL)
    driver("cuEventRecord", event, outside)
    driver("cuStreamWaitEvent", origin, event, WAIT_EXTERNAL)
    driver.spin(origin, 0.01)
    driver("cuStreamEndCapture", origin, ctypes.byref(made))
    graph = driver.get("cuGraphInstantiateWithFlags", made.value, 0)
    driver("cuGraphLaunch", graph, origin)
    driver("cuStreamSynchronize", origin)
    driver.spin(outside, 100.0)
    driver("cuGraphLaunch", graph, origin)
    assert not driver.is_pending(origin), "nothing was recorded since"
    driver("cuEventRecord", event, outside)
    driver("cuGraphLaunch", graph, origin)
    assert driver.is_pending(origin)
    driver.synchronize()
    driver("cuGraphExecDestroy", graph)
    driver("cuGraphDestroy", made.value)


@pytest.mark.parametrize("mode", [CAPTURE_GLOBAL, CAPTURE_RELAXED])
@pytest.mark.parametrize("flags", [BLOCKING, NON_BLOCKING])
def test_a_host_wait_for_the_context_spoils_a_capture_in_every_mode_of_the_thread(
    driver: Driver, new_stream: Callable[..., int], capture: Capturing, mode: int, flags: int
) -> None:
    with capture(new_stream(flags), mode) as outcome:
        before = INT(CAPTURE_RELAXED)
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(before))
        assert driver.result("cuCtxSynchronize") == UNSUPPORTED
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(before))
    assert outcome.ended == INVALIDATED


@pytest.mark.parametrize("relaxed", [False, True])
def test_a_host_wait_for_another_context_spares_a_capture(
    driver: Driver, new_stream: Callable[..., int], capture: Capturing, relaxed: bool
) -> None:
    made = ctypes.c_void_p()
    driver("cuCtxCreate_v2", ctypes.byref(made), 0, driver.get("cuDeviceGet", 0, kind=INT))
    driver.get("cuCtxPopCurrent_v2")
    context = int(made.value or 0)
    try:
        with capture(new_stream()) as outcome, driver.context(context):
            before = INT(CAPTURE_RELAXED if relaxed else CAPTURE_GLOBAL)
            driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(before))
            said = driver.result("cuCtxSynchronize")
            driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(before))
    finally:
        driver.forget(context)
        driver("cuCtxDestroy_v2", context)
    assert (said, outcome.ended) == (SUCCESS, SUCCESS)


def test_the_legacy_stream_beside_a_captured_blocking_one_answers_by_an_error_that_spoils_nothing(
    driver: Driver, new_stream: Callable[..., int], capture: Capturing
) -> None:
    other = new_stream()
    with capture(new_stream(BLOCKING)) as outcome:
        assert is_capturing(driver, LEGACY)[0] == IMPLICIT
        assert is_capturing(driver, other) == (SUCCESS, 0)
        assert is_capturing(driver, PER_THREAD) == (SUCCESS, 0)
    assert outcome.ended == SUCCESS


def test_a_record_on_the_legacy_stream_beside_a_captured_blocking_one_spoils_the_capture(
    driver: Driver, event: int, new_stream: Callable[..., int], capture: Capturing
) -> None:
    with capture(new_stream(BLOCKING)) as outcome:
        assert driver.result("cuEventRecord", event, LEGACY) == IMPLICIT
    assert outcome.ended == INVALIDATED


def test_work_that_is_captured_cannot_fork_to_the_legacy_stream(
    driver: Driver, event: int, new_stream: Callable[..., int], capture: Capturing
) -> None:
    origin = new_stream()
    with capture(origin) as outcome:
        driver("cuEventRecord", event, origin)
        assert driver.result("cuStreamWaitEvent", LEGACY, event, WAIT_DEFAULT) == IMPLICIT
    assert outcome.ended == INVALIDATED


def test_two_captures_that_are_joined_are_both_spoiled(
    driver: Driver, event: int, new_stream: Callable[..., int], capture: Capturing
) -> None:
    one, other = new_stream(), new_stream()
    with capture(one, CAPTURE_RELAXED) as first, capture(other, CAPTURE_RELAXED) as second:
        driver("cuEventRecord", event, one)
        assert driver.result("cuStreamWaitEvent", other, event, WAIT_DEFAULT) == MERGE
    assert (first.ended, second.ended) == (INVALIDATED, INVALIDATED)


def test_each_capture_has_a_number_which_its_forks_share(
    driver: Driver, event: int, new_stream: Callable[..., int], capture: Capturing
) -> None:
    one, fork, other = new_stream(), new_stream(), new_stream()

    def number(stream: int) -> tuple[int, int]:
        status, made = INT(-1), ctypes.c_uint64()
        addresses = (ctypes.byref(status), ctypes.byref(made), None, None, None)
        driver("cuStreamGetCaptureInfo_v2", stream, *addresses)
        return status.value, made.value

    with capture(one, CAPTURE_RELAXED), capture(other, CAPTURE_RELAXED):
        driver("cuEventRecord", event, one)
        driver("cuStreamWaitEvent", fork, event, WAIT_DEFAULT)
        assert number(one) == number(fork)
        assert number(one) != number(other)
        driver("cuEventRecord", event, fork)
        driver("cuStreamWaitEvent", one, event, WAIT_DEFAULT)


def test_an_event_is_made_and_recorded_outside_while_a_stream_is_captured(
    driver: Driver, new_stream: Callable[..., int], capture: Capturing
) -> None:
    outside = new_stream()
    with capture(new_stream()) as outcome:
        made = driver.event()
        driver("cuEventRecord", made, outside)
    assert outcome.ended == SUCCESS
    driver("cuEventDestroy_v2", made)


@pytest.mark.parametrize("relaxed", [False, True])
def test_the_host_waits_for_another_stream_in_relaxed_mode_without_spoiling_a_capture(
    driver: Driver, new_stream: Callable[..., int], capture: Capturing, relaxed: bool
) -> None:
    other = new_stream()
    with capture(new_stream()) as outcome:
        before = INT(CAPTURE_RELAXED if relaxed else CAPTURE_GLOBAL)
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(before))
        result = driver.result("cuStreamSynchronize", other)
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(before))
    assert result == (SUCCESS if relaxed else UNSUPPORTED)
    assert outcome.ended == (SUCCESS if relaxed else INVALIDATED)


@pytest.mark.parametrize("call", ["cuMemAllocAsync", "cuMemFreeAsync"])
@pytest.mark.parametrize("is_relaxed", [True, False])
@pytest.mark.parametrize("beside", [LEGACY, PER_THREAD, None])
def test_stream_ordered_memory_spoils_a_capture_of_another_stream_but_in_the_relaxed_mode(
    driver: Driver,
    new_stream: Callable[..., int],
    capture: Capturing,
    beside: int | None,
    is_relaxed: bool,
    call: str,
) -> None:
    stream = ctypes.c_void_p(new_stream() if beside is None else beside)
    block, size = ctypes.c_uint64(), ctypes.c_size_t(64)
    driver("cuMemAllocAsync", ctypes.byref(block), size, stream)
    freed = block.value
    driver.synchronize()
    with capture(new_stream()) as outcome:
        mode = ctypes.c_uint(CAPTURE_RELAXED if is_relaxed else CAPTURE_GLOBAL)
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        if call == "cuMemAllocAsync":
            result = driver.result(call, ctypes.byref(block), size, stream)
        else:
            result = driver.result(call, ctypes.c_uint64(freed), stream)
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    wanted = (SUCCESS, SUCCESS) if is_relaxed else (UNSUPPORTED, INVALIDATED)
    assert (result, outcome.ended) == wanted
