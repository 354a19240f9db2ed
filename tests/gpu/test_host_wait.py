"""The host's wait for all work, on the real driver: what it waits for, and what it leaves alone.

The bridge unloads a module that was loaded before. What waits as well, and would not do, is shown
beside it: freeing memory holds up every launch of other threads. That ``cuCtxSynchronize`` ends
every capture is in test_driver_capture.py.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from another_thread import in_another_thread
from cai_bridge import from_cai, to_cai

from . import capsules
from .driver import (
    BLOCKING,
    CAPTURE_GLOBAL,
    CAPTURE_RELAXED,
    CAPTURE_THREAD_LOCAL,
    INT,
    LEGACY,
    NON_BLOCKING,
    PER_THREAD,
    Driver,
)

SUCCESS, NOT_READY = "CUDA_SUCCESS", "CUDA_ERROR_NOT_READY"
MODES = pytest.mark.parametrize(
    "mode",
    [CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED],
    ids=["global", "local", "relaxed"],
)
FLAGS = pytest.mark.parametrize("flags", [BLOCKING, NON_BLOCKING], ids=["blocking", "non-blocking"])
WHERE = pytest.mark.parametrize("where", ["this thread", "another thread"])
COUNT = 1024
MILLISECONDS = 40.0
CHILD = Path(__file__).with_name("host_wait_child.py")

# As the bridge's own (src/driver/cuda/wait.rs).
EMPTY_PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry empty() { ret; }
"""

# `until` runs until the word at `flag` is no longer 0, which it says by 1 at `seen`, or until the
# time is over, which it says by 2. `set` writes the flag.
SIGNAL_PTX = b"""
.version 7.0
.target sm_80
.address_size 64

.visible .entry until(.param .u64 flag, .param .u64 seen, .param .u64 nanoseconds)
{
    .reg .u64 %flag, %seen, %want, %start, %now, %spent;
    .reg .u32 %value;
    .reg .pred %is_set, %over;
    ld.param.u64 %flag, [flag];
    ld.param.u64 %seen, [seen];
    ld.param.u64 %want, [nanoseconds];
    mov.u64 %start, %globaltimer;
again:
    ld.volatile.global.u32 %value, [%flag];
    setp.ne.u32 %is_set, %value, 0;
    @%is_set bra saw;
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %start;
    setp.gt.u64 %over, %spent, %want;
    @!%over bra again;
    mov.u32 %value, 2;
    st.volatile.global.u32 [%seen], %value;
    ret;
saw:
    mov.u32 %value, 1;
    st.volatile.global.u32 [%seen], %value;
    ret;
}

.visible .entry set(.param .u64 flag)
{
    .reg .u64 %flag;
    .reg .u32 %value;
    ld.param.u64 %flag, [flag];
    mov.u32 %value, 1;
    st.volatile.global.u32 [%flag], %value;
    ret;
}
"""
LIMIT = 1_000_000_000  # nanoseconds: the kernel ends by itself, so nothing hangs


@contextmanager
def relaxed(driver: Driver) -> Iterator[None]:
    mode = INT(CAPTURE_RELAXED)
    driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


@pytest.fixture
def unload(driver: Driver) -> Callable[[], None]:
    """Unloads a module that was loaded while nothing was pending, as the bridge waits."""
    driver.synchronize()
    module = driver.get("cuModuleLoadData", EMPTY_PTX)

    def unloading() -> None:
        with driver.context(), relaxed(driver):
            driver("cuModuleUnload", module)

    return unloading


@pytest.fixture
def free(driver: Driver) -> Callable[[], None]:
    """Frees a byte of memory, which the bridge falls back to."""

    def freeing() -> None:
        with driver.context(), relaxed(driver):
            driver("cuMemFree_v2", driver.allocate(1))

    return freeing


@pytest.fixture
def marks(driver: Driver) -> Iterator[Callable[[int], int]]:
    """Records events, and destroys them when the test ends."""
    made: list[int] = []

    def mark(stream: int) -> int:
        made.append(driver.event())
        driver("cuEventRecord", made[-1], stream)
        return made[-1]

    yield mark
    driver.synchronize()
    for event in made:
        driver("cuEventDestroy_v2", event)


def reached(driver: Driver, event: int) -> str:
    with relaxed(driver):
        return driver.result("cuEventQuery", event)


def by(where: str, act: Callable[[], object]) -> None:
    """Act, in this thread or in another one."""
    if where == "this thread":
        act()
    else:
        in_another_thread(act)


class Ended:
    """How a capture ended: the name of `cuStreamEndCapture`'s result."""

    said = ""


