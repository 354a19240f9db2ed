"""The simulated device refuses what the real one, or the bridge, does: arguments by their names,
writes to read-only memory, views that were released, arrays of a device that has ended.
"""

import builtins
import contextlib
import copy
import pickle
import re

import pytest
from contract import each

from cai_bridge import DriverError, adapt, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import SimulatedError, simulated_cuda


@each("arguments", "simulated")
def test_an_argument_is_refused_by_its_name_and_nothing_is_queued(row, cuda):
    q, x = cuda.stream("q"), cuda.array([1.0])
    with cuda.capture(q) as graph:
        pass
    names = {"cuda": cuda, "q": q, "x": x, "graph": graph, "nan": float("nan"), "mute": Mute()}
    said = f"^{re.escape(row['got'])}.*; allowed: {re.escape(row['allowed'])}"
    with pytest.raises(getattr(builtins, row["class"]), match=said):
        eval(row["program"], {"simulated_cuda": simulated_cuda}, names)
    assert cuda.pending == 0


class Mute:
    def __repr__(self):
        raise ZeroDivisionError


class Three:
    """An integer of another library, as NumPy's."""

    def __index__(self):
        return 3


def test_integers_of_other_libraries_are_taken():
    with simulated_cuda(devices=Three()) as cuda:
        assert cuda.devices == 3
        assert cuda.array(shape=Three(), offset=Three()).shape == (3,)
        assert cuda.array(shape=(Three(), 2), strides=(8, 4)).shape == (3, 2)


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


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("device", [0, 1])
def test_a_wait_for_all_devices_spoils_a_capture_of_any(device, mode, cuda):
    graph = cuda.capture(cuda.stream("s", device=device), mode).__enter__()
    with pytest.raises(DriverError, match=r"^cuCtxSynchronize: got \w+_STREAM_CAPTURE_UNSUPPORTED"):
        cuda.synchronize()
    with pytest.raises(DriverError, match="STREAM_CAPTURE_INVALIDATED"):
        graph.__exit__(None, None, None)
    cuda.synchronize()


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


@pytest.mark.parametrize(
    "change",
    [
        {"typestr": None},
        {"typestr": "f"},
        {"shape": "ab"},
        {"shape": 3},
        {"strides": (1, 2, 3)},
        {"data": (1 << 70, False)},
        {"data": None},
    ],
    ids=str,
)
def test_a_dict_that_is_malformed_is_refused_by_its_name(cuda, change):
    ptr = cuda.array([1.0]).ptr
    said = {"shape": (1,), "typestr": "<f4", "data": (ptr, False), "version": 3, **change}

    class Odd:
        __cuda_array_interface__ = property(lambda _: said)

    q = cuda.stream("q")
    for use in (q.read, lambda x: q.fill(x, 1.0), lambda x: q.copy(x, x), cuda.read):
        with pytest.raises(ValueError, match=r"^__cuda_array_interface__: got a dict that is none"):
            use(Odd())
    assert cuda.pending == 0
