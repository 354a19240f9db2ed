"""What the specification's "Synchronization" asks of who reads a dict: here the bridge.

The producer is an array whose values are still to be written by queued work on its stream, and who
writes again at the end. The last tests leave the bridge's waits out, to show that they are what
the others see.
"""

from __future__ import annotations

from typing import Any

import pytest
from fakes import OnlyCai, Trusted, interface
from producers import speaking, working_on
from scenes import again, done
from specification import (
    BLOCKS,
    WAITS,
    as_consumer,
    called,
    each_door,
    expect_returned,
    in_a_process,
    taken_on,
    values,
)

from cai_bridge import HostSyncWarning, convert, from_cai

SEEN = [7.0] * 8


def pending(cuda: Any, stream: Any, **how: Any) -> Any:
    """An array that 7 is written to, by work that is queued on `stream`."""
    x = cuda.array([0.0] * 8, speaks="cai3", stream=stream, memory="pool", name="x", **how)
    stream.fill(x, 7.0, name="the producer's write")
    return x


def written_again(producer: Any, x: Any) -> None:
    producer.fill(x, 9.0, name="the producer's next write")


def named(cuda: Any, name: str) -> Any:
    """A stream of this kind."""
    kinds = {"legacy": cuda.legacy, "per-thread": cuda.per_thread}
    return kinds.get(name) or cuda.stream(name, blocking=name == "blocking")


KINDS = ("legacy", "per-thread", "blocking", "non-blocking")
each_kind = pytest.mark.parametrize("kind", KINDS)
optional = pytest.mark.parametrize("given", [True, False], ids=["None", "not present"])


def idle(cuda: Any, given: bool) -> Any:
    """An array without pending work, whose dict says so, and means it."""
    x = cuda.array([7.0] * 8, speaks=())
    made = interface(x, shape=(8,))
    if not given:
        del made["stream"]
    return Trusted(made, keep=x)


# --- the entry ------------------------------------------------------------------------------------


@as_consumer("version-3", "stream", "stream-handle", "integer", "integer-synchronize", "choice")
@each_door
def test_the_consumers_work_runs_after_what_the_dicts_stream_has(cuda, door):
    producer = cuda.stream("producer's")
    x = pending(cuda, producer)
    assert x.__cuda_array_interface__["stream"] == producer.handle
    seen = taken_on(cuda, door(x))
    assert called(cuda, *BLOCKS) == []
    assert done(seen) == SEEN


@as_consumer("stream-1", "stream-2")
@each_door
@pytest.mark.parametrize(("said", "kind"), [(1, "legacy"), (2, "per_thread")])
def test_1_and_2_are_the_default_streams(cuda, door, said, kind):
    x = pending(cuda, getattr(cuda, kind))
    assert (x.__cuda_array_interface__["stream"], door(x).stream) == (said, said)
    assert values(cuda, door(x)) == SEEN


@as_consumer("stream-none", "none-no-wait", "nothing-enqueued")
@each_door
@optional
def test_without_a_stream_nothing_is_waited_for(cuda, door, given):
    x = idle(cuda, given)
    cuda.clear_calls()
    seen = taken_on(cuda, door(x), cuda.stream())
    assert called(cuda, *WAITS, *BLOCKS) == []
    assert done(seen) == SEEN


@as_consumer("none-any-stream")
@each_door
@each_kind
@optional
def test_without_a_stream_any_may_be_worked_on_at_once(cuda, door, given, kind):
    seen = taken_on(cuda, door(idle(cuda, given)), named(cuda, kind))
    assert done(seen) == SEEN


@as_consumer("all-pending")
@each_door
def test_waiting_on_the_provided_stream_is_all_that_is_done(cuda, door):
    library = speaking("Several", doors=("cai",))
    x, streams = library.made((8,), "float32"), [cuda.stream(name) for name in "abc"]
    for value, stream in enumerate(streams):
        with working_on(stream):
            x[value : value + 1].fill(float(value))
    mine = cuda.stream("mine")
    view = door(x)
    cuda.clear_calls()
    seen = taken_on(cuda, view, mine)
    made = called(cuda, *WAITS)  # the library's own are among them: its dict is read again
    assert made[-2:] == [
        ("cuEventRecord", streams[-1].handle),
        ("cuStreamWaitEvent", mine.handle),
    ]
    assert made.count(("cuStreamWaitEvent", mine.handle)) == 1
    cuda.synchronize()
    assert seen.value[:3] == [0.0, 1.0, 2.0]


# --- races ----------------------------------------------------------------------------------------


@as_consumer("no-races", "hazards")
@each_door
@pytest.mark.parametrize("consumer", KINDS)
@pytest.mark.parametrize("producer", KINDS)
def test_both_may_work_on_without_a_race(cuda, door, producer, consumer):
    producer, consumer = named(cuda, producer), named(cuda, consumer)
    x = pending(cuda, producer)
    view = door(x)
    seen = taken_on(cuda, view, consumer)
    view.release()
    seen.release()
    written_again(producer, x)
    cuda.synchronize()
    assert (seen.value, cuda.reports) == (SEEN, [])


@as_consumer("by-default", "user-knowledge", "exception")
@each_door
def test_a_user_who_knows_nothing_of_streams_gets_it_right(cuda, door):
    producer = cuda.stream("producer's")
    scene = type("Scene", (), {"cuda": cuda, "producer": producer})()
    scene.array = pending(cuda, producer)
    view = door(scene.array)
    seen = taken_on(cuda, view)
    del view
    seen.release()
    again(scene)  # the memory is another array's by now
    assert done(seen) == SEEN


