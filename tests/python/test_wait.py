"""`view.wait()`: the host waits for what is pending on one array, and for nothing else."""

from __future__ import annotations

import ctypes
import logging
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from contract import assert_refused, each
from moving import BEFORE, moved, stream_before
from stand_in import no_libraries
from test_cuda_door import pytestmark as needs_the_driver_of_stubs
from test_cuda_door import run

from cai_bridge import DriverError, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

__all__ = ["no_libraries"]

WAITS = {"cuEventSynchronize", "cuStreamSynchronize", "cuModuleUnload", "cuCtxSynchronize"}
SPEAKS = ["exchange", "dlpack", "dlpack-strict", "cai3"]


def late(cuda: Any, speaks: str, value: float, blocking: bool = False) -> tuple[Any, Any]:
    """Make an array that its own stream will fill, and that stream."""
    stream = cuda.stream(f"of {speaks}", blocking=blocking)
    array = cuda.array([0.0] * 4, speaks=speaks, name=f"of {speaks}")
    stream.fill(array, value)
    return array, stream


def there(view: Any) -> list[float]:
    """Read the memory by its address alone, as MPI does."""
    return list((ctypes.c_float * 4).from_address(view.ptr))


def waits(cuda: Any) -> list[str]:
    return [made.call for made in cuda.calls if made.call in WAITS]


@pytest.mark.parametrize("door", [to_cai, to_dlpack])
@pytest.mark.parametrize("speaks", SPEAKS)
def test_the_array_is_there_and_the_work_of_other_streams_has_not_run(speaks, door, cuda):
    array, stream = late(cuda, speaks, 7.0)
    other, _ = late(cuda, "cai3", 8.0)
    with cuda.current_stream(stream):
        view = door(array)
    cuda.clear_calls()
    assert view.wait() is None
    assert waits(cuda) == ["cuEventSynchronize"], "one wait"
    assert there(view) == [7.0] * 4
    assert there(other) != [8.0] * 4, "nothing else was waited for"
    assert cuda.pending == 1
    cuda.synchronize()


@pytest.mark.unchecked
@pytest.mark.parametrize("call", ["cuEventRecord", "cuEventSynchronize"])
def test_each_of_its_calls_is_needed(call, cuda):
    array, _ = late(cuda, "cai3", 7.0)
    view = to_cai(array)
    cuda.suppress(call)
    view.wait()
    assert there(view) != [7.0] * 4


def test_afterwards_the_dict_says_that_nothing_is_pending(cuda):
    array, stream = late(cuda, "cai3", 7.0)
    view = to_cai(array)
    assert view.__cuda_array_interface__["stream"] == view.stream == stream.handle
    view.wait()
    assert view.stream is None
    assert view.__cuda_array_interface__["stream"] is None
    assert "nothing pending" in repr(view)


@BEFORE
def test_the_streams_of_an_exporter_that_moved_are_waited_for(before, cuda):
    first, then = stream_before(cuda, before), cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    with cuda.current_stream(first if before == "a library's" else cuda.legacy):
        view = from_cai(array)
    moved(array, first, then)
    view.wait()
    assert there(view) == [2.0] * 4


def test_memory_of_no_bytes_and_memory_where_nothing_is_pending_take_no_call(cuda):
    empty = cuda.array(np.zeros((0, 4), dtype="float32"), speaks="cai3", stream=cuda.stream())
    idle = cuda.array([1.0], speaks="cai3", stream=cuda.stream())
    for view in (to_cai(empty), from_cai(idle, stream=-1)):
        cuda.clear_calls()
        view.wait()
        assert waits(cuda) == []
        assert view.stream is None
    cuda.synchronize()


def test_for_a_stream_that_nothing_keeps_the_host_waits_for_all_work_and_says_so(
    no_libraries, cuda, caplog
):
    array, _ = late(cuda, "cai3", 7.0)
    bare = cuda.stream("bare")
    view = to_cai(array, stream=bare.handle)
    cuda.clear_calls()
    with caplog.at_level(logging.WARNING, logger="cai_bridge"):
        view.wait()
    assert waits(cuda) == ["cuModuleUnload"]
    assert "the host waited for the context" in caplog.text
    assert there(view) == [7.0] * 4
    assert view.stream is None


