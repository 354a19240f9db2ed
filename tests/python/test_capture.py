"""Graph capture: edges become part of the graph, or are refused before they can spoil it.

What is claimed of the driver here has its twin in tests/gpu/test_driver_capture.py.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from contract import assert_refused, each
from fakes import Closing, only_cai
from moving import host_waits
from scenes import ORDER, STREAMS, next_tenant, stream_of

from cai_bridge import DriverError, adapt, convert, from_cai, to_cai, to_dlpack

MODES = pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
REFUSED = r"^graph capture: got an edge from .+; allowed: "


def launched(cuda: Any, graph: Any, stream: Any) -> None:
    """The capture was spoiled by nothing: its graph runs."""
    graph.launch(stream)
    cuda.synchronize()


def fork_and_join(cuda: Any, blocking: bool = False, made: str = "inside") -> Any:
    """Capture a write, a read on another stream between hand-over and end, and a write over it."""
    origin, fork = cuda.stream("origin"), cuda.stream("fork", blocking=blocking)
    array = cuda.array([0.0] * 4, speaks="cai3", stream=origin, name="x")
    view = from_cai(array)
    with cuda.capture(origin) as graph:
        origin.fill(array, 7.0, name="the first write")
        if made == "inside":
            view = from_cai(array)
        with cuda.current_stream(fork):
            seen = cuda.consumer("dlpack", fork).read(view)
        view.release()
        seen.release()
        origin.fill(array, 8.0, name="the second write")
    return graph, origin, seen, array


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("made", ["before", "inside"])
def test_a_hand_over_and_its_end_are_edges_of_the_graph(made, blocking, cuda):
    graph, origin, seen, array = fork_and_join(cuda, blocking, made)
    for _ in range(3):
        graph.launch(origin)
        origin.synchronize()
        assert seen.value == [7.0] * 4
    assert cuda.read(array) == [8.0] * 4


@pytest.mark.unchecked
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("call", ORDER)
def test_each_call_of_both_edges_is_needed(call, nth, cuda):
    cuda.suppress(call, nth=nth)
    try:
        graph, origin, *_ = fork_and_join(cuda)
        launched(cuda, graph, origin)
    except RuntimeError:  # the fork was not joined
        return
    assert cuda.reports


@pytest.mark.unchecked
@pytest.mark.parametrize("without", [None, *ORDER])
@pytest.mark.parametrize("produced_on", STREAMS)
def test_a_captured_consumer_waits_for_work_outside_whenever_the_graph_runs(
    produced_on, without, cuda
):
    producer, consumer = stream_of(cuda, produced_on), cuda.stream("consumer")
    array = cuda.array([0.0] * 4, speaks="cai3", name="x")
    producer.fill(array, 7.0, name="before the capture")
    with cuda.capture(consumer) as graph:
        if without:
            cuda.suppress(without)
        seen = cuda.consumer("dlpack", consumer).read(from_cai(array))
        cuda.clear_calls()
        seen.release()
        producer.launch(name="runs at once, and is no part of the graph")
        assert not [call for call in cuda.calls if call.call in ORDER], "the end drags it in"
    # Other orders of this thread in between: the graph's event is its own.
    other = cuda.stream("other")
    other.launch(name="unrelated")
    for _ in range(3):
        to_cai(only_cai(array, stream=other.handle), stream=cuda.stream())
    graph.launch(consumer)
    consumer.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"] * (without is not None)
    assert without or seen.value == [7.0] * 4


@contextlib.contextmanager
def captured(cuda: Any, whose: str, producer: Any, mine: Any) -> Any:
    """A capture of the consumer's stream, the producer's, or of both; then the fork is joined."""
    origin, fork = (producer, mine) if whose == "the producer's" else (mine, producer)
    with cuda.capture(origin) as graph:
        if whose == "both":
            fork.wait(origin.record())
        yield graph
        if whose == "both":
            origin.wait(fork.record())


HANDED_OVER = {
    "to_cai": lambda x, on: to_cai(x, stream=on),
    "to_dlpack": lambda x, on: to_dlpack(x, stream=on),
    "from_cai of a view": lambda x, on: from_cai(to_cai(x), stream=on),
    "a capsule": lambda x, on: to_dlpack(x).__dlpack__(stream=on),
    "a capsule of a view": lambda x, on: to_dlpack(x, stream=on).__dlpack__(stream=-1),
    "declared": lambda x, on: to_cai(from_cai(x, stream=on), stream=on),
    "a capsule for a handle": lambda x, on: to_cai(
        to_dlpack(x).__dlpack__(stream=on.handle), stream=on
    ),
    "a list": lambda x, on: convert([x, x], "cai", stream=on)[1],
}
USED = {
    "on its stream": lambda x, on, _: on.read(to_cai(x, stream=on)),
    "on another stream": lambda x, _, other: other.read(to_cai(x, stream=other)),
    "a capsule": lambda x, on, _: on.read(to_cai(to_dlpack(x).__dlpack__(stream=on))),
    "a list": lambda x, on, _: on.read(convert([x, x], "cai", stream=on)[1]),
    "the dict": lambda x, on, _: on.read(only_cai(x, **to_cai(x).__cuda_array_interface__)),
    "a copy": lambda x, on, _: on.read(convert(x, "cai", stream=on, copy=True)),
    "the host": lambda x, on, _: convert(x, "numpy"),
}


@pytest.mark.unchecked
@pytest.mark.parametrize("without", [None, "cuStreamWaitEvent"])
@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("door", HANDED_OVER)
@pytest.mark.parametrize("whose", ["the consumer's", "both"])
def test_what_waited_in_a_graph_waits_again_outside(whose, door, used, without, cuda):
    producer, mine, other = (cuda.stream(name) for name in ("producer", "mine", "other"))
    x = cuda.array([7.0] * 4, speaks="cai3", stream=producer, name="x")
    with captured(cuda, whose, producer, mine):
        array = HANDED_OVER[door](x, mine)
    if without:
        for nth in range(1, 9):
            cuda.suppress(without, nth=nth)
    if type(array).__name__ == "PyCapsule":
        array = to_cai(array, stream=mine)
    seen = USED[used](array, mine, other)
    cuda.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"] * (without is not None)
    if not without:
        assert list(seen if used == "the host" else seen.value) == [7.0] * 4


@pytest.mark.parametrize("blocking", [False, True])
def test_the_dict_for_a_bare_handle_has_the_host_wait_after_the_capture(blocking, cuda):
    producer, mine = cuda.stream("producer"), cuda.stream("mine", blocking=blocking)
    x = cuda.array([7.0] * 4, speaks="cai3", stream=producer, name="x")
    with cuda.capture(mine):
        view = to_cai(x, stream=mine.handle)
    seen = mine.read(only_cai(x, **view.__cuda_array_interface__))
    cuda.synchronize()
    assert seen.value == [7.0] * 4


class Deaf:
    """An array of an unknown library that ignores the stream."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **asked: Any) -> Any:
        return self.array.__dlpack__(stream=-1, **asked)

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


