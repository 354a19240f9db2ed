"""The simulated device refuses what the real one, or the bridge, does: arguments by their names,
writes to read-only memory, views that were released, arrays of a device that has ended.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
import re

import pytest

from cai_bridge import DriverError, adapt, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import SimulatedError, simulated_cuda

STREAM = "a SimulatedStream: cuda.default_stream(0), cuda.stream_of(handle), cuda.stream()"
TWO = "0 or 1"
SPANS = "a list of arrays, views or pairs (address, bytes)"
NUMBER = "an integer, or a sequence of integers"
INT8, UINT8 = "integers from -128 to 127, for int8", "integers from 0 to 255, for uint8"
MEMORY, SPEAKS = "device, pinned, managed, pool", "a protocol's name, or several"
ROWS = [
    ("cuda.array([1.0], stream=1)", TypeError, "stream: got 1", STREAM),
    ("cuda.consumer('dlpack', stream=1)", TypeError, "stream: got 1", STREAM),
    ("cuda.current_stream(1).__enter__()", TypeError, "stream: got 1", STREAM),
    ("cuda.launch(1)", TypeError, "stream: got 1", STREAM),
    ("cuda.capture(1)", TypeError, "stream: got 1", STREAM),
    ("graph.launch(1)", TypeError, "stream: got 1", STREAM),
    ("q.wait(5)", TypeError, "event: got 5", "what record() of a stream returned"),
    ("q.launch(5)", TypeError, "run: got 5", "None, or a callable without arguments"),
    ("q.launch(name=5)", TypeError, "name: got 5", "a str"),
    ("q.launch(reads=x)", TypeError, "reads: got <", SPANS),
    ("q.launch(reads='x')", TypeError, "reads: got 'x'", SPANS),
    ("q.launch(reads=[(4096, -5)])", ValueError, "reads: got (4096, -5)", SPANS),
    ("q.launch(writes=[(4096,)])", ValueError, "writes: got (4096,)", SPANS),
    ("q.launch(writes=5)", TypeError, "writes: got 5", SPANS),
    ("cuda.capture(q, 'fast')", ValueError, "mode: got 'fast'", "global, thread_local, relaxed"),
    ("cuda.stream(device=3)", ValueError, "device: got 3", TWO),
    ("cuda.stream(device='0')", TypeError, "device: got '0'", TWO),
    ("cuda.stream(device=True)", TypeError, "device: got True", TWO),
    ("cuda.stream(blocking=1)", TypeError, "blocking: got 1", "True or False"),
    ("cuda.stream(5)", TypeError, "name: got 5", "a str"),
    ("cuda.default_stream(9)", ValueError, "device: got 9", TWO),
    ("cuda.default_stream(0, per_thread=1)", TypeError, "per_thread: got 1", "True or False"),
    ("cuda.stream_of(0)", ValueError, "handle: got 0", "1, 2, or the handle of a stream"),
    ("cuda.stream_of(q)", TypeError, "handle: got <Simul", "1, 2, or the handle of a stream"),
    ("cuda.set_device(-1)", ValueError, "device: got -1", TWO),
    ("cuda.reset_device(2)", ValueError, "device: got 2", TWO),
    ("cuda.array([1.0], device=5)", ValueError, "device: got 5", TWO),
    ("cuda.array([1.5], dtype='int32')", ValueError, "data: got 1.5", "integers from -2147483648"),
    ("cuda.array([nan], dtype='int8')", ValueError, "data: got nan", INT8),
    ("cuda.array([300], dtype='uint8')", ValueError, "data: got 300", UINT8),
    ("cuda.array(['a'])", ValueError, "data: got 'a'", "numbers in its range, for float32"),
    ("cuda.array([1e9], dtype='float16')", ValueError, "data: got 1000000000.0", "numbers in its"),
    ("cuda.array(['a'], dtype='bfloat16')", ValueError, "data: got 'a'", "numbers in its range, f"),
    ("q.fill(x, 'a')", ValueError, "data: got 'a'", "numbers in its range, for float32"),
    ("cuda.array([1.0], dtype=5)", ValueError, "dtype: got 5", "bool, int8, "),
    ("cuda.array([1.0], dtype=[])", ValueError, "dtype: got []", "bool, int8, "),
    ("cuda.array([1.0], name=1)", TypeError, "name: got 1", "a str"),
    ("cuda.array([1.0], memory=None)", ValueError, "memory: got None", MEMORY),
    ("cuda.array([1.0], readonly='x')", TypeError, "readonly: got 'x'", "True or False"),
    ("cuda.array(shape=2.5)", TypeError, "shape: got 2.5", NUMBER),
    ("cuda.array(shape=[2.5])", TypeError, "shape: got [2.5]", NUMBER),
    ("cuda.array(shape='4')", TypeError, "shape: got '4'", NUMBER),
    ("cuda.array([1.0], strides=4)", TypeError, "strides: got 4", "'C', 'F', or bytes, one a dim"),
    ("cuda.array([1.0], strides='D')", ValueError, "strides: got 'D'", "'C', 'F', or bytes, one a"),
    ("cuda.array([1.0], speaks=None)", TypeError, "speaks: got None", SPEAKS),
    ("cuda.array([1.0], offset=-1)", ValueError, "offset: got -1", "0 bytes or more"),
    ("cuda.array([1.0], offset='4')", TypeError, "offset: got '4'", "0 bytes or more"),
    ("cuda.consumer('magic')", ValueError, "kind: got 'magic'", "cai-waits, "),
    ("cuda.consumer([])", ValueError, "kind: got []", "cai-waits, "),
    ("simulated_cuda(devices=0)", ValueError, "devices: got 0", "1 or more"),
    ("simulated_cuda(devices=-1)", ValueError, "devices: got -1", "1 or more"),
    ("simulated_cuda(devices=True)", TypeError, "devices: got True", "1 or more"),
    ("simulated_cuda(check='no')", TypeError, "check: got 'no'", "True or False"),
]


@pytest.mark.parametrize(("call", "error", "got", "allowed"), ROWS, ids=[row[0] for row in ROWS])
def test_an_argument_is_refused_by_its_name_and_nothing_is_queued(call, error, got, allowed, cuda):
    q, x = cuda.stream("q"), cuda.array([1.0])
    with cuda.capture(q) as graph:
        pass
    names = {"cuda": cuda, "q": q, "x": x, "graph": graph, "nan": float("nan")}
    with pytest.raises(error, match=f"^{re.escape(got)}.*; allowed: {re.escape(allowed)}"):
        eval(call, {"simulated_cuda": simulated_cuda}, names)
    assert cuda.pending == 0


class Three:
    """An integer of another library, as NumPy's."""

    def __index__(self) -> int:
        return 3