@contextmanager
def capturing(driver: Driver, stream: int, mode: int) -> Iterator[Ended]:
    driver.spin(stream, 0.01)  # the kernel is loaded before the capture
    driver.synchronize()
    driver("cuStreamBeginCapture_v2", stream, mode)
    ended, graph = Ended(), ctypes.c_void_p()
    try:
        driver.spin(stream, 0.01)
        yield ended
        driver.spin(stream, 0.01)
    finally:
        ended.said = driver.result("cuStreamEndCapture", stream, ctypes.byref(graph))
        if graph.value:
            driver("cuGraphDestroy", graph.value)


# --- what it waits for ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["unload", "free"])
@pytest.mark.parametrize("on", ["non-blocking", "blocking", "legacy", "per-thread", "destroyed"])
def test_it_waits_for_work_on(
    on: str,
    how: str,
    driver: Driver,
    new_stream: Callable[..., int],
    marks: Callable[[int], int],
    request: pytest.FixtureRequest,
) -> None:
    wait = request.getfixturevalue(how)
    stream = {"legacy": LEGACY, "per-thread": PER_THREAD}.get(on, 0)
    if on == "destroyed":
        stream = driver.stream()
    stream = stream or new_stream(BLOCKING if on == "blocking" else NON_BLOCKING)
    driver.spin(stream, 0.01)
    driver.synchronize()
    driver.spin(stream, MILLISECONDS)
    done = marks(stream)
    if on == "destroyed":
        driver("cuStreamDestroy_v2", stream)
    assert reached(driver, done) == NOT_READY
    wait()
    assert reached(driver, done) == SUCCESS


def test_it_waits_for_a_function_of_the_host_and_for_the_work_behind_it(
    driver: Driver,
    new_stream: Callable[..., int],
    words: Callable[..., int],
    marks: Callable[[int], int],
    unload: Callable[[], None],
) -> None:
    stream, block, ran = new_stream(), words(COUNT), list[bool]()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def late(_: object) -> None:
        time.sleep(1e-3 * MILLISECONDS)
        ran.append(True)

    driver("cuLaunchHostFunc", stream, ctypes.cast(late, ctypes.c_void_p), None)
    driver.write(block, 7, COUNT, stream)
    done = marks(stream)
    assert not ran
    unload()
    assert (ran, reached(driver, done)) == ([True], SUCCESS)
    assert driver.words(block, 2) == [7, 7]


@pytest.mark.parametrize("to", ["device", "host"])
def test_it_waits_for_copies(
    to: str,
    driver: Driver,
    new_stream: Callable[..., int],
    words: Callable[..., int],
    marks: Callable[[int], int],
    unload: Callable[[], None],
) -> None:
    stream, source, size = new_stream(), words(COUNT), 4 * COUNT
    host = driver.get("cuMemHostAlloc", size, 0)
    try:
        driver.spin(stream, MILLISECONDS)
        driver.write(source, 7, COUNT, stream)
        if to == "device":
            driver.copy(words(COUNT), source, size, stream)
        else:
            driver("cuMemcpyAsync", host, source, size, stream)
        done = marks(stream)
        assert reached(driver, done) == NOT_READY
        unload()
        assert reached(driver, done) == SUCCESS
        if to == "host":
            assert (ctypes.c_uint32 * COUNT).from_address(host)[COUNT - 1] == 7
    finally:
        driver.synchronize()
        driver("cuMemFreeHost", host)


def test_it_waits_for_memory_that_is_freed_in_the_order_of_a_stream(
    driver: Driver,
    new_stream: Callable[..., int],
    marks: Callable[[int], int],
    unload: Callable[[], None],
) -> None:
    stream, pointer = new_stream(), ctypes.c_uint64()
    driver("cuMemAllocAsync", ctypes.byref(pointer), 1 << 20, stream)
    driver.spin(stream, MILLISECONDS)
    driver("cuMemFreeAsync", pointer.value, stream)
    done = marks(stream)
    assert reached(driver, done) == NOT_READY
    unload()
    assert reached(driver, done) == SUCCESS


# --- what it leaves alone -------------------------------------------------------------------------


@MODES
@FLAGS
@WHERE
def test_it_ends_no_capture(
    where: str,
    flags: int,
    mode: int,
    driver: Driver,
    new_stream: Callable[..., int],
    marks: Callable[[int], int],
    unload: Callable[[], None],
) -> None:
    captured, pending = new_stream(flags), new_stream()
    with capturing(driver, captured, mode) as ended:
        driver.spin(pending, MILLISECONDS)
        done = marks(pending)
        by(where, unload)
        assert reached(driver, done) == SUCCESS
    assert ended.said == SUCCESS


@pytest.mark.parametrize(("how", "seen"), [("unload", 1), ("free", 2)])
def test_other_threads_launch_meanwhile_but_not_while_memory_is_freed(
    how: str,
    seen: int,
    driver: Driver,
    new_stream: Callable[..., int],
    words: Callable[..., int],
    request: pytest.FixtureRequest,
) -> None:
    spin = held_by_a_flag(driver, new_stream, words)
    assert spin(request.getfixturevalue(how)) == seen


