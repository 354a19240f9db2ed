"""The ends of copies, whose memory goes back in order, and accidents: failures, locks, captures."""

import gc
import os
import subprocess
import sys
import textwrap
import threading

import pytest
from children import DEVICE, assert_quiet
from contract import assert_refused, each
from copies import NEWEST, ends, named, taken
from fakes import Closing

from cai_bridge import DriverError, from_cai, to_cai

FREE = "cuMemFreeAsync"


@pytest.fixture
def view(cuda):
    return from_cai(cuda.array([1.0], speaks="cai", memory="pool"))


def test_with_minus_one_memory_goes_back_after_the_streams_that_can_be_named(cuda):
    p, mine = cuda.stream("p"), cuda.stream("mine")
    x = cuda.array([1.0], speaks="cai", memory="pool", stream=p)
    copy = taken(from_cai(x), stream=-1)
    p.synchronize()
    with cuda.current_stream(mine):
        for works_on in (cuda.legacy, cuda.stream("blocking", blocking=True), mine):
            works_on.launch(reads=[(copy.fields.ptr, 4)], name="late")
        cuda.clear_calls()
        copy.delete()
    assert ends(cuda) == [(FREE, 1)]
    cuda.synchronize()


@pytest.mark.parametrize("device", [0, 1])
def test_memory_waits_for_the_device_where_the_consumers_stream_may_be_dead(device, cuda, view):
    c = cuda.stream("c")
    copy = taken(view, stream=c.handle, dl_device=(2, device))
    c.launch(reads=[(copy.fields.ptr, 4)], name="late")
    if device == 1:
        # Its context is not the memory's: the consumer has to be done by itself.
        cuda.synchronize()
    del c
    cuda.clear_calls()
    copy.delete()
    assert ends(cuda) == [("cuModuleUnload", None), (FREE, 1)]
    # Whether the free would end its capture.
    assert [on for _, on in named(cuda, "cuStreamIsCapturing", "cuStreamGetCaptureInfo")] == [1]
    assert cuda.pending == 1, "the free alone"


@pytest.mark.parametrize("stream", [1, 2, "object"])
def test_a_copy_may_be_deleted_by_any_thread(stream, cuda, view):
    c = cuda.stream("c")
    copy = taken(view, stream=c if stream == "object" else stream)
    cuda.clear_calls()
    thread = threading.Thread(target=copy.delete)
    thread.start()
    thread.join()
    # Another thread's per-thread stream has no name; the legacy one follows it.
    assert ends(cuda) == [(FREE, c.handle if stream == "object" else 1)]
    cuda.synchronize()


def test_a_stream_object_that_was_closed_is_not_used(cuda, view):
    closing = Closing(cuda.stream("c"))
    copy = taken(view, stream=closing)
    closing.close()
    cuda.clear_calls()
    copy.delete()
    made = ends(cuda)
    assert made[-1] == (FREE, 1)
    assert set(made[:-1]) == {("cuModuleUnload", None)}


HERE, THERE, HOST = (2, 0), (2, 1), (1, 0)
HALFWAY = [(HERE, "cuMemcpy2DAsync"), (THERE, "cuMemcpy3DPeerAsync"), (HOST, "cuMemcpy2DAsync")]


@pytest.mark.parametrize(("to", "call"), HALFWAY)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("ready", ["p", "own"])
@pytest.mark.parametrize("by", ["object", "handle"])
def test_a_copy_that_fails_halfway_is_waited_for_and_its_memory_freed(
    by, ready, to, call, nth, cuda
):
    # A stream that is not of another GPU makes no copy there: its legacy default stream does.
    p, c = cuda.stream("p"), cuda.stream("c", device=int(by == "handle" and to == THERE))
    x = cuda.array([[1.0, 2.0], [3.0, 4.0]], strides="F", speaks="cai", stream=p)
    wishes = {
        "stream": c if by == "object" else c.handle,
        "dl_device": to,
        "copy": True,
        "max_version": NEWEST,
    }
    view = from_cai(x if ready == "p" else to_cai(x, stream=cuda.stream("own")))
    cuda.fail(call, nth)
    with pytest.raises(DriverError, match=rf"^{call}: got CUDA_ERROR_OUT_OF_MEMORY"):
        view.__dlpack__(**wishes)
    view.release()
    gc.collect()
    p.fill(x, 9.0)
    cuda.synchronize()
    done = [made.call for made in cuda.calls if made.outcome == "done"]
    assert done.count("cuMemAllocAsync") == done.count(FREE) == int(to != HOST)


@pytest.mark.parametrize("call", [FREE, "cuModuleUnload"])
def test_memory_that_cannot_be_given_back_just_now_is_given_back_later(call, cuda, view, caplog):
    c = cuda.stream("c")
    copy = taken(view, stream=c if call == FREE else c.handle)
    cuda.fail(call)
    cuda.clear_calls()
    copy.delete()
    assert f"could not be given back in order (door=release error={call}: got " in caplog.text
    assert cuda.clear_faults() == 0
    for times in (0, 1):
        done = [made for made in cuda.calls if (made.call, made.outcome) == (FREE, "done")]
        assert len(done) == times
        cuda.synchronize()