def test_integers_of_other_libraries_are_taken():
    with simulated_cuda(devices=Three()) as cuda:
        assert cuda.devices == 3
        assert cuda.array(shape=Three(), offset=Three()).shape == (3,)
        assert cuda.array(shape=(Three(), 2), strides=(8, 4)).shape == (3, 2)


# --- what may not be written or used any more -----------------------------------------------------


def writes(cuda):
    """Every way to write `x`, on the stream `q`."""
    q, source = cuda.stream("q"), cuda.array([2.0])
    return {
        "fill": lambda x: q.fill(x, 3.0),
        "copy": lambda x: q.copy(x, source),
        "launch": lambda x: q.launch(writes=[x]),
        "consumer": lambda x: cuda.consumer("cai-waits", q).write(x, 3.0),
    }


@pytest.mark.parametrize("way", ["fill", "copy", "launch", "consumer"])
@pytest.mark.parametrize("what", ["array", "cai", "dlpack", "view of writable memory"])
def test_read_only_memory_is_not_written(what, way, cuda):
    x = cuda.array([1.0], speaks="cai", readonly=what != "view of writable memory")
    to = to_dlpack if what == "dlpack" and way != "consumer" else to_cai
    written = x if what == "array" else to(x, readonly=True)
    with pytest.raises(BufferError, match=r"^array: .+; allowed: "):
        writes(cuda)[way](written)
    assert cuda.pending == 0
    assert cuda.read(x) == [1.0]


def test_the_host_does_not_write_read_only_memory_either_but_its_first_values(cuda):
    s = cuda.stream("s")
    for x in (cuda.array([1.0], readonly=True), cuda.array([1.0], readonly=True, stream=s)):
        with pytest.raises(BufferError, match=r"^array: .+; allowed: "):
            x.assign(2.0)
        cuda.synchronize()
        assert x.tolist() == [1.0]


@pytest.mark.parametrize("made", [to_cai, to_dlpack])
@pytest.mark.parametrize("way", ["fill", "copy to", "copy of", "launch", "read", "host"])
def test_a_released_view_is_refused(way, made, cuda):
    q, other, view = cuda.stream("q"), cuda.array([2.0]), made(cuda.array([1.0]))
    view.release()
    use = {
        "fill": lambda: q.fill(view, 3.0),
        "copy to": lambda: q.copy(view, other),
        "copy of": lambda: q.copy(other, view),
        "launch": lambda: q.launch(reads=[view]),
        "read": lambda: q.read(view),
        "host": lambda: cuda.read(view),
    }
    with pytest.raises(BufferError, match=r"^view: got a released view; allowed: "):
        use[way]()
    assert cuda.pending == 0


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "dlpack-legacy", "dlpack-bare", "cai"])
@pytest.mark.parametrize("then", [None, "another"])
def test_an_array_of_a_simulated_device_that_has_ended_says_so(speaks, then):
    with simulated_cuda() as cuda:
        x = cuda.array([1.0], speaks=speaks)
    calls = [to_cai, to_dlpack, lambda x: convert(x, "cai"), adapt(lambda x: x)]
    if speaks == "cai":
        calls.append(from_cai)
    with contextlib.nullcontext() if then is None else simulated_cuda():
        for call in calls:
            with pytest.raises(SimulatedError, match=r"^((a|x): )?simulated device: got an array "):
                call(x)


# --- a wait in a capture --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("device", [0, 1])
def test_a_wait_for_all_devices_spoils_a_capture_of_any(device, mode, cuda):
    graph = cuda.capture(cuda.stream("s", device=device), mode).__enter__()
    with pytest.raises(DriverError, match=r"^cuCtxSynchronize: got \w+_STREAM_CAPTURE_UNSUPPORTED"):
        cuda.synchronize()
    with pytest.raises(DriverError, match="STREAM_CAPTURE_INVALIDATED"):
        graph.__exit__(None, None, None)
    cuda.synchronize()


# --- streams --------------------------------------------------------------------------------------


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_stream_is_not_copied_since_it_would_be_destroyed_twice(take, cuda):
    with pytest.raises(TypeError, match=r"^cannot copy or pickle a SimulatedStream: "):
        take(cuda.stream("q"))


def test_a_stream_that_cannot_be_destroyed_says_why(cuda):
    q = cuda.stream("q")
    q.destroy()
    with pytest.raises(SimulatedError, match=r"^<SimulatedStream 'q' .+> was destroyed before$"):
        q.destroy()
    for other in (cuda.legacy, cuda.stream_of(cuda.stream("mine").handle)):
        with pytest.raises(SimulatedError, match=r"> is not yours to destroy$"):
            other.destroy()
