"""Accidents of copies: calls that fail, locks, captures, and the end of the interpreter."""

import gc
import os
import subprocess
import sys
import textwrap

import pytest
from children import DEVICE, assert_quiet
from contract import assert_refused, each
from copies import NEWEST, named, taken

from cai_bridge import DriverError, from_cai, to_cai

# --- failures -------------------------------------------------------------------------------------

FREE = "cuMemFreeAsync"

ON_GPU = ["cuMemAllocAsync", "cuEventRecord", "cuStreamWaitEvent", "cuStreamGetCtx"]
FAILURES = [
    *(({}, call, 1) for call in [*ON_GPU, "cuMemcpy2DAsync"]),
    ({}, "cuMemcpy2DAsync", 2),
    ({}, "cuEventRecord", 2),
    ({}, "cuStreamWaitEvent", 2),
    *(({"dl_device": (2, 1)}, call, 1) for call in ["cuMemAllocAsync", "cuMemcpy3DPeerAsync"]),
    ({"dl_device": (2, 1)}, "cuDevicePrimaryCtxRetain", 1),
    ({"dl_device": (2, 1)}, "cuPointerGetAttributes", 1),
    *(({"dl_device": (1, 0)}, call, 1) for call in ["cuMemcpy2DAsync", "cuStreamSynchronize"]),
    ({"dl_device": (1, 0)}, "cuMemcpy2DAsync", 2),
]


@pytest.mark.parametrize(("wishes", "call", "nth"), FAILURES)
def test_a_call_that_fails_is_named_and_nothing_is_lost(wishes, call, nth, cuda):
    p, c = cuda.stream("p"), cuda.stream("c", device=wishes.get("dl_device", (2, 0))[1])
    x = cuda.array([[1.0, 2.0], [3.0, 4.0]], strides="F", speaks="cai", stream=p)
    view = from_cai(x)
    cuda.fail(call, nth)
    asked = "memory: got 16 bytes asked for "
    begins = rf"^{asked}\({call}: " if call == "cuMemAllocAsync" else rf"^{call}: got "
    with pytest.raises(DriverError, match=f"{begins}CUDA_ERROR_OUT_OF_MEMORY") as caught:
        view.__dlpack__(stream=c, copy=True, max_version=NEWEST, **wishes)
    assert caught.value.call == call
    del caught
    gc.collect()
    assert cuda.clear_faults() == 0
    done = [made.call for made in cuda.calls if made.outcome == "done"]
    assert done.count("cuMemAllocAsync") == done.count("cuMemFreeAsync")
    assert cuda.current_device == 0
    cuda.synchronize()
    capsule = view.__dlpack__(stream=c, copy=True, max_version=NEWEST, **wishes)
    if wishes.get("dl_device") != (1, 0):
        read = c.read(to_cai(capsule, stream=-1))
        cuda.synchronize()
        assert read.value == [[1.0, 2.0], [3.0, 4.0]]


def test_a_copy_that_failed_halfway_is_waited_for_on_the_stream_that_makes_it(cuda):
    # The consumer's stream is not of the copy's GPU, whose legacy default stream makes the copy.
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([[1.0, 2.0], [3.0, 4.0]], strides="F", speaks="cai", stream=p)
    view = from_cai(x)
    cuda.fail("cuMemcpy3DPeerAsync", 2)
    with pytest.raises(DriverError, match=r"^cuMemcpy3DPeerAsync: got "):
        view.__dlpack__(stream=c, dl_device=(2, 1), max_version=NEWEST)
    p.fill(x, 9.0)
    cuda.synchronize()
    assert not cuda.reports