def held_by_a_flag(
    driver: Driver, new_stream: Callable[..., int], words: Callable[..., int], on: int | None = None
) -> Callable[[Callable[[], object]], int]:
    """A function that has a thread wait while a kernel spins, launches the kernel that ends it, and
    returns what the first one saw.
    """
    stream, other, block = on or new_stream(), new_stream(), words(2)
    until, set_ = (driver.kernel(SIGNAL_PTX, name) for name in (b"until", b"set"))
    # Both are there before anything is pending: to load a kernel waits, too.
    driver.launch(set_, other, block)
    driver.synchronize()
    driver.launch(until, stream, block, block + 4, LIMIT)
    driver.synchronize()
    driver.put(block, bytes(8))

    def spin(wait: Callable[[], object]) -> int:
        driver.launch(until, stream, block, block + 4, LIMIT)
        begun, failed = threading.Event(), list[BaseException]()

        def waiting() -> None:
            begun.set()
            try:
                wait()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=waiting)
        thread.start()
        begun.wait()
        time.sleep(0.05)
        waits = thread.is_alive()
        driver.launch(set_, other, block)
        thread.join()
        driver.synchronize()
        assert not failed, failed
        assert waits, "it did not wait"
        return driver.words(block, 2)[1]

    return spin


# --- through the bridge ---------------------------------------------------------------------------


@pytest.fixture
def lent(words: Callable[..., int], new_stream: Callable[..., int]) -> Callable[[int], Any]:
    """Views for a bare handle of a stream, whose end the host has to wait for."""
    block, home = words(COUNT), new_stream()
    array = capsules.OnlyCai({**capsules.interface(block, (COUNT,)), "stream": home})

    def view(handle: int) -> Any:
        return to_cai(array, stream=handle)

    return view


@MODES
@FLAGS
@WHERE
def test_the_end_of_a_bare_handle_waits_and_ends_no_capture(
    where: str,
    flags: int,
    mode: int,
    driver: Driver,
    new_stream: Callable[..., int],
    marks: Callable[[int], int],
    lent: Callable[[int], Any],
) -> None:
    captured, consumer = new_stream(flags), new_stream()
    view = lent(consumer)
    with capturing(driver, captured, mode) as ended:
        driver.spin(consumer, MILLISECONDS)
        done = marks(consumer)
        by(where, view.release)
        assert reached(driver, done) == SUCCESS
    assert ended.said == SUCCESS


def test_other_threads_launch_while_an_end_waits(
    driver: Driver,
    new_stream: Callable[..., int],
    words: Callable[..., int],
    lent: Callable[[int], Any],
) -> None:
    consumer = new_stream()
    lent(consumer).release()  # the first wait loads the module
    spin = held_by_a_flag(driver, new_stream, words, consumer)
    assert spin(lent(consumer).release) == 1


@MODES
def test_an_array_that_names_no_stream_is_waited_for_beside_a_capture(
    mode: int,
    driver: Driver,
    new_stream: Callable[..., int],
    words: Callable[..., int],
    marks: Callable[[int], int],
) -> None:
    captured, producer, block = new_stream(), new_stream(), words(COUNT)
    interface = {**capsules.interface(block, (COUNT,)), "version": 2}
    interface.pop("stream", None)
    with capturing(driver, captured, mode) as ended:
        driver.spin(producer, MILLISECONDS)
        driver.write(block, 7, COUNT, producer)
        done = marks(producer)
        assert from_cai(capsules.OnlyCai(interface)).ptr == block
        assert reached(driver, done) == SUCCESS
    assert ended.said == SUCCESS


def child(*arguments: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHILD), *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.mark.parametrize("mode", ["0", "1", "2"], ids=["global", "local", "relaxed"])
def test_the_first_wait_of_a_process_ends_no_capture_either(mode: str) -> None:
    """It loads the module, and sees once that unloading waits."""
    done = child("first", mode)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["done", SUCCESS, SUCCESS]


@pytest.mark.parametrize("beside", ["captures", "jax"])
def test_many_ends_wait_beside_captures_of_other_threads(
    beside: str, note: Callable[..., None]
) -> None:
    if beside == "jax":
        pytest.importorskip("jax")
    told = {}
    for which in ("control", "bridge"):
        done = child(beside, which)
        assert done.returncode == 0, f"{which}: {done.returncode}\n{done.stdout}{done.stderr}"
        told[which] = dict(pair.split("=") for pair in done.stdout.split())
    note(f"host waits beside {beside}: {told['bridge']}; without the bridge {told['control']}")
    assert int(told["bridge"]["waits"]) > 100
    assert int(told["bridge"]["made"]) > 0
    assert told["bridge"]["wrong"] == told["control"]["wrong"] == "0"
    assert told["bridge"]["failed"] == told["control"]["failed"] == "0"
