"""What the specification asks about streams and lifetimes, as consumer and as producer.

`test_order_matrix.py` and `test_give_back.py` show most of it, each wait left out in turn. Here is
what their tables do not have.
"""

import gc
import weakref

import pytest
from children import assert_quiet
from fakes import OnlyCai, Trusted, interface, only_cai
from producers import speaking, working_on
from scenes import done
from specification import (
    BLOCKS,
    DOORS,
    WAITS,
    as_consumer,
    as_producer,
    called,
    each_door,
    each_producer,
    each_way,
    taken_on,
)

from cai_bridge import HostSyncWarning, convert, from_cai, to_cai
from cai_bridge._core import _settle

SEEN = [7.0] * 8
KINDS = ("legacy", "per-thread", "blocking", "non-blocking")
each_kind = pytest.mark.parametrize("kind", KINDS)


def pending(cuda, stream, speaks="cai3"):
    """An array that 7 is written to, by work that is queued on `stream`."""
    x = cuda.array([0.0] * 8, speaks=speaks, stream=stream, memory="pool", name="x")
    stream.fill(x, 7.0, name="the producer's write")
    return x


def named(cuda, kind):
    """A stream of this kind."""
    kinds = {"legacy": cuda.legacy, "per-thread": cuda.default_stream(0, per_thread=True)}
    return kinds.get(kind) or cuda.stream(kind, blocking=kind == "blocking")


def stream_of(view):
    return view.__cuda_array_interface__["stream"]


@as_consumer("stream-none", "none-no-wait", "none-any-stream", "nothing-enqueued")
@as_producer("stream-none", "none-no-wait", "none-any-stream", "nothing-enqueued")
@pytest.mark.parametrize("door", [*DOORS.values(), to_cai], ids=[*DOORS, "to_cai"])
@each_kind
@pytest.mark.parametrize("given", [True, False], ids=["None", "not present"])
def test_without_a_stream_any_may_be_worked_on_at_once(cuda, door, given, kind):
    x = cuda.array([7.0] * 8, speaks=())
    said = interface(x, shape=(8,))
    if not given:
        del said["stream"]
    view, mine = door(Trusted(said, keep=x)), named(cuda, kind)
    cuda.clear_calls()
    seen = taken_on(cuda, view, mine)
    assert called(cuda, *WAITS, *BLOCKS) == []
    assert done(seen) == SEEN


@as_producer("stream-0", "stream-0-instead", "stream-1", "stream-2", "stream-handle")
@each_producer
@each_kind
def test_1_and_2_in_a_views_dict_are_the_default_streams_and_others_are_handles(cuda, speaks, kind):
    producer, mine = cuda.stream("producer's"), named(cuda, kind)
    x = pending(cuda, producer, speaks)
    with pytest.raises(ValueError, match=r"^stream: got 0; allowed: "):
        to_cai(x, stream=0)
    with cuda.current_stream(producer):
        view = to_cai(x, stream=mine)
    assert stream_of(view) == {"legacy": 1, "per-thread": 2}.get(kind, mine.handle)
    seen = mine.read(view)
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
    assert done(taken_on(cuda, view)) == [8.0] * 8


@as_consumer("override", "override-no-guarantee")
@as_producer("override", "override-no-guarantee", "option-producer", "option-mechanism")
@pytest.mark.unchecked
@pytest.mark.parametrize("waited", [True, False], ids=["the user waited", "nobody waited"])
@pytest.mark.parametrize(
    ("door", "speaks"), [(from_cai, "cai3"), (to_cai, "cai3"), (to_cai, "exchange")]
)
def test_minus_1_waits_for_nothing_and_is_right_if_the_user_waited(cuda, door, speaks, waited):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = pending(cuda, producer, speaks)
    if waited:
        mine.wait(producer.record())
    cuda.clear_calls()
    view = door(x, stream=-1)
    assert view.stream is None
    seen = taken_on(cuda, view, mine)
    assert called(cuda, *WAITS, *BLOCKS) == []
    cuda.synchronize()
    assert {report.kind for report in cuda.reports} == (set() if waited else {"race"})
    assert seen.value == SEEN or not waited


@as_consumer("hold-back-return")
def test_a_copy_on_the_host_is_done_when_the_call_returns(cuda):
    x = pending(cuda, cuda.stream("producer's"))
    made = convert(x, "numpy")
    x.assign(0.0)  # by the host, which nothing but the call's return orders
    assert made.tolist() == SEEN


@as_consumer("integer-enqueue", "enqueue-return", "enqueue-sufficient")
@as_producer("enqueue-return", "enqueue-sufficient", "one-stream")
@each_way
@each_kind
def test_work_on_the_provided_stream_needs_no_wait_and_returns_at_once(cuda, door, speaks, kind):
    producer = named(cuda, kind)
    x = pending(cuda, producer, speaks)
    cuda.clear_calls()
    with cuda.current_stream(producer):
        view = door(x, **({"stream": producer} if door is to_cai else {}))
    seen = taken_on(cuda, view, producer)
    view.release()
    seen.release()
    if "dlpack" not in speaks:  # a stranger may ignore the stream that it is asked for
        assert called(cuda, *WAITS, *BLOCKS) == []
    assert not seen.done
    for value in (8.0, 9.0):
        producer.fill(x, value)
    assert done(seen) == SEEN


