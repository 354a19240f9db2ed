"""Graph capture: edges become part of the graph, or are refused before they can spoil it.

What is claimed of the driver here has its twin in tests/gpu/test_driver_capture.py.
"""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from capsules import HandMade
from contract import assert_refused, each
from fakes import OnlyCai, interface, only_cai
from scenes import next_tenant
from stand_in import StandIn, no_libraries
from stream_objects import Closing

from cai_bridge import (
    DriverError,
    HostSyncWarning,
    adapt,
    convert,
    from_cai,
    register,
    to_cai,
    to_dlpack,
)
from cai_bridge.testing import SimulatedStream, simulated_cuda

__all__ = ["no_libraries"]

ORDER = ("cuEventRecord", "cuStreamWaitEvent")


# --- both streams in the capture ------------------------------------------------------------------


def fork_and_join(cuda: Any, *, release: bool = True) -> Any:
    """Capture: the producer writes, a consumer on another stream adds to a sum, the producer writes
    over it.
    """
    origin, fork = cuda.stream("origin"), cuda.stream("fork")
    array = cuda.array([0.0] * 4, speaks="cai3", name="x")
    with cuda.capture(origin) as graph:
        origin.fill(array, 7.0, name="the first write")
        view = from_cai(array)
        with cuda.current_stream(fork):
            capsule = cuda.consumer("dlpack", fork)
            seen = capsule.read(view)
        view.release()
        if release:
            seen.release()
        origin.fill(array, 8.0, name="the second write")
    return graph, origin, seen, array, fork


def test_a_hand_over_and_its_end_are_edges_of_the_graph(cuda):
    graph, origin, seen, array, _ = fork_and_join(cuda)
    for _ in range(3):
        graph.launch(origin)
        origin.synchronize()
        assert seen.value == [7.0] * 4
    assert cuda.read(array) == [8.0] * 4


@pytest.mark.unchecked
def test_without_its_end_the_fork_is_not_joined(cuda):
    with pytest.raises(RuntimeError, match="UNJOINED"):
        fork_and_join(cuda, release=False)


@pytest.mark.unchecked
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("call", ORDER)
def test_each_call_of_both_edges_is_needed(call, nth, cuda):
    cuda.suppress(call, nth=nth)
    try:
        graph, origin, *_ = fork_and_join(cuda)
        graph.launch(origin)
        cuda.synchronize()
    except RuntimeError:
        return
    assert cuda.reports


def test_a_capsule_forks_to_whatever_stream_it_is_asked_for(cuda):
    origin, fork = cuda.stream("origin"), cuda.stream("fork", blocking=True)
    array = cuda.array([0.0] * 4, speaks="exchange", name="x")
    with cuda.current_stream(origin), cuda.capture(origin) as graph:
        origin.fill(array, 7.0)
        with to_cai(array, stream=fork) as view:
            seen = fork.read(view)
    graph.launch(origin)
    origin.synchronize()
    assert seen.value == [7.0] * 4


# --- one of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("produced_on", ["legacy", "per-thread", "blocking", "non-blocking"])
def test_a_captured_consumer_waits_for_work_outside_whenever_the_graph_runs(produced_on, cuda):
    producer = {
        "legacy": cuda.legacy,
        "per-thread": cuda.per_thread,
        "blocking": cuda.stream("producer", blocking=True),
        "non-blocking": cuda.stream("producer"),
    }[produced_on]
    consumer = cuda.stream("consumer")
    array = cuda.array([0.0] * 4, speaks="cai3", name="x")
    producer.fill(array, 7.0, name="before the capture")
    with cuda.capture(consumer) as graph:
        seen = cuda.consumer("dlpack", consumer).read(from_cai(array))
    # Other orders of this thread in between: the graph's event is its own.
    other = cuda.stream("other")
    other.launch(name="unrelated")
    to_cai(only_cai(array, stream=other.handle), stream=cuda.stream())
    graph.launch(consumer)
    consumer.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.unchecked
