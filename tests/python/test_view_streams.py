"""What `stream=` does at each door, by what views then say and which orders were made."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from fakes import OnlyCai, Trusted, interface, only_cai
from moving import host_waits
from scenes import ORDER, done
from test_cuda_door_quick import cupy
from test_cuda_door_quick import pytestmark as needs_the_driver_of_stubs

from cai_bridge import HostSyncWarning, from_cai, to_cai


def orders(cuda):
    """The orders made since the calls were cleared: streams recorded on, streams that wait."""
    return [(call.call, call.stream) for call in cuda.calls if call.call in ORDER]


def order(first, then):
    return list(zip(ORDER, (first, then), strict=True))


@pytest.mark.parametrize("given", [None, 1, 2, "own", "object", "numpy"])
@pytest.mark.parametrize("current", [None, "legacy", "per_thread", "theirs"])
def test_exchange_api_says_the_librarys_own_stream_or_orders_the_given_one(current, given, cuda):
    own = cuda.stream()
    stream = {"own": own.handle, "object": own, "numpy": np.uint64(own.handle)}.get(given, given)
    x = cuda.array([1.0], speaks="exchange")
    cuda.clear_calls()
    # Without a current stream the table says 0, which is no stream for CAI.
    theirs = getattr(cuda, current or "legacy") if current != "theirs" else cuda.stream()
    if current is None:
        view = to_cai(x, stream=stream)
    else:
        with cuda.current_stream(theirs):
            view = to_cai(x, stream=stream)
    handle = {None: theirs.handle, 1: 1, 2: 2}.get(given, own.handle)
    assert view.__cuda_array_interface__["stream"] == view.stream == handle
    assert orders(cuda) == (order(theirs.handle, handle) if handle != theirs.handle else [])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("theirs", [None, 1, 2, "own"])
@pytest.mark.parametrize("stream", [1, 2, "other", "object", -1])
def test_the_callers_word_is_told_and_the_dicts_stream_is_waited_for(stream, theirs, version, cuda):
    own, other = cuda.stream(), cuda.stream()
    theirs = own.handle if theirs == "own" else theirs
    given = {"other": other.handle, "object": other}.get(stream, stream)
    x = only_cai(cuda.array(shape=4), stream=theirs, version=version)
    cuda.clear_calls()
    # Nobody keeps the bare handle: the legacy default stream replaces it.
    said = {"other": 1, "object": other.handle, -1: None}.get(stream, stream)
    assert from_cai(x, stream=given).stream == said
    # A handle is good in the call that it is given to: the legacy default stream stands in later.
    stands_in = order(other.handle, 1) if stream == "other" else []
    handle = getattr(given, "handle", given)
    both = stream != -1 and theirs not in (None, handle)
    assert orders(cuda) == (order(theirs, handle) if both else []) + stands_in
    assert host_waits(cuda) == 0


@pytest.mark.parametrize("theirs", [None, 1, 2, "own"])
def test_without_one_version_3_is_taken_at_its_word_from_those_who_mean_it(theirs, cuda):
    own, x = cuda.stream(), cuda.array(shape=4)
    theirs = own.handle if theirs == "own" else theirs
    cuda.clear_calls()
    assert from_cai(Trusted(interface(x, stream=theirs), keep=x)).stream == theirs
    assert from_cai(only_cai(x, stream=theirs)).stream == (theirs or 1)
    made = interface(x)
    del made["stream"]
    assert from_cai(Trusted(made, keep=x)).stream is None
    assert from_cai(made, owner=x).stream == 1
    assert host_waits(cuda) == 0


@pytest.mark.parametrize("stream", [None, -1, 1, "own"])
def test_a_view_of_our_own_is_declared_to_be_ready_where_the_caller_says(stream, cuda):
    own = cuda.stream()
    said = {None: 2, -1: None, "own": own.handle}.get(stream, stream)
    view = to_cai(only_cai(cuda.array(shape=4), stream=2))
    assert from_cai(view, stream=own if stream == "own" else stream).stream == said
    assert from_cai(view, stream=own.handle).stream == 1, "nobody keeps a bare handle"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_ask_the_exchange_api_of_the_type(version, cuda):
    x = cuda.array([1.0], speaks=("exchange", f"cai{version}"))
    cuda.clear_calls()
    with cuda.current_stream(cuda.stream()) as stream:
        assert from_cai(x).stream == stream.handle
    assert from_cai(x).stream == 1
    assert from_cai(x.__cuda_array_interface__, owner=x).stream == 1
    assert host_waits(cuda) == 0


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("call", [from_cai, to_cai])
def test_older_versions_of_other_types_wait_on_the_host_and_warn_once_a_type(call, version, cuda):
    late = cuda.stream("late")
    x = cuda.array([1.0] * 4, speaks=(), stream=late)
    kind, strict = (type(f"{n}{version}{call.__name__}", (OnlyCai,), {}) for n in ("One", "Other"))
    made = interface(x, version=version)
    cuda.clear_calls()
    with pytest.warns(HostSyncWarning) as caught:
        view = call(kind(made, keep=x))
    assert view.stream is None
    assert host_waits(cuda) == 1
    # The work has run: the host may look.
    assert cuda.read(view) == [1.0] * 4
    (warning,) = caught
    assert kind.__qualname__ in str(warning.message)
    assert "stream=" in str(warning.message)
    assert warning.filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", HostSyncWarning)
        call(kind(made, keep=x))
        assert host_waits(cuda) == 2
        # As an error every import is refused, and the array stays usable.
        for _ in range(2):
            with pytest.raises(HostSyncWarning):
                call(strict(made, keep=x))
        for stream in (-1, 1, 2, late.handle, late):
            assert from_cai(strict(made, keep=x), stream=stream).ptr == x.ptr


CHILD = """
    from cai_bridge import from_cai, to_cai
    from cai_bridge.testing import simulated_cuda
    with simulated_cuda(check=False) as cuda:
        for speaks in ("cai2", "cai3"):
            x = cuda.array([1.0], speaks=speaks, stream=cuda.stream())
            cuda.clear_calls()
            assert from_cai(x).stream is to_cai(x).stream is None
            assert from_cai(x, stream=1).stream == 1
            assert "cuModuleUnload" not in {call.call for call in cuda.calls}
        print("said")