@as_consumer("all-pending")
@as_producer("several-streams", "several-work", "several-events", "several-wait")
@pytest.mark.parametrize(
    ("door", "speaks"),
    [
        *((door, "cai") for door in DOORS.values()),
        *((to_cai, speaks) for speaks in ("cai", "dlpack", "exchange")),
    ],
)
def test_one_stream_comes_after_all_on_which_a_library_has_queued_work(cuda, door, speaks):
    x = speaking("Several", doors=(speaks,)).empty((8,), "float32")
    streams = [cuda.stream(name) for name in ("7", "9", "15")]
    for at, stream in enumerate(streams):
        with working_on(stream):
            x[at : at + 1].fill(float(at + 1))
    mine = cuda.stream("3")
    cuda.clear_calls()
    with working_on(streams[0]):
        view = to_cai(x, stream=mine) if door is to_cai else door(x)
    if door is to_cai:
        assert stream_of(view) not in [stream.handle for stream in streams]
        assert ("cuStreamWaitEvent", stream_of(view)) in called(cuda, *WAITS)
        recorded = {stream for _, stream in called(cuda, "cuEventRecord")}
        # A stranger may ignore the stream that it is asked for: the legacy one is waited for, too.
        unnamed = {1} if speaks == "dlpack" else set()
        assert recorded <= {stream.handle for stream in streams} | unnamed
    else:
        cuda.clear_calls()
    seen = taken_on(cuda, view, mine)
    made = called(cuda, *WAITS)  # the library's own are among them: its dict is read again
    if door is not to_cai:
        last = [("cuEventRecord", streams[-1].handle), ("cuStreamWaitEvent", mine.handle)]
        assert made[-2:] == last
        assert made.count(last[1]) == 1
    cuda.synchronize()
    assert seen.value[:3] == [1.0, 2.0, 3.0]


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
            assert (len(waits), len(cuda.reports) > 0) == {said}, (waits, cuda.reports)
"""


@as_consumer("ignore", "option-consumer", "option-elides", "option-mechanism", "option-default")
@pytest.mark.parametrize("value", [None, "1", "0"])
def test_the_variable_0_leaves_the_waits_at_hand_over_out(monkeypatch, value):
    monkeypatch.delenv("CAI_BRIDGE_SYNC", raising=False)
    if value is not None:
        monkeypatch.setenv("CAI_BRIDGE_SYNC", value)
    assert_quiet(IGNORING.format(said=(0, True) if value == "0" else (1, False)), prelude="")


@as_producer("data-no-effect", "data-no-owner")
@each_producer
def test_a_views_dict_has_no_entry_for_the_owner_and_keeps_nothing(cuda, speaks):
    x = cuda.array([1.0], speaks=speaks)
    view, gone = to_cai(x), weakref.ref(x)
    made = view.__cuda_array_interface__
    assert view.owner is x
    assert not any(value is x for value in made.values())
    del x, view
    cuda.synchronize()
    gc.collect()
    assert gone() is None
    assert made["shape"] == (1,)


@as_consumer("data-no-effect", "data-no-owner")
def test_a_dict_alone_is_not_taken_but_with_its_owner_which_is_then_kept(cuda):
    x = cuda.array(SEEN, speaks="cai3", memory="pool", stream=cuda.stream("producer's"))
    made, gone = x.__cuda_array_interface__, weakref.ref(x)
    with pytest.raises(ValueError, match=r"^owner: got None; .* a dict holds no reference"):
        from_cai(made)
    view = from_cai(made, owner=x)
    del x
    seen = taken_on(cuda, view)
    del view
    assert gone() is not None
    seen.release()
    cuda.synchronize()
    _settle()  # nobody vouches for a bare dict's stream, so the end comes when the work is done
    gc.collect()
    assert gone() is None
    assert seen.value == SEEN


@as_consumer("data-preserve", "data-retain")
@as_producer("data-preserve")
@each_way
def test_the_owner_lives_until_the_consumers_work_has_had_its_turn(cuda, door, speaks):
    producer = cuda.stream("producer's")
    x = cuda.array(SEEN, speaks=speaks, memory="pool", stream=producer, name="x")
    gone = weakref.ref(x)
    with cuda.current_stream(producer):
        view = door(x)
    del x
    gc.collect()
    assert gone() is not None
    seen = taken_on(cuda, view)
    del view
    gc.collect()
    assert gone() is not None
    seen.release()
    cuda.synchronize()
    gc.collect()
    assert gone() is None
    assert seen.value == SEEN


@as_producer("streams", "streams-finite")
@each_producer
def test_a_view_keeps_the_stream_that_its_dict_names(cuda, speaks):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = cuda.array(SEEN, speaks=speaks, memory="pool", stream=producer, name="x")
    with cuda.current_stream(producer):
        view = to_cai(x, stream=mine)
    gone = weakref.ref(mine)
    del mine
    gc.collect()
    assert gone().handle == stream_of(view)
    seen = cuda.consumer("cai-enqueues", cuda.stream()).read(view)
    seen.release()
    del view
    cuda.synchronize()
    _settle()  # an end that nobody's stream could wait for comes when the work is done
    gc.collect()
    assert gone() is None
    assert seen.value == SEEN


@as_consumer("streams", "streams-finite")
@each_door
def test_the_exporter_is_kept_and_with_it_its_stream_for_as_long_as_that_is_used(cuda, door):
    producer = cuda.stream("producer's")
    x = cuda.array(SEEN, speaks=(), memory="pool", stream=producer)
    exporter = only_cai(x, shape=(8,), stream=producer.handle)
    exporter.stream = producer  # as the specification asks of it
    gone, view = weakref.ref(producer), door(exporter)
    del exporter, producer, x
    seen = taken_on(cuda, view)
    gc.collect()
    assert gone() is not None
    del view
    assert gone() is not None
    seen.release()
    gc.collect()
    assert gone() is None
    assert done(seen) == SEEN