@pytest.mark.parametrize("call", ORDER)
def test_the_wait_for_work_outside_is_needed(call, cuda):
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer")
    array = cuda.array([0.0] * 4, speaks="cai3", name="x")
    producer.fill(array, 7.0)
    with cuda.capture(consumer) as graph:
        cuda.suppress(call)
        view = from_cai(array)
        cuda.consumer("dlpack", consumer).read(view)
    graph.launch(consumer)
    cuda.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"]


def test_an_event_that_a_graph_waits_for_is_used_for_nothing_else(cuda):
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer")
    array = cuda.array([0.0] * 4, speaks="cai3", stream=producer)
    cuda.clear_calls()
    with cuda.capture(consumer):
        kept = from_cai(array).__dlpack__(stream=consumer)
    cuda.synchronize()
    (event,) = {call.event for call in cuda.calls if call.call in ORDER}
    cuda.clear_calls()
    for _ in range(3):
        to_cai(array, stream=cuda.stream("another")).release()
    assert event not in {call.event for call in cuda.calls}
    del kept
    cuda.synchronize()


def test_the_end_of_a_captured_consumer_drags_no_stream_outside_into_the_capture(cuda):
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer")
    array = cuda.array([7.0] * 4, speaks="cai3", stream=producer, name="x")
    gone = weakref.ref(array)
    with cuda.capture(consumer) as graph:
        seen = cuda.consumer("dlpack", consumer).read(from_cai(array))
        cuda.clear_calls()
        seen.release()
        assert not [call for call in cuda.calls if call.call in ORDER]
        producer.launch(name="runs at once, and is no part of the graph")
    assert cuda.pending == 2
    graph.launch(consumer)
    cuda.synchronize()
    assert seen.value == [7.0] * 4
    assert gone() is array


def test_a_captured_producer_waits_for_its_consumer_outside(cuda):
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer")
    array = cuda.array([7.0] * 4, speaks="cai3", stream=producer, name="x")
    view = from_cai(array)
    seen = cuda.consumer("dlpack", consumer).read(view)
    with cuda.capture(producer) as graph:
        seen.release()
        producer.fill(array, 8.0)
    graph.launch(producer)
    cuda.synchronize()
    assert (seen.value, cuda.read(array)) == ([7.0] * 4, [8.0] * 4)


@pytest.mark.parametrize("end", ["inside", "after"])
def test_a_view_made_before_the_capture_is_handed_over_inside_it(end, cuda):
    origin, fork = cuda.stream("origin"), cuda.stream("fork")
    array = cuda.array([0.0] * 4, speaks="cai3", stream=origin, name="x")
    view = from_cai(array)
    with cuda.capture(origin) as graph:
        origin.fill(array, 7.0)
        seen = cuda.consumer("dlpack", fork).read(view)
        if end == "inside":
            seen.release()
        else:
            origin.wait(fork.record())
    seen.release()
    view.release()
    graph.launch(origin)
    origin.synchronize()
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
    unspoiled(cuda, graph, origin)
    assert seen.value == [7.0] * 4


# --- what is refused, and spoils nothing ----------------------------------------------------------


def unspoiled(cuda: Any, graph: Any, stream: SimulatedStream) -> None:
    graph.launch(stream)
    cuda.synchronize()


@each("refusals", "object", kind="CaptureLegacy")
def test_the_legacy_stream_has_no_place_in_the_capture_of_a_blocking_one(row, cuda):
    captured, other = cuda.stream("captured", blocking=True), cuda.stream("other")
    array = cuda.array([7.0] * 4, speaks="cai3", name="x")
    with cuda.capture(captured) as graph:
        assert_refused(row, to_cai, only_cai(array, stream=1), stream=other)
        assert_refused(row, to_cai, only_cai(array, stream=1), stream=captured)
        assert_refused(row, to_cai, only_cai(array, stream=other.handle), stream=1)
        assert_refused(row, to_cai, only_cai(array, stream=captured.handle), stream=1)
        assert_refused(row, from_cai(only_cai(array, stream=captured.handle)).__dlpack__)
        # Another context is not concerned.
        far = cuda.array([7.0], device=1, speaks="cai3", stream=cuda.stream(device=1))
        to_cai(far, stream=1).release()
    unspoiled(cuda, graph, captured)