@pytest.mark.parametrize("blocking", [False, True])
def test_a_stranger_that_ignores_the_stream_is_waited_for_again_outside(blocking, cuda):
    array, mine = cuda.array([0.0] * 4, speaks="dlpack"), cuda.stream("mine", blocking=blocking)
    cuda.legacy.fill(array, 7.0)
    with cuda.capture(mine):
        view = to_cai(Deaf(array), stream=mine)
    seen = mine.read(to_cai(view, stream=mine))
    cuda.synchronize()
    assert seen.value == [7.0] * 4


ENDS = {
    "release": lambda views: views[0].release(),
    "release with the stream": lambda views: views[0].release(views[0].stream),
    "its last reference": list.clear,
}


@pytest.mark.unchecked
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", ["to_cai", "a view of it", "the dict", "a capsule"])
@pytest.mark.parametrize("whose", ["the consumer's", "the producer's", "both"])
def test_an_end_in_a_capture_covers_what_the_stream_did_before(whose, way, end, cuda):
    producer, mine = cuda.stream("producer"), cuda.stream("mine")
    x = cuda.array([7.0] * 4, speaks="cai3", stream=producer, name="x")
    with cuda.current_stream(mine):
        views = [to_cai(x) if way == "the dict" else to_cai(x, stream=mine)]
        if way == "the dict":
            assert views[0].__cuda_array_interface__["stream"] == producer.handle
            mine.wait(producer.record())
        elif way == "a view of it":
            views = [to_cai(views[0])]
        elif way == "a capsule":
            views = [to_cai(to_dlpack(views.pop()).__dlpack__(stream=mine.handle), stream=mine)]
        seen = mine.read(views[0])
        with captured(cuda, whose, producer, mine):
            ENDS[end](views)
        producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert ([str(report) for report in cuda.reports], seen.value) == ([], [7.0] * 4)