@pytest.mark.parametrize("call", ["cuMemFreeAsync", "cuModuleUnload"])
def test_memory_that_cannot_be_given_back_just_now_is_given_back_later(call, cuda, caplog):
    c = cuda.stream("c")
    view = from_cai(cuda.array([1.0], speaks="cai", memory="pool"))
    copy = taken(view, stream=c if call == "cuMemFreeAsync" else c.handle)
    cuda.fail(call)
    cuda.clear_calls()
    copy.delete()
    assert f"could not be given back in order (door=release error={call}: got " in caplog.text
    assert cuda.clear_faults() == 0
    assert not [made for made in cuda.calls if (made.call, made.outcome) == (FREE, "done")]
    cuda.synchronize()
    assert len([made for made in cuda.calls if (made.call, made.outcome) == (FREE, "done")]) == 1


@pytest.mark.parametrize("code", ["CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_CONTEXT_IS_DESTROYED"])
def test_memory_of_a_context_that_is_broken_is_left_and_never_asked_for_again(code, cuda, caplog):
    copy = taken(from_cai(cuda.array([1.0], speaks="cai", memory="pool")), stream=cuda.stream("c"))
    cuda.fail(FREE, 1, code)
    copy.delete()
    assert "producer=let go" in caplog.text
    cuda.clear_calls()
    cuda.synchronize()
    to_cai(cuda.array([1.0], speaks="cai"))
    assert named(cuda, FREE) == []


def test_a_copy_that_is_alive_at_the_end_of_the_interpreter_is_left_alone():
    script = """
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
    """
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("wait", ["copy to the host", "end of a copy"])
def test_the_interpreter_lock_is_free_while_the_host_waits(wait):
    # Work of another thread runs Python code, so with the lock held this would never end.
    script = f"""
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
            if {wait == "end of a copy"}:
                del capsule
            else:
                assert np.from_dlpack(view, device="cpu").tolist() == [1.0]
            assert go.is_set()
            thread.join()
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr


# --- graph captures -------------------------------------------------------------------------------


@each("refusals", "object", object="a copy during a capture")
@pytest.mark.parametrize("captured", ["producer", "consumer"])
@pytest.mark.parametrize("device", [(2, 0), (2, 1), (1, 0)])
def test_a_copy_during_a_capture_is_refused_and_the_capture_goes_on(row, device, captured, cuda):
    p, c = cuda.stream("p"), cuda.stream("c", device=device[1])
    x = cuda.array([1.0], speaks="cai", stream=p)
    view = from_cai(x)
    cuda.synchronize()
    if device == (1, 0) and captured == "consumer":
        pytest.skip("a copy for the CPU has no stream of its consumer's")
    with cuda.capture(p if captured == "producer" else c, mode="relaxed"):
        assert_refused(row, view.__dlpack__, stream=c, dl_device=device, copy=True)
    assert cuda.pending == 0


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


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_the_end_of_a_copy_waits_for_the_capture_of_its_stream(mode, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([1.0] * 4, speaks="cai3", stream=p)
    capsule = from_cai(x).__dlpack__(copy=True, stream=c)
    cuda.clear_calls()
    with cuda.current_stream(c), cuda.capture(c, mode) as graph:
        del capsule
        c.launch(name="k")
    assert named(cuda, FREE) == []
    graph.launch(c)
    cuda.synchronize()
    to_cai(x)
    assert len(named(cuda, FREE)) == 1


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("how", ["bare", "destroyed"])
def test_the_end_of_a_copy_waits_on_the_host_beside_a_capture(how, mode, cuda):
    p, c, other = cuda.stream("p"), cuda.stream("c"), cuda.stream("other")
    x = cuda.array([1.0] * 4, speaks="cai3", stream=p)
    capsule = from_cai(x).__dlpack__(copy=True, stream=other.handle if how == "bare" else other)
    if how == "destroyed":
        cuda.synchronize()
        other.destroy()
    cuda.clear_calls()
    with cuda.current_stream(c), cuda.capture(c, mode) as graph:
        del capsule
        c.launch(name="k")
        made = named(cuda, "cuModuleUnload", FREE)
        assert (set(made[:-1]), made[-1]) == ({("cuModuleUnload", None)}, (FREE, 1))
    graph.launch(c)
    cuda.synchronize()