def test_the_per_thread_stream_of_another_thread_is_the_legacy_one_here(cuda):
    captured, other = cuda.stream("captured", blocking=True), cuda.stream("other")
    array = cuda.array([7.0] * 4, speaks="cai3", name="x")
    with ThreadPoolExecutor(1) as pool:
        view = pool.submit(lambda: from_cai(only_cai(array, stream=2))).result()
    with cuda.capture(captured) as graph:
        for stream in (other, captured):
            with pytest.raises(
                DriverError, match=r"^graph capture: got an edge from the per-thread"
            ):
                view.__dlpack__(stream=stream)
    unspoiled(cuda, graph, captured)


@each("refusals", "object", kind="CaptureLegacy")
def test_work_that_is_captured_does_not_fork_to_the_legacy_stream(row, cuda):
    captured = cuda.stream("captured")
    array = cuda.array([7.0] * 4, speaks="cai3", name="x")
    with cuda.capture(captured) as graph:
        captured.fill(array, 8.0)
        view = from_cai(array)
        assert_refused(row, view.__dlpack__)
        assert_refused(row, to_cai, array, stream=1)
    unspoiled(cuda, graph, captured)
    assert cuda.read(view) == [8.0] * 4


def test_a_refused_hand_over_has_no_end_to_make_later(cuda):
    captured, home = cuda.stream("captured", blocking=True), cuda.stream("home")
    array = cuda.array([7.0] * 4, speaks="cai3", name="x")
    with cuda.capture(captured) as graph:
        with pytest.raises(DriverError, match="graph capture"):
            to_cai(only_cai(array, stream=home.handle), stream=1)
        view = from_cai(only_cai(array, stream=home.handle))
        with pytest.raises(DriverError, match="graph capture"):
            view.__dlpack__(stream=1)
        with pytest.raises(DriverError, match="graph capture"):
            to_cai(view, stream=1)
        del view
    # Whoever made it may be gone: nothing touches it any more.
    home.destroy()
    unspoiled(cuda, graph, captured)
    to_cai(array)


@each("refusals", "object", kind="CaptureOther")
def test_two_captures_are_not_joined(row, cuda):
    one, other = cuda.stream("one"), cuda.stream("other")
    array = cuda.array([7.0] * 4, speaks="cai3", name="x")
    view = from_cai(only_cai(array, stream=one.handle))
    with cuda.capture(one, "relaxed") as first, cuda.capture(other, "relaxed") as second:
        assert_refused(row, view.__dlpack__, stream=other)
        assert_refused(row, to_cai, view, stream=other)
        # At the end there is nothing to refuse: neither graph has run.
        view.release(other)
    unspoiled(cuda, first, one)
    unspoiled(cuda, second, other)


@pytest.mark.parametrize("named", [True, False])
def test_a_copy_that_convert_makes_is_no_part_of_a_graph_unnoticed(named, cuda, no_libraries):
    mine, theirs = cuda.stream("mine"), cuda.stream("theirs")
    x = cuda.array([1.0], speaks="cai3", stream=theirs)
    register(StandIn({0: mine}))
    wishes = ("cai", mine) if named else ("stand_in", None)
    with cuda.capture(mine), pytest.raises(DriverError, match="graph capture: got a copy"):
        convert(x, wishes[0], stream=wishes[1], copy=True)
    made = convert(x, wishes[0], stream=wishes[1], copy=True)
    allocated = [one for one in cuda.calls if one.call == "cuMemAllocAsync"]
    assert [one.stream for one in allocated] == [mine.handle]
    del made
    cuda.synchronize()


# --- the host waits, and spoils nothing -----------------------------------------------------------

MODES = pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
SILENT = pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")


def waits(cuda: Any) -> int:
    return [call.call for call in cuda.calls].count("cuModuleUnload")


@MODES
@SILENT
@pytest.mark.parametrize("captured", ["blocking", "per-thread", "current", "the consumer's"])
def test_the_host_waits_for_an_array_that_names_no_stream(captured, mode, cuda):
    stream = cuda.per_thread if captured == "per-thread" else None
    stream = stream or cuda.stream(captured, blocking=captured == "blocking")
    array = cuda.array([0.0] * 4, speaks=(), name="x")
    silent = only_cai(array, version=2)
    cuda.stream("the producer's").fill(array, 7.0)
    consumer = stream if captured == "the consumer's" else cuda.stream("consumer")
    with cuda.current_stream(stream), cuda.capture(stream, mode) as graph:
        stream.launch(name="captured")
        seen = consumer.read(to_cai(silent, stream=consumer))
        assert (waits(cuda), cuda.pending) == (1, 0 if consumer is stream else 1)
    unspoiled(cuda, graph, stream)
    assert seen.value == [7.0] * 4