@pytest.mark.parametrize("seed", range(8))
def test_of_random_programs_each_sees_what_was_written_and_none_waits_for_the_busy_stream(seed):
    rng = random.Random(seed)
    for _ in range(40):
        with simulated_cuda(devices=2) as cuda:  # a race is an error at the end
            device = rng.randrange(2)
            streams = {
                "legacy": cuda.default_stream(device),
                "per-thread": cuda.default_stream(device, per_thread=True),
                "blocking": cuda.stream("own", device=device, blocking=True),
                "non-blocking": cuda.stream("own", device=device, blocking=False),
            }
            own, busy = streams[rng.choice([*streams])], cuda.stream("busy", device=device)
            speaks = rng.choice(SPEAKS)
            array, other = (
                cuda.array([0.0] * 4, device=device, speaks=speaks, name=name)
                for name in ("x", "other")
            )
            busy.fill(other, 9.0)
            for value in range(rng.randint(1, 3)):
                own.fill(array, float(value))
            consumer = rng.choice([None, None, cuda.stream("consumer", device=device)])
            with cuda.current_stream(own):
                view = rng.choice([to_cai, to_dlpack])(array, stream=consumer)
            if rng.random() < 0.3:
                view = rng.choice([from_cai, to_cai])(to_cai(view))
            view.wait()
            assert there(view) == [float(value)] * 4
            assert there(other) != [9.0] * 4
            # Nothing is pending: another stream writes at once.
            writer = cuda.stream("writer", device=device)
            with cuda.current_stream(own):
                mine = to_cai(view)
            assert view.stream is None
            writer.fill(mine, 5.0)
            mine.release(writer)
            # The stream of a producer that has said it waits for that.
            read = (own if speaks in {"exchange", "cai3"} else writer).read(array)
            cuda.synchronize()
            assert read.value == [5.0] * 4


# --- captures -------------------------------------------------------------------------------------


@each("refusals", "object", kind="CaptureWait")
def test_work_that_is_captured_is_refused_and_the_capture_goes_on(row, cuda):
    array, stream = late(cuda, "cai3", 6.0)
    view = to_cai(array)
    with cuda.capture(stream) as graph:
        stream.fill(array, 7.0)
        assert_refused(row, view.wait)
        assert view.stream == stream.handle
    graph.launch(stream)
    view.wait()
    assert there(view) == [7.0] * 4


def test_neither_stream_is_touched_where_the_other_is_captured(no_libraries, cuda):
    first, then = cuda.stream("first"), cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    view = from_cai(array)
    moved(array, first, then)
    with cuda.capture(then):
        cuda.clear_calls()
        with pytest.raises(DriverError, match="graph capture"):
            view.wait()
        assert "cuEventRecord" not in [made.call for made in cuda.calls]
    cuda.synchronize()


def test_a_capture_of_another_stream_goes_on_and_takes_no_part(cuda):
    array, _ = late(cuda, "cai3", 7.0)
    captured = cuda.stream("captured")
    with cuda.capture(captured) as graph:
        view = to_cai(array)
        view.wait()
    graph.launch(captured)
    assert there(view) == [7.0] * 4


def test_the_legacy_stream_beside_a_capture_is_refused(cuda):
    array = cuda.array([1.0] * 4, speaks="cai3")
    cuda.legacy.fill(array, 7.0)
    view = to_cai(array)
    with (
        cuda.capture(cuda.stream("captured", blocking=True)),
        pytest.raises(DriverError, match=r"graph capture: got a wait for work on the legacy"),
    ):
        view.wait()
    view.wait()


# --- ends -----------------------------------------------------------------------------------------


def test_a_released_view_is_refused(cuda):
    view = to_cai(cuda.array([1.0]))
    view.release()
    with pytest.raises(BufferError, match="view: got a released view"):
        view.wait()


def test_a_wait_that_fails_leaves_the_view_as_it_was(cuda):
    array, stream = late(cuda, "cai3", 7.0)
    view = to_cai(array)
    cuda.fail("cuEventSynchronize", 1, error="CUDA_ERROR_LAUNCH_TIMEOUT")
    with pytest.raises(DriverError, match="cuEventSynchronize"):
        view.wait()
    assert view.stream == stream.handle
    view.wait()
    assert convert(view, "numpy").tolist() == [7.0] * 4


CHILD = """
import threading
from cai_bridge import to_cai
from cai_bridge.testing import simulated_cuda

with simulated_cuda() as cuda:
    stream, runs, go = cuda.stream(), threading.Event(), threading.Event()
    x = cuda.array([0.0], speaks="cai3")
    stream.launch(lambda: (runs.set(), go.wait()), writes=[x], name="waits for a thread")
    stream.fill(x, 7.0)
    view = to_cai(x)
    # One thread runs the work, another one waits for it, and it ends only if a third can run.
    threads = [threading.Thread(target=call) for call in (stream.synchronize, view.wait)]
    threads[0].start()
    runs.wait()
    threads[1].start()
    threading.Timer(0.1, go.set).start()
    for thread in threads:
        thread.join()
print("done")
"""


def test_other_threads_of_python_run_meanwhile() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


@needs_the_driver_of_stubs
def test_the_drivers_wait_is_made_in_the_relaxed_mode_and_without_the_lock() -> None:
    """The stubs' event comes only once another thread says so."""
    run("""
        import threading
        view = from_cai(Array(MINE))
        before = calls("cuEventSynchronize")
        say("reached", 0)
        threading.Timer(0.05, say, ("reached", 1)).start()
        view.wait()
        assert calls("cuEventSynchronize") == before + 1
    """)
