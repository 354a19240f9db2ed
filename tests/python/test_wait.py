"""`view.wait()`: the host waits for what is pending on one array, and for nothing else."""

from __future__ import annotations

import ctypes
import logging
from typing import Any

import numpy as np
import pytest
from contract import assert_refused, each
from moving import BEFORE, moved, stream_before
from scenes import STREAMS, stream_of
from stand_in import no_libraries
from test_cuda_door import pytestmark as needs_the_driver_of_stubs
from test_cuda_door import run

from cai_bridge import DriverError, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

__all__ = ["no_libraries"]

WAITS = {"cuEventSynchronize", "cuStreamSynchronize", "cuModuleUnload", "cuCtxSynchronize"}
SPEAKS = ["exchange", "dlpack", "dlpack-strict", "cai3"]


def late(cuda: Any, speaks: str = "cai3", value: float = 7.0) -> tuple[Any, Any]:
    """Make an array that its own stream will fill, and that stream."""
    stream = cuda.stream(f"of {speaks}")
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
    array, stream = late(cuda, speaks)
    other, _ = late(cuda, value=8.0)
    with cuda.current_stream(stream):
        view = door(array)
    cuda.clear_calls()
    assert view.wait() is None
    assert waits(cuda) == ["cuEventSynchronize"], "one wait"
    assert there(view) == [7.0] * 4
    assert there(other) != [8.0] * 4, "nothing else was waited for"
    assert cuda.pending == 1
    assert view.stream is None
    assert door is to_dlpack or view.__cuda_array_interface__["stream"] is None
    assert "nothing pending" in repr(view)
    cuda.synchronize()


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
    bare = cuda.stream("bare")
    view = to_cai(late(cuda)[0], stream=bare.handle)
    cuda.clear_calls()
    with caplog.at_level(logging.WARNING, logger="cai_bridge"):
        view.wait()
    assert waits(cuda) == ["cuModuleUnload"]
    assert "the host waited for the context" in caplog.text
    assert there(view) == [7.0] * 4
    assert view.stream is None


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("again", [None, from_cai, to_cai])
def test_it_waits_for_the_array_alone_and_another_stream_writes_at_once(kind, speaks, named, again):
    with simulated_cuda() as cuda:  # a race is an error at the end
        own, busy, writer = stream_of(cuda, kind), cuda.stream("busy"), cuda.stream("writer")
        array, other = (cuda.array([0.0] * 4, speaks=speaks) for _ in range(2))
        busy.fill(other, 9.0)
        own.fill(array, 3.0)
        with cuda.current_stream(own):
            view = to_dlpack(array, stream=cuda.stream("consumer") if named else None)
            view = again(to_cai(view)) if again else view
            view.wait()
            assert there(view) == [3.0] * 4
            assert there(other) != [9.0] * 4
            mine = to_cai(view)
        writer.fill(mine, 5.0)
        mine.release(writer)
        # The stream of a producer that has said it waits for that.
        read = (own if speaks in {"exchange", "cai3"} else writer).read(array)
        cuda.synchronize()
        assert read.value == [5.0] * 4


@each("refusals", "object", kind="CaptureWait")
def test_work_that_is_captured_is_refused_and_the_capture_goes_on(row, cuda):
    array, stream = late(cuda)
    view = to_cai(array)
    with cuda.capture(stream) as graph:
        stream.fill(array, 8.0)
        assert_refused(row, view.wait)
        assert view.stream == stream.handle
    graph.launch(stream)
    view.wait()
    assert there(view) == [8.0] * 4


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


@pytest.mark.parametrize("blocking", [False, True])
def test_beside_a_capture_it_waits_but_for_the_legacy_stream(blocking, cuda):
    captured = cuda.stream("captured", blocking=blocking)
    array = cuda.array([1.0] * 4, speaks="cai3")
    cuda.legacy.fill(array, 7.0)
    views = [to_cai(late(cuda)[0]), to_cai(array)]
    with cuda.capture(captured) as graph:
        views[0].wait()
        if blocking:
            with pytest.raises(DriverError, match=r"graph capture: got a wait for work on the leg"):
                views[1].wait()
        else:
            views[1].wait()
    graph.launch(captured)
    views[1].wait()
    assert [there(view) for view in views] == [[7.0] * 4] * 2


def test_a_wait_that_fails_leaves_the_view_as_it_was(cuda):
    array, stream = late(cuda)
    view = to_cai(array)
    cuda.fail("cuEventSynchronize", 1, error="CUDA_ERROR_LAUNCH_TIMEOUT")
    with pytest.raises(DriverError, match="cuEventSynchronize"):
        view.wait()
    assert view.stream == stream.handle
    view.wait()
    assert convert(view, "numpy").tolist() == [7.0] * 4


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