WAITING = {
    "convert": lambda x, s: convert(x, "cai", stream=s),
    "a tree": lambda x, s: convert([x], "dlpack", stream=s),
    "adapt": lambda x, s: adapt(lambda view: None, stream=s)(x),
}


@SILENT
@pytest.mark.parametrize("door", WAITING)
def test_so_it_does_for_a_consumer_that_convert_is_told_of(door, cuda):
    mine, array = cuda.stream("mine"), cuda.array([1.0] * 4, speaks=(), name="x")
    with cuda.capture(mine) as graph:
        WAITING[door](only_cai(array, version=2), mine)
        assert waits(cuda) == 1
    unspoiled(cuda, graph, mine)


@MODES
@pytest.mark.parametrize("end", ["release", "del"])
def test_the_host_waits_at_the_end_of_a_bare_handle(end, mode, cuda):
    stream, home, consumer = (cuda.stream(name) for name in ("captured", "home", "consumer"))
    x = cuda.array([7.0] * 4, speaks="cai3", memory="pool", stream=home, name="x")
    cuda.synchronize()
    with cuda.current_stream(stream), cuda.capture(stream, mode) as graph:
        view = to_cai(x, stream=consumer.handle)
        seen = consumer.read(view)
        stream.launch(name="captured")
        if end == "release":
            view.release()
        else:
            del view
        assert (waits(cuda), seen.value) == (1, [7.0] * 4)
        # It is not put off: the producer's next write need not wait for the capture to end.
        home.fill(x, 9.0)
    unspoiled(cuda, graph, stream)


@MODES
def test_the_host_waits_for_a_stream_that_was_closed(mode, cuda):
    captured, theirs = cuda.stream("captured"), cuda.stream("theirs")
    closing = Closing(theirs)
    array = cuda.array([0.0] * 4, speaks=(), name="x")
    view = from_cai(interface(array), owner=array, stream=closing)
    theirs.fill(array, 7.0)
    closing.close()
    with cuda.capture(captured, mode) as graph:
        mine = cuda.stream("mine")
        taken = to_cai(view, stream=mine)
        assert waits(cuda) == 1
        seen = mine.read(taken)
        taken.release()
        assert waits(cuda) == 2, "whoever closed it goes on on another stream"
    unspoiled(cuda, graph, captured)
    assert seen.value == [7.0] * 4


@MODES
@pytest.mark.parametrize("memory", ["managed", "pinned"])
def test_the_host_waits_for_a_reader_on_the_cpu(memory, mode, cuda):
    captured, home = cuda.stream("captured"), cuda.stream("home")
    x = cuda.array([0.0] * 4, memory=memory, speaks="cai3", stream=home)
    home.fill(x, 7.0)
    with cuda.current_stream(captured), cuda.capture(captured, mode) as graph:
        assert np.from_dlpack(to_dlpack(x)).tolist() == [7.0] * 4
        assert waits(cuda) == 1
    unspoiled(cuda, graph, captured)


@MODES
def test_a_host_wait_for_another_gpu_leaves_a_capture_alone(mode, cuda):
    array = cuda.array([7.0] * 4, speaks=(), name="x", device=1)
    silent = type(f"SilentElsewhere{mode}", (OnlyCai,), {})
    origin, far = cuda.stream("origin"), cuda.stream("far", device=1)
    far.fill(array, 8.0)
    with cuda.capture(origin, mode) as graph, pytest.warns(HostSyncWarning):
        view = from_cai(silent(interface(array, version=2), keep=array))
    graph.launch(origin)
    seen = cuda.consumer("dlpack", cuda.stream("mine", device=1)).read(view)
    cuda.synchronize()
    assert seen.value == [8.0] * 4


