"""Contexts: streams of another device are refused, and nothing is used after its context."""

import gc
import weakref

import pytest
from capsules import HandMade
from moving import host_waits

from cai_bridge import _core, from_cai, to_cai


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "dlpack-bare", "cai3"])
@pytest.mark.parametrize("given", ["object", "handle"])
@pytest.mark.parametrize("device", [0, 1])
def test_a_consumers_stream_of_another_device_is_refused_by_its_number(device, given, speaks, cuda):
    stream = cuda.stream(device=1 - device)
    wrong = stream if given == "object" else stream.handle
    x = cuda.array([7.0], device=device, speaks=speaks)
    said = rf"^stream: got .* of device {1 - device} for an array on device {device}; allowed: a st"
    refused = pytest.raises(ValueError, match=said)
    with refused:
        to_cai(x, stream=wrong)
    view = from_cai(x, stream=1) if speaks == "cai3" else from_cai(to_cai(x))
    with refused:
        view.__dlpack__(stream=wrong)
    with refused:
        from_cai(to_cai(x), stream=wrong)
    with refused:
        view.release(wrong)
    assert cuda.read(view) == [7.0]
    assert cuda.current_device == 0


# A context ends and its address is used again: what belonged to it is not touched any more.


def test_an_event_of_the_life_before_is_never_used_again(cuda):
    for _ in range(3):
        producer, consumer = cuda.stream(), cuda.stream()
        x = cuda.array([0.0] * 4, speaks="cai3", stream=producer)
        producer.fill(x, 7.0)
        view = to_cai(x, stream=consumer)
        seen = consumer.read(view)
        del view
        cuda.synchronize()
        assert seen.value == [7.0] * 4
        seen.release()
        del x
        cuda.reset_device()


@pytest.mark.parametrize("how", ["stream object", "exporter", "default", "unnamed", "capsule"])
def test_what_ends_after_its_context_touches_no_stream_of_it(how, cuda):
    home, mine = cuda.stream("home"), cuda.stream("mine")
    x = cuda.array([1.0] * 4, speaks="cai3", stream=home)
    held = {
        "stream object": lambda: to_cai(x, stream=mine),
        "exporter": lambda: from_cai(x).__dlpack__(stream=1),
        "default": lambda: to_cai(x, stream=1),
        "unnamed": lambda: to_cai(x),
        "capsule": lambda: from_cai(x).__dlpack__(stream=mine),
    }[how]()
    if how == "unnamed":
        cuda.consumer("cai-waits", mine).read(held).release()
    cuda.reset_device()
    gone = weakref.ref(x)
    x = None
    del held
    gc.collect()
    assert gone() is None
    assert _core._settle() == 0


@pytest.mark.parametrize("speaks", ["cai3", ("dlpack", "cai3")])
@pytest.mark.parametrize("first", ["legacy", "per_thread"])
def test_a_stream_that_an_exporter_moved_to_ends_with_its_context(first, speaks, cuda):
    default, home, mine = getattr(cuda, first), cuda.stream("home"), cuda.stream("mine")
    x = cuda.array([1.0] * 4, speaks=speaks, stream=default)
    view = to_cai(x, stream=mine)
    home.wait(default.record())
    x.streams = (default,)
    home.fill(x, 2.0)
    cuda.synchronize()
    cuda.reset_device()
    gone = weakref.ref(x)
    del x, view
    assert gone() is None


def test_what_waits_for_a_mark_of_it_is_let_go(cuda, caplog):
    mine = cuda.stream("mine")
    x = cuda.array([1.0] * 4, speaks=())
    tensor = HandMade(x.ptr, owner=x)
    view = to_cai(tensor.capsule(), stream=mine)
    mine.launch(name="late")
    del view
    assert (tensor.deleted, _core._settle()) == (0, 1)
    cuda.fail("cuEventQuery", 1, "CUDA_ERROR_NOT_READY")
    cuda.reset_device()
    assert _core._settle() == 0
    assert tensor.deleted == 1
    assert "producer=let go" in caplog.text


def test_a_hand_over_after_it_says_that_the_context_is_another(cuda):
    home, other = cuda.stream("home"), cuda.stream("other", device=1)
    x = cuda.array([1.0] * 4, speaks="cai3", stream=home)
    view = from_cai(x)
    cuda.reset_device()
    fresh = cuda.stream("fresh")
    # Nobody keeps a stream of a life that is over: the host waits, and nothing is pending any more.
    view.__dlpack__(stream=fresh)
    del other


@pytest.mark.parametrize("what", ["a copy", "a view"])
def test_what_went_with_its_context_is_not_waited_for_beside_a_capture(cuda, what):
    theirs = cuda.stream("theirs", device=1)
    x = cuda.array([1.0] * 4, speaks="exchange", memory="managed")
    view = from_cai(to_cai(x), device=None if what == "a copy" else (2, 1))
    asks = {"dl_device": (2, 1), "copy": True} if what == "a copy" else {}
    held = view.__dlpack__(stream=theirs, **asks)
    cuda.synchronize()
    cuda.reset_device(1)
    cuda.clear_calls()
    with cuda.capture(cuda.stream("captured"), "global"):
        del held
        gc.collect()
    assert host_waits(cuda) == 0
