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
from collections.abc import Callable
from pathlib import Path

import pytest

from another_thread import in_another_thread
from cai_bridge import from_cai, to_cai

from .capsules import OnlyCai, interface
from .driver import BLOCKING, LEGACY, NON_BLOCKING, PER_THREAD, Driver

SUCCESS, NOT_READY = "CUDA_SUCCESS", "CUDA_ERROR_NOT_READY"
MODES = pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "local", "relaxed"])
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


@pytest.fixture
def unload(driver):
    """Unloads a module that was loaded while nothing was pending, as the bridge waits."""
    driver.synchronize()
    module = driver.get("cuModuleLoadData", EMPTY_PTX)

    def unloading() -> None:
        with driver.context(), driver.thread_mode():
            driver("cuModuleUnload", module)

    return unloading


@pytest.fixture
def free(driver):
    """Frees a byte of memory, which the bridge falls back to."""

    def freeing() -> None:
        with driver.context(), driver.thread_mode():
            driver("cuMemFree_v2", driver.allocate(1))

    return freeing


@pytest.fixture
def lent(words, new_stream):
    """Views for a bare handle of a stream, whose end the host has to wait for."""
    array = OnlyCai(interface(words(COUNT), (COUNT,), stream=new_stream()))
    return lambda handle: to_cai(array, stream=handle)


def reached(driver: Driver, event: int) -> str:
    with driver.thread_mode():
        return driver.result("cuEventQuery", event)


def by(where: str, act: Callable[[], object]) -> None:
    """Act, in this thread or in another one."""
    if where == "this thread":
        act()
    else:
        in_another_thread(act)


@pytest.mark.parametrize("how", ["unload", "free"])
@pytest.mark.parametrize("on", ["non-blocking", "blocking", "legacy", "per-thread", "destroyed"])
def test_it_waits_for_work_on(on, how, driver, new_stream, marks, request):
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
    driver, new_stream, words, marks, unload
):
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


@pytest.mark.parametrize("last", ["copied to the device", "copied to the host", "freed in order"])
def test_it_waits_for_copies_and_for_memory_that_is_freed(
    last, driver, new_stream, words, marks, unload
):
    stream, source, target, size = new_stream(), words(COUNT), words(COUNT), 4 * COUNT
    host, pointer = driver.get("cuMemHostAlloc", size, 0), ctypes.c_uint64()
    driver("cuMemAllocAsync", ctypes.byref(pointer), 1 << 20, stream)
    try:
        driver.spin(stream, MILLISECONDS)
        driver.write(source, 7, COUNT, stream)
        if last == "copied to the device":
            driver.copy(target, source, size, stream)
        elif last == "copied to the host":
            driver("cuMemcpyAsync", host, source, size, stream)
        else:
            driver("cuMemFreeAsync", pointer.value, stream)
        done = marks(stream)
        assert reached(driver, done) == NOT_READY
        unload()
        assert reached(driver, done) == SUCCESS
        if last == "copied to the host":
            assert (ctypes.c_uint32 * COUNT).from_address(host)[COUNT - 1] == 7
    finally:
        driver.synchronize()
        driver("cuMemFreeHost", host)
        if last != "freed in order":
            driver("cuMemFreeAsync", pointer.value, stream)


@pytest.mark.parametrize(("how", "seen"), [("unload", 1), ("free", 2), ("the bridge", 1)])
def test_other_threads_launch_meanwhile_but_not_while_memory_is_freed(
    how, seen, driver, new_stream, words, lent, request
):
    """A thread waits while a kernel spins, and another launches the kernel that ends it."""
    stream, other, block = new_stream(), new_stream(), words(2)
    until, set_ = (driver.kernel(SIGNAL_PTX, name) for name in (b"until", b"set"))
    # Both are there before anything is pending: to load a kernel waits, too.
    driver.launch(set_, other, block)
    driver.synchronize()
    driver.launch(until, stream, block, block + 4, LIMIT)
    driver.synchronize()
    driver.put(block, bytes(8))
    if how == "the bridge":
        lent(stream).release()  # the first wait loads the module
    wait = lent(stream).release if how == "the bridge" else request.getfixturevalue(how)
    begun, failed = threading.Event(), list[BaseException]()

    def waiting() -> None:
        begun.set()
        try:
            wait()
        except BaseException as error:
            failed.append(error)

    driver.launch(until, stream, block, block + 4, LIMIT)
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
    assert driver.words(block, 2)[1] == seen


@MODES
@FLAGS
@WHERE
def test_the_end_of_a_bare_handle_waits_and_ends_no_capture(
    where, flags, mode, driver, new_stream, marks, lent
):
    captured, consumer = new_stream(flags), new_stream()
    view = lent(consumer)
    with driver.capture(captured, mode) as capture:
        driver.spin(captured, 0.01)
        driver.spin(consumer, MILLISECONDS)
        done = marks(consumer)
        by(where, view.release)
        assert reached(driver, done) == SUCCESS
        driver.spin(captured, 0.01)
    assert capture.ended == SUCCESS


@MODES
def test_an_array_that_names_no_stream_is_waited_for_beside_a_capture(
    mode, driver, new_stream, words, marks
):
    captured, producer, block = new_stream(), new_stream(), words(COUNT)
    silent = interface(block, (COUNT,), version=2)
    silent.pop("stream", None)
    with driver.capture(captured, mode) as capture:
        driver.spin(captured, 0.01)
        driver.spin(producer, MILLISECONDS)
        driver.write(block, 7, COUNT, producer)
        done = marks(producer)
        assert from_cai(OnlyCai(silent)).ptr == block
        assert reached(driver, done) == SUCCESS
        driver.spin(captured, 0.01)
    assert capture.ended == SUCCESS


def child(*arguments: str) -> list[str]:
    """What the child prints."""
    command = [sys.executable, str(CHILD), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout.split()


@pytest.mark.parametrize("mode", ["0", "1", "2"], ids=["global", "local", "relaxed"])
def test_the_first_wait_of_a_process_ends_no_capture_either(mode):
    """It loads the module, and sees once that unloading waits."""
    assert child("first", mode) == ["done", SUCCESS, SUCCESS]


@pytest.mark.parametrize("beside", ["captures", "jax"])
def test_many_ends_wait_beside_captures_of_other_threads(beside, note):
    if beside == "jax":
        pytest.importorskip("jax")
    control, bridge = (
        dict(pair.split("=") for pair in child(beside, which)) for which in ("control", "bridge")
    )
    note(f"host waits beside {beside}: {bridge}; without the bridge {control}")
    assert int(bridge["waits"]) > 100
    assert int(bridge["made"]) > 0
    for told in (control, bridge):
        assert (told["wrong"], told["failed"]) == ("0", "0")
