"""What `stream=` does at each door, by what views then say and which orders were made."""

import subprocess
import sys
import textwrap
import warnings

import pytest
from fakes import (
    OnlyCai,
    Trusted,
    interface,
    only_cai,
)

from cai_bridge import HostSyncWarning, from_cai, to_cai


def said(view):
    """The stream of a `CaiView`, which its dict and its attribute agree on."""
    assert view.__cuda_array_interface__["stream"] == view.stream
    return view.stream


def orders(cuda):
    """The orders made since the calls were cleared: streams recorded on, streams that wait."""
    calls = [call for call in cuda.calls if call.call in ("cuEventRecord", "cuStreamWaitEvent")]
    return [(call.call, call.stream) for call in calls]


def order(first, then):
    return [("cuEventRecord", first), ("cuStreamWaitEvent", then)]


# --- to_cai ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("current", [None, "legacy", "per_thread", "own"])
def test_exchange_api_without_a_stream_says_the_librarys_own(current, cuda):
    x = cuda.array([1.0], speaks="exchange")
    streams = {"legacy": cuda.legacy, "per_thread": cuda.per_thread, "own": cuda.stream()}
    cuda.clear_calls()
    if current is None:
        # The table then says 0, which is no stream for CAI.
        assert said(view := to_cai(x)) == 1
    else:
        with cuda.current_stream(streams[current]) as stream:
            view = to_cai(x)
            assert said(view) == stream.handle
    assert orders(cuda) == []
    del view


@pytest.mark.parametrize("stream", [1, 2, "own", "object", "numpy"])
def test_exchange_api_with_a_stream_orders_it_and_says_it(stream, cuda):
    import numpy as np

    own, theirs = cuda.stream(), cuda.stream()
    given = {"own": own.handle, "object": own, "numpy": np.uint64(own.handle)}.get(stream, stream)
    handle = stream if isinstance(stream, int) else own.handle
    x = cuda.array([1.0], speaks="exchange")
    cuda.clear_calls()
    with cuda.current_stream(theirs):
        view = to_cai(x, stream=given)
    assert said(view) == handle
    assert orders(cuda) == order(theirs.handle, handle)


# --- from_cai -------------------------------------------------------------------------------------


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
    assert "cuModuleUnload" not in {call.call for call in cuda.calls}


@pytest.mark.parametrize("theirs", [None, 1, 2, "own"])
def test_without_one_version_3_is_taken_at_its_word_from_those_who_mean_it(theirs, cuda):
    own = cuda.stream()
    theirs = own.handle if theirs == "own" else theirs
    cuda.clear_calls()
    x = cuda.array(shape=4)
    assert from_cai(Trusted(interface(x, stream=theirs), keep=x)).stream == theirs
    assert from_cai(only_cai(x, stream=theirs)).stream == (theirs or 1)
    made = interface(x)
    del made["stream"]
    assert from_cai(Trusted(made, keep=x)).stream is None
    assert from_cai(made, owner=x).stream == 1
    assert "cuModuleUnload" not in {call.call for call in cuda.calls}


@pytest.mark.parametrize("stream", [None, -1, 1, "own"])
def test_a_view_of_our_own_is_declared_to_be_ready_where_the_caller_says(stream, cuda):
    own = cuda.stream()
    said = {None: 2, -1: None, "own": own.handle}.get(stream, stream)
    stream = own if stream == "own" else stream
    view = to_cai(only_cai(cuda.array(shape=4), stream=2))
    assert from_cai(view, stream=stream).stream == said
    assert from_cai(view, stream=own.handle).stream == 1, "nobody keeps a bare handle"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_ask_the_exchange_api_of_the_type(version, cuda):
    x = cuda.array([1.0], speaks=("exchange", f"cai{version}"))
    cuda.clear_calls()
    with cuda.current_stream(cuda.stream()) as stream:
        assert from_cai(x).stream == stream.handle
    assert from_cai(x).stream == 1
    assert from_cai(x.__cuda_array_interface__, owner=x).stream == 1
    assert "cuModuleUnload" not in {call.call for call in cuda.calls}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("call", [from_cai, to_cai])
def test_older_versions_of_other_types_wait_on_the_host_and_warn_once_a_type(call, version, cuda):
    stream = cuda.stream("late")
    x = cuda.array([1.0] * 4, speaks=(), stream=stream)
    kind = type(f"Silent{version}{call.__name__}", (OnlyCai,), {})
    made = kind(interface(x, version=version), keep=x)
    cuda.clear_calls()
    with pytest.warns(HostSyncWarning) as caught:
        view = call(made)
    assert view.stream is None
    assert [call.call for call in cuda.calls].count("cuModuleUnload") == 1
    # The work has run: the host may look.
    assert cuda.read(view) == [1.0] * 4
    (warning,) = caught
    assert kind.__qualname__ in str(warning.message)
    assert "stream=" in str(warning.message)
    assert warning.filename == __file__
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("always")
        call(kind(interface(x, version=version), keep=x))
    assert again == []
    assert [call.call for call in cuda.calls].count("cuModuleUnload") == 2


def test_the_warning_is_avoided_by_a_stream(cuda):
    x = cuda.array(shape=4)
    made = type("Quiet", (OnlyCai,), {})(interface(x, version=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = cuda.stream()
        for stream in (-1, 1, 2, own.handle, own):
            from_cai(made, stream=stream)


def test_where_the_warning_is_an_error_every_import_is_refused_and_the_array_stays_usable(cuda):
    x = cuda.array([1.0] * 4, speaks=())
    made = type("Strict", (OnlyCai,), {})(interface(x, version=2), keep=x)
    for _ in range(2):
        with pytest.raises(HostSyncWarning):
            from_cai(made)
    assert cuda.read(from_cai(made, stream=-1)) == [1.0] * 4


CHILD = """
    from cai_bridge import from_cai, to_cai
    from cai_bridge.testing import simulated_cuda
    with simulated_cuda(check=False) as cuda:
        streams = []
        for speaks in ("cai2", "cai3"):
            x = cuda.array([1.0], speaks=speaks, stream=cuda.stream())
            cuda.clear_calls()
            streams += [from_cai(x).stream is None, to_cai(x).stream is None]
            streams += [from_cai(x, stream=1).stream]
            streams += [any(call.call == "cuModuleUnload" for call in cuda.calls)]
        print(*streams)
"""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0", "True True 1 False True True 1 False"),
        ("1", "True True 1 True False False 1 False"),
        (None, "True True 1 True False False 1 False"),
    ],
)
def test_the_variable_0_leaves_waits_at_import_out(value, said, monkeypatch):
    monkeypatch.delenv("CAI_BRIDGE_SYNC", raising=False)
    if value is not None:
        monkeypatch.setenv("CAI_BRIDGE_SYNC", value)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CHILD)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.strip() == said


def test_a_bool_is_no_stream_whatever_it_hides_behind(cuda):
    class Hidden:
        def __index__(self):
            return True  # noqa: PLE0305

    with pytest.raises(TypeError, match=r"^stream: got an object of type .+; allowed: "):
        to_cai(cuda.array([1.0]), stream=Hidden())
