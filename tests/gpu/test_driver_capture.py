"""What the simulated device claims of graph capture, shown on the real driver. Each name is the
claim.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

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
INVALIDATED = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
IMPLICIT = "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
# What the call says, and how the capture ends.
FINE = SUCCESS, SUCCESS
ISOLATED = "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", INVALIDATED
JOINED = IMPLICIT, INVALIDATED
UNSUPPORTED = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", INVALIDATED

MODES = [CAPTURE_GLOBAL, CAPTURE_RELAXED]


class Scene(NamedTuple):
    """A stream that is captured, one that is not, and an event that was recorded there."""

    driver: Driver
    captured: int
    other: int
    event: int

    def says(self, name: str, *arguments: object) -> str:
        return self.driver.result(name, *arguments)


def records_on_legacy(on: Scene) -> str:
    return on.says("cuEventRecord", on.event, LEGACY)


def waits_for_another_stream(on: Scene, flags: int = WAIT_DEFAULT) -> str:
    on.driver("cuEventRecord", on.event, on.other)
    return on.says("cuStreamWaitEvent", on.captured, on.event, flags)


def forks_to_the_legacy_stream(on: Scene) -> str:
    on.driver("cuEventRecord", on.event, on.captured)
    return on.says("cuStreamWaitEvent", LEGACY, on.event, WAIT_DEFAULT)


def tells(name: str, which: str) -> Callable[[Scene], str]:
    return lambda on: on.says(name, getattr(on, which), ctypes.byref(ctypes.c_uint64()))


def asks_for_the_event(on: Scene) -> str:
    return on.says("cuEventQuery", on.event)


def waits_with_the_host(on: Scene) -> str:
    return on.says("cuStreamSynchronize", on.other)


RELAXED, ON_BLOCKING = {"thread": CAPTURE_RELAXED}, {"flags": BLOCKING}
CALLS = {
    "a record on the legacy one beside a non-blocking one": (records_on_legacy, FINE),
    "a record on the legacy one beside a blocking one": (records_on_legacy, JOINED, ON_BLOCKING),
    "a wait for an uncaptured stream": (waits_for_another_stream, ISOLATED),
    "an external wait": (lambda on: waits_for_another_stream(on, WAIT_EXTERNAL), FINE),
    "a fork to the legacy stream": (forks_to_the_legacy_stream, JOINED),
    "a stream beside tells its flags": (tells("cuStreamGetFlags", "other"), FINE),
    "a stream beside tells its context": (tells("cuStreamGetCtx", "other"), FINE),
    "a stream beside tells its number": (tells("cuStreamGetId", "other"), FINE),
    "a captured stream tells its context": (tells("cuStreamGetCtx", "captured"), FINE),
    "a query of an event": (asks_for_the_event, UNSUPPORTED),
    "a query of an event in the relaxed mode": (asks_for_the_event, FINE, RELAXED),
    "a host wait for another stream": (waits_with_the_host, UNSUPPORTED),
    "a host wait for another stream in the relaxed mode": (waits_with_the_host, FINE, RELAXED),
}
for mode in MODES:
    for thread in MODES:
        for call in ("cuStreamGetFlags", "cuStreamGetId"):
            CALLS[f"{call} of a captured stream, modes {mode} and {thread}"] = (
                tells(call, "captured"),
                UNSUPPORTED,
                {"mode": mode, "thread": thread},
            )
    for flags in (BLOCKING, NON_BLOCKING):
        CALLS[f"a host wait for the context, mode {mode}, flags {flags}"] = (
            lambda on: on.says("cuCtxSynchronize"),
            UNSUPPORTED,
            {"mode": mode, "flags": flags, "thread": CAPTURE_RELAXED},
        )


@pytest.mark.parametrize("row", CALLS.values(), ids=CALLS)
def test_a_call_is_fine_or_spoils_the_capture(driver, event, new_stream, row):
    call, wanted, *asked = row
    how = {"flags": NON_BLOCKING, "mode": CAPTURE_GLOBAL, "thread": CAPTURE_GLOBAL}
    how |= dict(*asked)
    on = Scene(driver, new_stream(how["flags"]), new_stream(), event)
    driver("cuEventRecord", event, on.other)
    driver.synchronize()
    with driver.capture(on.captured, how["mode"]) as capture, driver.thread_mode(how["thread"]):
        said = call(on)
    assert (said, capture.ended) == wanted


@pytest.mark.parametrize("call", ["cuEventSynchronize", "cuCtxSynchronize"])
def test_a_host_wait_in_global_capture_mode_spoils_the_capture(driver, event, new_stream, call):
    driver("cuEventRecord", event, new_stream())
    driver.synchronize()
    with driver.capture(new_stream()) as capture:
        said = driver.result(call, *([event] if "Event" in call else []))
    assert (said, capture.ended) != FINE, "the capture survived a host wait"


def is_capturing(driver: Driver, stream: int) -> tuple[str, int]:
    status = INT(-1)
    return driver.result("cuStreamIsCapturing", stream, ctypes.byref(status)), status.value


def test_record_and_wait_between_two_streams_of_a_capture_forks_and_must_be_joined(
    driver, event, new_stream
):
    origin, fork = new_stream(), new_stream()

    def forked() -> None:
        driver("cuEventRecord", event, origin)
        driver("cuStreamWaitEvent", fork, event, WAIT_DEFAULT)
        driver.spin(fork, 0.01)

    with driver.capture(origin) as joined:
        forked()
        assert is_capturing(driver, fork) == (SUCCESS, 1)
        driver("cuEventRecord", event, fork)
        driver("cuStreamWaitEvent", origin, event, WAIT_DEFAULT)
    assert joined.ended == SUCCESS
    # An event that was used in a capture can be recorded again afterwards.
    driver("cuEventRecord", event, origin)
    driver("cuEventSynchronize", event)
    assert driver.result("cuEventQuery", event) == SUCCESS
    with driver.capture(origin) as unjoined:
        forked()
    assert unjoined.ended == "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"


@pytest.mark.parametrize("mode", MODES)
def test_pointer_attributes_and_is_capturing_are_always_safe(driver, new_stream, words, mode):
    origin, other, address = new_stream(), new_stream(), words(16)
    with driver.capture(origin, mode) as capture:
        kind = INT()
        assert driver.result("cuPointerGetAttribute", ctypes.byref(kind), 2, address) == SUCCESS
        assert is_capturing(driver, origin) == (SUCCESS, 1)
        assert is_capturing(driver, other) == (SUCCESS, 0)
    assert capture.ended == SUCCESS


def test_a_graph_waits_for_the_latest_record_of_its_external_event_whenever_it_runs(
    driver, event, new_stream
):
    origin, outside = new_stream(), new_stream()
    driver.spin(outside, 0.01)
    driver.synchronize()
    with driver.capture(origin, keep=True) as capture:
        driver("cuEventRecord", event, outside)
        driver("cuStreamWaitEvent", origin, event, WAIT_EXTERNAL)
        driver.spin(origin, 0.01)
    driver("cuGraphLaunch", capture.graph, origin)
    driver("cuStreamSynchronize", origin)
    driver.spin(outside, 300.0)
    driver("cuGraphLaunch", capture.graph, origin)
    driver("cuStreamSynchronize", origin)
    assert driver.is_pending(outside), "it waited though nothing was recorded since"
    driver("cuEventRecord", event, outside)
    driver("cuGraphLaunch", capture.graph, origin)
    assert driver.is_pending(origin)
    driver.synchronize()
    driver("cuGraphExecDestroy", capture.graph)


@pytest.mark.parametrize("thread", MODES)
def test_a_host_wait_for_another_context_spares_a_capture(driver, new_stream, thread):
    context = driver.get("cuCtxCreate_v2", 0, driver.device)
    driver.get("cuCtxPopCurrent_v2")
    try:
        with driver.capture(new_stream()) as capture:
            with driver.context(context), driver.thread_mode(thread):
                said = driver.result("cuCtxSynchronize")
    finally:
        driver.forget(context)
        driver("cuCtxDestroy_v2", context)
    assert (said, capture.ended) == FINE


def test_the_legacy_stream_beside_a_captured_blocking_one_answers_by_an_error_that_spoils_nothing(
    driver, new_stream
):
    other = new_stream()
    with driver.capture(new_stream(BLOCKING)) as capture:
        assert is_capturing(driver, LEGACY)[0] == IMPLICIT
        assert is_capturing(driver, other) == (SUCCESS, 0)
        assert is_capturing(driver, PER_THREAD) == (SUCCESS, 0)
    assert capture.ended == SUCCESS


def test_two_captures_that_are_joined_are_both_spoiled(driver, event, new_stream):
    one, other = new_stream(), new_stream()
    with driver.capture(one, CAPTURE_RELAXED) as first:
        with driver.capture(other, CAPTURE_RELAXED) as second:
            driver("cuEventRecord", event, one)
            said = driver.result("cuStreamWaitEvent", other, event, WAIT_DEFAULT)
    assert said == "CUDA_ERROR_STREAM_CAPTURE_MERGE"
    assert (first.ended, second.ended) == (INVALIDATED, INVALIDATED)


def test_each_capture_has_a_number_which_its_forks_share(driver, event, new_stream):
    one, fork, other = new_stream(), new_stream(), new_stream()

    def number(stream: int) -> tuple[int, int]:
        status, made = INT(-1), ctypes.c_uint64()
        addresses = (ctypes.byref(status), ctypes.byref(made), None, None, None)
        driver("cuStreamGetCaptureInfo_v2", stream, *addresses)
        return status.value, made.value

    with driver.capture(one, CAPTURE_RELAXED), driver.capture(other, CAPTURE_RELAXED):
        driver("cuEventRecord", event, one)
        driver("cuStreamWaitEvent", fork, event, WAIT_DEFAULT)
        assert number(one) == number(fork)
        assert number(one) != number(other)
        driver("cuEventRecord", event, fork)
        driver("cuStreamWaitEvent", one, event, WAIT_DEFAULT)


def test_an_event_is_made_and_recorded_outside_while_a_stream_is_captured(driver, new_stream):
    outside = new_stream()
    with driver.capture(new_stream()) as capture:
        made = driver.event()
        driver("cuEventRecord", made, outside)
    assert capture.ended == SUCCESS
    driver("cuEventDestroy_v2", made)


@pytest.mark.parametrize("call", ["cuMemAllocAsync", "cuMemFreeAsync"])
@pytest.mark.parametrize("thread", MODES)
@pytest.mark.parametrize("beside", [LEGACY, PER_THREAD, None])
def test_stream_ordered_memory_spoils_a_capture_of_another_stream_but_in_the_relaxed_mode(
    driver, new_stream, beside, thread, call
):
    stream = ctypes.c_void_p(new_stream() if beside is None else beside)
    block, size = ctypes.c_uint64(), ctypes.c_size_t(64)
    driver("cuMemAllocAsync", ctypes.byref(block), size, stream)
    freed = ctypes.c_uint64(block.value)
    driver.synchronize()
    with driver.capture(new_stream()) as capture, driver.thread_mode(thread):
        if call == "cuMemAllocAsync":
            said = driver.result(call, ctypes.byref(block), size, stream)
        else:
            said = driver.result(call, freed, stream)
    assert (said, capture.ended) == (FINE if thread == CAPTURE_RELAXED else UNSUPPORTED)