@pytest.mark.parametrize("whose", ["the consumer's", "both"])
def test_an_end_in_the_capture_of_its_hand_over_waits_for_nothing(whose, cuda):
    producer, mine = cuda.stream("producer"), cuda.stream("mine")
    x = cuda.array([7.0] * 4, speaks="cai3", stream=producer, name="x")
    cuda.synchronize()
    with captured(cuda, whose, producer, mine) as graph:
        view = to_cai(x, stream=mine)
        again = to_dlpack(view)
        seen = mine.read(view)
        view.release()
        again.release()
        assert not host_waits(cuda)
    launched(cuda, graph, mine)
    assert seen.value == [7.0] * 4


@each("refusals", "object", kind="CaptureHandle")
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("speaks", ["cai3", ("dlpack", "cai3")])
def test_the_end_of_a_bare_handles_view_is_refused_in_its_capture(row, speaks, blocking, cuda):
    producer, mine = cuda.stream("producer"), cuda.stream("mine", blocking=blocking)
    x = cuda.array([0.0] * 4, speaks=speaks, stream=producer)
    with cuda.capture(producer) as graph:
        producer.fill(x, 7.0)
        view = to_cai(x, stream=mine.handle)
        seen = mine.read(view)
        error = assert_refused(row, view.release)
        assert (error.call, error.code) == (None, None)
        if blocking:
            # For a blocking stream that nothing keeps the legacy default one stands in.
            producer.wait(mine.record())
        else:
            view.release(mine)
        producer.fill(x, 8.0)
    view.release()
    for _ in range(2):
        launched(cuda, graph, producer)
        assert seen.value == [7.0] * 4


@pytest.mark.parametrize("blocking", [False, True])
def test_a_bare_handles_capture_is_known_beside_the_legacy_stream(blocking, cuda):
    producer, mine = cuda.stream("producer", blocking=True), cuda.stream("mine", blocking=blocking)
    array = cuda.array([0.0] * 4, speaks=("dlpack", "cai3"), stream=producer)
    cuda.synchronize()
    with cuda.capture(producer):
        view = to_cai(Deaf(array), stream=mine.handle)
        mine.read(view)
        with pytest.raises(DriverError, match="named by its handle alone, to be joined"):
            view.release()
        producer.wait(mine.record())


def test_what_waited_in_a_graph_does_not_wait_again_inside(cuda):
    producer, mine = cuda.stream("producer"), cuda.stream("mine")
    x = cuda.array([7.0] * 4, speaks="cai3", stream=producer, name="x")
    with cuda.capture(mine) as graph:
        view = to_cai(x, stream=mine)
        cuda.clear_calls()
        again = to_cai(view, stream=mine)
        assert again.__cuda_array_interface__["stream"] == mine.handle
        seen = mine.read(again)
        assert not [call for call in cuda.calls if call.call in ORDER]
    launched(cuda, graph, mine)
    assert seen.value == [7.0] * 4


@pytest.mark.parametrize("named", ["before", "inside"])
@pytest.mark.parametrize("way", ["handle", "object", "producer"])
def test_a_captured_stream_is_not_asked_for_its_number(way, named, cuda):
    """The driver ends the capture of a stream that is asked for it."""
    origin, fork = cuda.stream("origin"), cuda.stream("fork")
    array = cuda.array([7.0] * 4, speaks="cai3", stream=origin, name="x")

    def hand_over() -> Any:
        if way == "producer":
            dictionary = array.__cuda_array_interface__
            declared = from_cai(dictionary, owner=array, stream=Closing(origin))
            return declared.__dlpack__(stream=fork)
        return to_cai(array, stream=fork.handle if way == "handle" else Closing(fork))

    if named == "before":
        view = hand_over()
    cuda.clear_calls()
    with cuda.capture(origin) as graph:
        fork.wait(origin.record())
        if named == "inside":
            view = hand_over()
        seen = fork.read(array)
        with cuda.current_stream(fork):
            del view
        origin.wait(fork.record())
        assert "cuStreamGetId" not in {call.call for call in cuda.calls}
    launched(cuda, graph, origin)
    assert seen.value == [7.0] * 4