@as_consumer("exception-documented", "documented-steps")
@pytest.mark.parametrize("step", ["stream object", "-1 after a wait"])
def test_where_the_user_has_to_say_the_stream_the_warning_says_how(cuda, step):
    producer = cuda.stream("producer's")
    x = cuda.array([7.0] * 8, speaks="cai2", stream=producer)
    silent = type("Silent" + step[0], (OnlyCai,), {})(x.__cuda_array_interface__, keep=x)
    with pytest.warns(HostSyncWarning, match=r"from_cai\(x, stream=\.\.\.\).* or -1 if nothing"):
        from_cai(silent)
    producer.fill(x, 8.0)
    if step == "-1 after a wait":
        producer.synchronize()
    cuda.clear_calls()
    view = from_cai(silent, stream=producer if step == "stream object" else -1)
    assert called(cuda, *BLOCKS) == []
    assert values(cuda, view) == [8.0] * 8


@as_consumer("override")
def test_the_user_may_leave_the_wait_out(cuda):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = pending(cuda, producer)
    mine.wait(producer.record())  # the user's own
    cuda.clear_calls()
    seen = taken_on(cuda, from_cai(x, stream=-1), mine)
    assert called(cuda, *WAITS, *BLOCKS) == []
    assert done(seen) == SEEN


# --- the producer's stream is held back -----------------------------------------------------------


@as_consumer("hold-back", "hold-back-event")
@each_door
def test_the_producers_stream_waits_for_an_event_behind_the_consumers_work(cuda, door):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = pending(cuda, producer)
    view = door(x)
    seen = taken_on(cuda, view, mine)
    cuda.clear_calls()
    view.release()
    seen.release()
    assert called(cuda, *WAITS, *BLOCKS) == [
        ("cuEventRecord", mine.handle),
        ("cuStreamWaitEvent", producer.handle),
    ]
    written_again(producer, x)
    assert done(seen) == SEEN


@as_consumer("hold-back-return")
@pytest.mark.parametrize("door", ["__dlpack__", "convert"])
def test_a_copy_on_the_host_is_done_when_the_call_returns(cuda, door):
    np = pytest.importorskip("numpy")
    producer = cuda.stream("producer's")
    x = pending(cuda, producer)
    copied = {
        "convert": lambda: convert(x, "numpy"),
        "__dlpack__": lambda: np.from_dlpack(from_cai(x), device="cpu"),
    }
    made = copied[door]()
    x.assign(0.0)  # by the host, which nothing but the call's return orders
    assert made.tolist() == SEEN


@as_consumer("integer-enqueue", "enqueue-return", "enqueue-sufficient", "choice")
@each_door
@each_kind
def test_who_works_on_the_provided_stream_pays_nothing_and_returns_at_once(cuda, door, kind):
    producer = named(cuda, kind)
    x = pending(cuda, producer)
    cuda.clear_calls()
    view = door(x)
    seen = taken_on(cuda, view, producer)
    view.release()
    seen.release()
    expect_returned(cuda, seen, producer, x)


# --- the option to ignore it ----------------------------------------------------------------------

IGNORING = """
    from cai_bridge import convert, from_cai, to_dlpack
    from cai_bridge.testing import simulated_cuda
    for door in (from_cai, to_dlpack, lambda x: convert(x, "dlpack")):
        with simulated_cuda(check=False) as cuda:
            producer = cuda.stream()
            x = cuda.array([0.0], speaks="cai3")
            producer.fill(x, 7.0)
            assert x.__cuda_array_interface__["stream"] == producer.handle
            cuda.clear_calls()
            seen = cuda.consumer("dlpack", cuda.stream()).read(door(x))
            waits = [call.call for call in cuda.calls if call.call == "cuStreamWaitEvent"]
            cuda.synchronize()
            print(len(waits), seen.value[0], len(cuda.reports) > 0)
"""


@as_consumer(
    "ignore",
    "option-consumer",
    "option-elides",
    "option-mechanism",
    "override",
    "override-no-guarantee",
)
def test_the_variable_leaves_the_waits_at_hand_over_out():
    out = in_a_process(IGNORING, CAI_BRIDGE_SYNC="0")
    assert {tuple(line.split()) for line in out.splitlines()} <= {
        ("0", "0.0", "True"),
        ("0", "7.0", "True"),
    }


@as_consumer("option-default")
@pytest.mark.parametrize("environment", [{}, {"CAI_BRIDGE_SYNC": "1"}])
def test_without_the_variable_they_are_made(environment):
    out = in_a_process(IGNORING, **environment)
    assert out.splitlines() == ["1 7.0 False"] * 3


# --- before there was a stream --------------------------------------------------------------------


@as_consumer("no-statement")
@each_door
@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_dict_that_cannot_say_is_waited_for_by_the_host(cuda, door, version):
    x = cuda.array([7.0] * 8, speaks=f"cai{version}", stream=cuda.stream("producer's"))
    cuda.clear_calls()
    view = door(x)
    assert called(cuda, *BLOCKS) == [("cuModuleUnload", None)]
    assert values(cuda, view) == SEEN


# --- that these tests see a missing wait ----------------------------------------------------------


@pytest.mark.unchecked
@pytest.mark.parametrize("call", sorted(WAITS))
@pytest.mark.parametrize("edge", ["at hand-over", "at the end"])
@each_door
def test_with_a_wait_left_out_the_values_are_wrong_or_a_race_is_reported(cuda, door, edge, call):
    producer = cuda.stream("producer's")
    x = pending(cuda, producer)
    view = door(x)
    if edge == "at hand-over":
        cuda.suppress(call)
    seen = taken_on(cuda, view)
    if edge == "at the end":
        cuda.suppress(call)
    view.release()
    seen.release()
    written_again(producer, x)
    cuda.synchronize()
    assert {report.kind for report in cuda.reports} == {"race"}