# --- beside a capture -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("kind", ["blocking", "non-blocking"])
def test_conversions_beside_a_foreign_capture_leave_it_alone(kind, mode, cuda):
    captured = cuda.stream("captured", blocking=kind == "blocking")
    producer, consumer = cuda.stream("producer"), cuda.stream("consumer", blocking=True)
    array = cuda.array([7.0] * 4, speaks=("exchange", "cai3"), stream=producer, name="x")
    unknown = HandMade(array.ptr)
    with cuda.capture(captured, mode) as graph, cuda.current_stream(producer):
        with to_cai(array, stream=consumer) as view:
            seen = [consumer.read(view)]
        taken = from_cai(array)
        read = cuda.consumer("dlpack", consumer).read(taken)
        read.release()
        seen.append(read)
        # A producer that says nothing of its stream: looked after by queries and a mark.
        if kind == "non-blocking":
            silent = to_cai(unknown.capsule(), stream=consumer)
            seen.append(consumer.read(silent))
            del silent
        to_cai(array)
    graph.launch(captured)
    cuda.synchronize()
    assert {tuple(read.value) for read in seen} == {(7.0,) * 4}
    assert unknown.deleted == (kind == "non-blocking")


def test_an_end_that_has_to_wait_for_a_capture_to_end_comes_then(cuda):
    captured, consumer = cuda.stream("captured", blocking=True), cuda.stream("consumer")
    array = cuda.array([7.0] * 4, memory="pool", stream=cuda.legacy, speaks="cai3", name="x")
    seen = cuda.consumer("dlpack", consumer).read(from_cai(array))
    gone, block = weakref.ref(array), array.ptr
    with cuda.capture(captured) as graph:
        del array
        seen.release()
        gc.collect()
        # The legacy default stream may not be touched now, so the memory stays where it is.
        assert gone() is not None
    to_cai(cuda.array([1.0]))
    assert gone() is None
    next_tenant(cuda.legacy, block, 4)
    cuda.synchronize()
    assert seen.value == [7.0] * 4
    unspoiled(cuda, graph, captured)


def test_a_release_that_has_to_wait_for_a_capture_to_end_says_so():
    with simulated_cuda() as cuda:
        captured, consumer = cuda.stream("captured", blocking=True), cuda.stream("consumer")
        array = cuda.array([7.0] * 4, speaks="cai3", stream=cuda.legacy, name="x")
        view = to_cai(array, stream=consumer)
        with cuda.capture(captured) as graph:
            with pytest.raises(
                DriverError, match=r"^graph capture: got an edge from .+; allowed: "
            ):
                view.release()
            assert view.owner is array
        view.release()
        unspoiled(cuda, graph, captured)


@pytest.mark.parametrize("kind", ["blocking", "per-thread"])
@pytest.mark.parametrize("end", ["release", "end"])
def test_what_the_legacy_stream_is_done_with_is_not_asked_of_it_beside_a_capture(end, kind, cuda):
    array = cuda.array([7.0] * 4, speaks="dlpack", name="x")
    # The producer's stream is unknown, and the consumer's is the one that stands in: no edge.
    view, gone = to_cai(array, stream=cuda.legacy), weakref.ref(array)
    captured = cuda.per_thread if kind == "per-thread" else cuda.stream(blocking=True)
    with cuda.capture(captured) as graph:
        del array
        if end == "release":
            view.release()
        del view
        assert gone() is not None
    to_cai(cuda.array([1.0]))
    assert gone() is None
    unspoiled(cuda, graph, captured)


def test_a_view_of_no_elements_orders_nothing_in_a_capture_either(cuda):
    outside, captured = cuda.stream("outside"), cuda.stream("captured")
    view = to_cai(cuda.array(shape=0, speaks="cai3", stream=outside), stream=outside)
    assert (view.stream, view.__cuda_array_interface__["stream"]) == (None, None)
    cuda.clear_calls()
    with cuda.capture(captured) as graph:
        to_cai(view, stream=captured)
        from_cai(view).__dlpack__(stream=captured)
    assert not [call for call in cuda.calls if call.call == "cuStreamWaitEvent"]
    unspoiled(cuda, graph, captured)