@each("refusals", "object", kind="CaptureLegacy")
def test_the_legacy_stream_has_no_place_in_the_capture_of_a_blocking_one(row, cuda):
    captured, other = cuda.stream("captured", blocking=True), cuda.stream("other")
    array = cuda.array([7.0] * 4, speaks="cai3", name="x")
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(lambda: from_cai(only_cai(array, stream=2))).result()
    with cuda.capture(captured) as graph:
        assert_refused(row, to_cai, only_cai(array, stream=1), stream=other)
        assert_refused(row, to_cai, only_cai(array, stream=1), stream=captured)
        assert_refused(row, to_cai, only_cai(array, stream=other.handle), stream=1)
        assert_refused(row, to_cai, only_cai(array, stream=captured.handle), stream=1)
        assert_refused(row, from_cai(only_cai(array, stream=captured.handle)).__dlpack__)
        # Another thread's per-thread stream is the legacy one here.
        for stream in (other, captured):
            with pytest.raises(DriverError, match=r"^graph capture: got .* from the per-thread"):
                elsewhere.__dlpack__(stream=stream)
        # Another context is not concerned.
        far = cuda.array([7.0], device=1, speaks="cai3", stream=cuda.stream(device=1))
        to_cai(far, stream=1).release()
    launched(cuda, graph, captured)


@each("refusals", "object", kind="CaptureLegacy")
def test_work_that_is_captured_does_not_fork_to_the_legacy_stream(row, cuda):
    captured = cuda.stream("captured")
    array = cuda.array([7.0] * 4, speaks="cai3", name="x")
    with cuda.capture(captured) as graph:
        captured.fill(array, 8.0)
        view = from_cai(array)
        assert_refused(row, view.__dlpack__)
        assert_refused(row, to_cai, array, stream=1)
    launched(cuda, graph, captured)
    assert cuda.read(view) == [8.0] * 4


def test_a_refused_hand_over_has_no_end_to_make_later(cuda):
    captured, home = cuda.stream("captured", blocking=True), cuda.stream("home")
    array = cuda.array([7.0] * 4, speaks="cai3", name="x")
    with cuda.capture(captured) as graph:
        view = from_cai(only_cai(array, stream=home.handle))
        with pytest.raises(DriverError, match=REFUSED):
            view.__dlpack__(stream=1)
        with pytest.raises(DriverError, match=REFUSED):
            to_cai(view, stream=1)
        del view
    # Whoever made it may be gone: nothing touches it any more.
    home.destroy()
    launched(cuda, graph, captured)
    to_cai(array)


@each("refusals", "object", kind="CaptureOther")
def test_two_captures_are_not_joined(row, cuda):
    one, other, third = (cuda.stream(name) for name in ("one", "other", "third"))
    array = cuda.array([7.0] * 4, speaks="cai3", name="x")
    arrays = [only_cai(array, stream=stream.handle) for stream in (one, other)]
    view = from_cai(arrays[0])
    with cuda.capture(one, "relaxed") as first, cuda.capture(other, "relaxed") as second:
        assert_refused(row, view.__dlpack__, stream=other)
        assert_refused(row, to_cai, view, stream=other)
        with pytest.raises(DriverError, match=r"got an edge from the stream .* to the stream"):
            convert(arrays, "cai", stream=third)
        # At the end there is nothing to refuse: neither graph has run.
        view.release(other)
    launched(cuda, first, one)
    launched(cuda, second, other)


def test_of_a_tree_that_is_refused_no_edge_is_made(cuda):
    """A stream that waits for captured work joins the capture, whose end would fail."""
    captured, consumer = cuda.stream("captured", blocking=True), cuda.stream("consumer")
    arrays = [cuda.array([1.0], stream=s, speaks="cai3") for s in (captured, cuda.legacy)]
    cuda.legacy.fill(arrays[1], 2.0)
    with (
        cuda.capture(captured),
        pytest.raises(DriverError, match=r"got an edge from the legacy default stream \(1\) to"),
    ):
        convert(arrays, "cai", stream=consumer)
    cuda.synchronize()


# Where the host waits in a capture: before it, inside, and after its graph has run.


def unnamed(cuda, captured, on="another"):
    x = cuda.array([0.0] * 4, speaks=(), name="x")
    cuda.stream("the producer's").fill(x, 7.0)
    consumer = captured if on == "captured" else cuda.stream("consumer")
    yield
    captured.launch(name="captured")
    seen = consumer.read(to_cai(only_cai(x, version=2), stream=consumer))
    assert (host_waits(cuda), cuda.pending) == (1, int(on != "captured"))
    yield
    assert seen.value == [7.0] * 4


def told(call, cuda, captured):
    x = only_cai(cuda.array([1.0] * 4, speaks=()), version=2)
    yield
    call(x, captured)
    assert host_waits(cuda) == 1
    yield


def bare_handle(cuda, captured, end=lambda views: views[0].release()):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    x = cuda.array([7.0] * 4, speaks="cai3", memory="pool", stream=home, name="x")
    cuda.synchronize()
    yield
    views = [to_cai(x, stream=consumer.handle)]
    seen = consumer.read(views[0])
    captured.launch(name="captured")
    end(views)
    assert (host_waits(cuda), seen.value) == (1, [7.0] * 4)
    # It is not put off: the producer's next write need not wait for the capture to end.
    home.fill(x, 9.0)
    yield