"""


def test_the_variable_0_leaves_waits_at_import_out(monkeypatch):
    monkeypatch.setenv("CAI_BRIDGE_SYNC", "0")
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(CHILD)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("said\n", "")


def test_a_bool_is_no_stream_whatever_it_hides_behind(cuda):
    class Hidden:
        def __index__(self):
            return True  # noqa: PLE0305

    with pytest.raises(TypeError, match=r"^stream: got an object of type .+; allowed: "):
        to_cai(cuda.array([1.0]), stream=Hidden())


def of(module, name="Stream", base=object, **members):
    """A class of that library's."""
    return type(name, (base,), {"__module__": module, **members})


CUPYS_BASE = of("cupy.cuda.stream", "_BaseStream")
# Stream objects older than `__cuda_stream__`: the class of a library's, and what has the handle.
OLDER = {
    "torch": (of("torch.cuda.streams"), "cuda_stream"),
    "cupy": (of("cupy.cuda.stream", base=CUPYS_BASE), "ptr"),
    "warp": (of("warp._src.context"), "cuda_stream"),
    "numba": (of("numba.cuda.cudadrv.driver", __int__=lambda self: self.handle), "handle"),
}


@pytest.mark.parametrize("library", OLDER)
def test_an_object_older_than_the_protocol_is_the_stream_that_it_names(library, cuda):
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer")
    x = cuda.array([0.0] * 4, speaks="exchange", stream=producer)
    kind, attribute = OLDER[library]
    named = kind()
    setattr(named, attribute, consumer.handle)
    with cuda.current_stream(producer):
        producer.fill(x, 1.0)
        view = to_cai(x, stream=named)
    assert view.stream == consumer.handle
    seen = consumer.read(view)
    view.release()
    assert done(seen) == [1.0] * 4


OTHER = of("torch"), of("elsewhere"), of("cupy.cuda.memory", "MemoryPointer")


@pytest.mark.parametrize("other", [*(kind() for kind in OTHER), of("torch.cuda.streams")])
def test_what_names_no_stream_is_refused(other, cuda):
    if not isinstance(other, type):
        other.ptr = other.handle = 64
    with pytest.raises(TypeError, match=r"^stream: got .*; allowed: None, -1, 1, 2, a handle"):
        to_cai(cuda.array([1.0]), stream=other)


OLD_CUPY = """
    class OldStream:
        def __init__(self, handle):
            self.ptr = handle

    OldStream.__name__, OldStream.__module__ = "Stream", "cupy.cuda.stream"
    sys.modules["cupy_backends.cuda.stream"].__pyx_capi__.clear()
    current, devices = OldStream(MINE), []

    class Device:
        def __init__(self, ordinal):
            self.ordinal = ordinal
        def __enter__(self):
            devices.append(self.ordinal)
        def __exit__(self, *_):
            pass

    sys.modules["cupy.cuda"].Device = Device
    sys.modules["cupy.cuda"].get_current_stream = {of}
    view = from_cai(Array(MINE))
    assert view.stream == MINE, view.stream
    for_other = to_cai(view, stream=Stream(OTHER))
    current = OldStream(0)
    waits = calls("cuStreamWaitEvent")
    for_other.release()
    print(calls("cuStreamWaitEvent") - waits, calls("cuModuleUnload"), set(devices))
"""


@needs_the_driver_of_stubs
@pytest.mark.parametrize(
    ("of", "asked"),
    [("lambda device: current", "set()"), ("lambda: current", "{0}")],
    ids=["13", "12"],
)
def test_cupy_before_14_is_asked_for_its_stream_and_that_one_waits_at_the_end(of, asked):
    assert cupy(OLD_CUPY.replace("{of}", of)).strip() == f"1 0 {asked}"