@pytest.mark.parametrize("code", ["CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_CONTEXT_IS_DESTROYED"])
def test_memory_of_a_context_that_is_broken_is_left_and_never_asked_for_again(
    code, cuda, view, caplog
):
    copy = taken(view, stream=cuda.stream("c"))
    cuda.fail(FREE, 1, code)
    copy.delete()
    assert "producer=let go" in caplog.text
    cuda.clear_calls()
    cuda.synchronize()
    to_cai(cuda.array([1.0], speaks="cai"))
    assert named(cuda, FREE) == []


def run(script):
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_copy_that_is_alive_at_the_end_of_the_interpreter_is_left_alone():
    run("""
        import sys
        import numpy as np
        from cai_bridge import from_cai
        from cai_bridge.testing import simulated_cuda

        cuda = simulated_cuda(devices=2)
        cuda.__enter__()
        view = from_cai(cuda.array([1.0, 2.0], speaks="cai"))
        c = cuda.stream("c")
        wishes = [{"stream": c}, {"stream": 1}, {"stream": -1}, {"dl_device": (2, 1)}]
        sys.kept = [view.__dlpack__(copy=True, max_version=(1, 3), **w) for w in wishes]
        sys.kept.append(np.from_dlpack(view, device="cpu"))
        sys.kept.append(sys.kept)
    """)


@pytest.mark.parametrize("act", ["np.from_dlpack(view, device='cpu')", "del capsule"])
def test_the_interpreter_lock_is_free_while_the_host_waits(act):
    # Work of another thread runs Python code, so with the lock held this would never end.
    run(f"""
        import threading
        import numpy as np
        from cai_bridge import from_cai
        from cai_bridge.testing import simulated_cuda

        with simulated_cuda() as cuda:
            entered, go = threading.Event(), threading.Event()
            view = from_cai(cuda.array([1.0], speaks="cai", memory="pool"))
            bare = cuda.stream("bare")
            capsule = view.__dlpack__(copy=True, stream=bare.handle)
            busy = cuda.stream("busy")
            busy.launch(lambda: (entered.set(), go.wait()))
            thread = threading.Thread(target=busy.synchronize)
            thread.start()
            entered.wait()
            threading.Timer(0.2, go.set).start()
            {act}
            assert go.is_set()
            thread.join()
    """)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_leaves_the_parents_copies_alone():
    assert_quiet(
        DEVICE,
        """
        producer, bare = cuda.stream(), cuda.stream()
        view = from_cai(x, stream=producer)
        wishes = [{"stream": producer}, {"stream": bare.handle}, {"dl_device": (1, 0)}]
        held = [view.__dlpack__(copy=True, **wish) for wish in wishes]
        calls = len(cuda.calls)
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            held.clear()
            sys.exit()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(cuda.calls) == calls
        held.clear()
        cuda.synchronize()
        """,
    )


@each("refusals", "object", object="a copy during a capture")
@pytest.mark.parametrize(
    ("captured", "device"),
    [*(("p", device) for device in (HERE, THERE, HOST)), ("c", HERE), ("c", THERE)],
)
def test_a_copy_during_a_capture_is_refused_and_the_capture_goes_on(row, device, captured, cuda):
    p, c = cuda.stream("p"), cuda.stream("c", device=device[1])
    view = from_cai(cuda.array([1.0], speaks="cai", stream=p))
    cuda.synchronize()
    with cuda.capture(p if captured == "p" else c, mode="relaxed"):
        assert_refused(row, view.__dlpack__, stream=c, dl_device=device, copy=True)
    assert cuda.pending == 0


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("stream", ["captured", "bare", "destroyed"])
def test_the_end_of_a_copy_waits_for_the_capture_of_its_stream_or_on_the_host(stream, mode, cuda):
    p, c, other = cuda.stream("p"), cuda.stream("c"), cuda.stream("other")
    x = cuda.array([1.0] * 4, speaks="cai3", stream=p)
    given = {"captured": c, "bare": other.handle, "destroyed": other}[stream]
    capsule = from_cai(x).__dlpack__(copy=True, stream=given)
    if stream == "destroyed":
        cuda.synchronize()
        other.destroy()
    cuda.clear_calls()
    with cuda.current_stream(c), cuda.capture(c, mode) as graph:
        del capsule
        c.launch(name="k")
        made = named(cuda, "cuModuleUnload", FREE)
        if stream != "captured":
            assert (set(made[:-1]), made[-1]) == ({("cuModuleUnload", None)}, (FREE, 1))
    assert len(named(cuda, FREE)) == int(stream != "captured")
    graph.launch(c)
    cuda.synchronize()
    to_cai(x)
    assert len(named(cuda, FREE)) == 1