def closed(cuda, captured):
    closing, mine = Closing(cuda.stream("theirs")), cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks=(), name="x")
    view = from_cai(only_cai(x), stream=closing)
    closing.stream.fill(x, 7.0)
    closing.close()
    yield
    taken = to_cai(view, stream=mine)
    assert host_waits(cuda) == 1
    seen = mine.read(taken)
    taken.release()
    assert host_waits(cuda) == 2, "whoever closed it goes on on another stream"
    yield
    assert seen.value == [7.0] * 4


def reader_on_the_cpu(cuda, captured, memory="managed"):
    home = cuda.stream("home")
    x = cuda.array([0.0] * 4, memory=memory, speaks="cai3", stream=home)
    home.fill(x, 7.0)
    yield
    assert np.from_dlpack(to_dlpack(x)).tolist() == [7.0] * 4
    assert host_waits(cuda) == 1
    yield


def another_gpu(cuda, captured):
    x, far = cuda.array([7.0] * 4, speaks=(), device=1), cuda.stream("far", device=1)
    far.fill(x, 8.0)
    yield
    view = from_cai(only_cai(x, version=2))
    assert host_waits(cuda) == 1
    yield
    seen = cuda.consumer("dlpack", cuda.stream("mine", device=1)).read(view)
    cuda.synchronize()
    assert seen.value == [8.0] * 4


WAITS = {
    "no stream named": unnamed,
    "no stream named, blocking": unnamed,
    "no stream named, per-thread": unnamed,
    "no stream named, for the captured one": partial(unnamed, on="captured"),
    "convert": partial(told, lambda x, s: convert(x, "cai", stream=s)),
    "a tree": partial(told, lambda x, s: convert([x], "dlpack", stream=s)),
    "adapt": partial(told, lambda x, s: adapt(lambda view: None, stream=s)(x)),
    "a bare handle": bare_handle,
    "a bare handle's last reference": partial(bare_handle, end=list.clear),
    "a stream that was closed": closed,
    "a reader on the CPU": reader_on_the_cpu,
    "a reader on the CPU of pinned memory": partial(reader_on_the_cpu, memory="pinned"),
    "another GPU": another_gpu,
}


@MODES
@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
@pytest.mark.parametrize("why", WAITS)
def test_the_host_waits_and_leaves_the_capture_alone(why, mode, cuda):
    captured = stream_of(cuda, why.partition(", ")[2], "captured")
    parts = WAITS[why](cuda, captured)
    next(parts)
    with cuda.current_stream(captured), cuda.capture(captured, mode) as graph:
        next(parts)
    launched(cuda, graph, captured)
    next(parts, None)


def test_an_end_that_has_to_wait_for_a_capture_to_end_comes_then(cuda):
    captured, consumer = cuda.stream("captured", blocking=True), cuda.stream("consumer")
    array = cuda.array([7.0] * 4, memory="pool", stream=cuda.legacy, speaks="cai3", name="x")
    view = to_cai(array, stream=consumer)
    seen = cuda.consumer("dlpack", consumer).read(from_cai(array))
    gone, block = weakref.ref(array), array.ptr
    with cuda.capture(captured) as graph:
        # The legacy default stream may not be touched now, so the memory stays where it is.
        with pytest.raises(DriverError, match=REFUSED):
            view.release()
        assert view.owner is array
        del array, view
        seen.release()
        gc.collect()
        assert gone() is not None
    to_cai(cuda.array([1.0]))
    assert gone() is None
    next_tenant(cuda.legacy, block, 4)
    launched(cuda, graph, captured)
    assert seen.value == [7.0] * 4


@pytest.mark.parametrize("kind", ["blocking", "per-thread"])
@pytest.mark.parametrize("end", ["release", "end"])
def test_what_the_legacy_stream_is_done_with_is_not_asked_of_it_beside_a_capture(end, kind, cuda):
    array = cuda.array([7.0] * 4, speaks="dlpack", name="x")
    # The producer's stream is unknown, and the consumer's is the one that stands in: no edge.
    view, gone = to_cai(array, stream=cuda.legacy), weakref.ref(array)
    captured = stream_of(cuda, kind)
    with cuda.capture(captured) as graph:
        del array
        if end == "release":
            view.release()
        del view
        assert gone() is not None
    to_cai(cuda.array([1.0]))
    assert gone() is None
    launched(cuda, graph, captured)
