"""What the specification's "Synchronization" asks of whose dict is read: here the bridge's views.

The array behind a view is DLPack's, or speaks CAI itself; its values are still to be written by
queued work. The readers are stand-ins for consumers that keep the specification in each of the ways
that it allows.
"""

from __future__ import annotations

from typing import Any

import pytest
from capsules import HandMade
from producers import speaking, working_on
from scenes import again, done
from specification import (
    BLOCKS,
    WAITS,
    as_producer,
    called,
    each_producer,
    expect_returned,
    view_of,
)

from cai_bridge import to_cai

SEEN = [7.0] * 8
# A reader waits on its own stream, works on the provided one, or makes the host wait.
READERS = ("cai-waits", "cai-enqueues", "cai-blocks")
each_reader = pytest.mark.parametrize("reader", READERS)
KINDS = ("legacy", "per-thread", "blocking", "non-blocking")


def pending(cuda: Any, stream: Any, speaks: Any) -> Any:
    """An array that 7 is written to, by work that is queued on `stream`."""
    x = cuda.array([0.0] * 8, speaks=speaks, stream=stream, memory="pool", name="x")
    stream.fill(x, 7.0, name="the producer's write")
    return x


def named(cuda: Any, name: str) -> Any:
    kinds = {"legacy": cuda.legacy, "per-thread": cuda.default_stream(0, per_thread=True)}
    return kinds.get(name) or cuda.stream(name, blocking=name == "blocking")


def stream_of(view: Any) -> Any:
    return view.__cuda_array_interface__["stream"]


# --- the entry ------------------------------------------------------------------------------------


@as_producer("stream", "integer", "all-pending", "option-default")
@each_producer
@each_reader
@pytest.mark.parametrize("told", [False, True], ids=["unsaid", "stream="])
def test_whoever_minds_the_dicts_stream_reads_what_was_written(cuda, speaks, reader, told):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = pending(cuda, producer, speaks)
    view = view_of(cuda, x, producer, **({"stream": mine} if told else {}))
    assert type(stream_of(view)) is int
    seen = cuda.consumer(reader, mine).read(view)
    assert done(seen) == SEEN


@as_producer("integer-synchronize", "integer-enqueue", "choice")
@each_producer
@each_reader
def test_a_reader_may_synchronize_or_enqueue(cuda, speaks, reader):
    producer = cuda.stream("producer's")
    x = pending(cuda, producer, speaks)
    consumer = cuda.consumer(reader, cuda.stream("mine"))
    view = view_of(cuda, x, producer)
    written = consumer.write(view, 8.0)
    seen = cuda.consumer(reader, consumer.stream).read(view)
    cuda.synchronize()
    assert (written.done, seen.value) == (True, [8.0] * 8)


@as_producer("stream-0", "stream-0-instead")
@pytest.mark.parametrize("speaks", ["exchange", "dlpack"])
def test_a_default_stream_is_1_in_the_dict_and_0_is_refused(cuda, speaks):
    x = pending(cuda, cuda.legacy, speaks)
    view = to_cai(x)  # the exchange API says 0 of it
    assert stream_of(view) == 1
    with pytest.raises(ValueError, match=r"^stream: got 0; allowed: "):
        to_cai(x, stream=0)
    seen = cuda.consumer("cai-waits", cuda.stream()).read(view)
    assert done(seen) == SEEN


@as_producer("stream-1", "stream-2", "stream-handle")
@each_producer
@pytest.mark.parametrize("kind", KINDS)
def test_1_and_2_in_a_views_dict_are_the_default_streams_and_others_are_handles(cuda, speaks, kind):
    producer, mine = cuda.stream("producer's"), named(cuda, kind)
    view = view_of(cuda, pending(cuda, producer, speaks), producer, stream=mine)
    assert stream_of(view) == {"legacy": 1, "per-thread": 2}.get(kind, mine.handle)
    seen = mine.read(view)
    assert done(seen) == SEEN


@as_producer("stream-none", "none-no-wait", "none-any-stream", "nothing-enqueued")
@pytest.mark.parametrize("kind", KINDS)
def test_a_view_that_says_none_may_be_worked_on_at_once_on_any_stream(cuda, kind):
    x = cuda.array([7.0] * 8, speaks="cai3")  # nothing was queued
    view = to_cai(x)
    assert stream_of(view) is None
    cuda.clear_calls()
    seen = cuda.consumer("cai-waits", named(cuda, kind)).read(view)
    assert called(cuda, *WAITS, *BLOCKS) == []
    assert done(seen) == SEEN


# --- races ----------------------------------------------------------------------------------------


@as_producer("no-races", "hazards")
@each_reader
@pytest.mark.parametrize("speaks", ["exchange", "cai3"])
@pytest.mark.parametrize("consumer", KINDS)
@pytest.mark.parametrize("producer", KINDS)
def test_both_may_work_on_without_a_race(cuda, speaks, reader, producer, consumer):
    producer, consumer = named(cuda, producer), named(cuda, consumer)
    x = pending(cuda, producer, speaks)
    view = view_of(cuda, x, producer, stream=consumer)
    seen = cuda.consumer(reader, consumer).read(view)
    view.release()
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert (seen.value, cuda.reports) == (SEEN, [])


@as_producer("by-default", "user-knowledge", "exception")
@pytest.mark.parametrize("speaks", ["exchange", "cai3"])
@each_reader
def test_a_user_who_knows_nothing_of_streams_gets_it_right(cuda, speaks, reader):
    producer = cuda.stream("producer's")
    scene = type("Scene", (), {"cuda": cuda, "producer": producer})()
    scene.array = pending(cuda, producer, speaks)
    view = view_of(cuda, scene.array, producer)
    with cuda.current_stream(cuda.stream("mine")) as mine:
        seen = cuda.consumer(reader, mine).read(view)
        del view
        seen.release()
    again(scene)  # the memory is another array's by now
    assert done(seen) == SEEN


@as_producer("exception-documented", "documented-steps")
@pytest.mark.unchecked
@pytest.mark.parametrize("step", [True, False], ids=["as documented", "without the step"])
def test_for_a_reader_that_ignores_the_stream_the_documented_step_is_enough(cuda, step):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = pending(cuda, producer, "exchange")
    # docs/libraries.md: to_cai(x, stream=s), with the stream that such a consumer works on.
    view = view_of(cuda, x, producer, **({"stream": mine} if step else {}))
    assert view.__cuda_array_interface__["shape"] == (8,)
    seen = mine.read(view)
    view.release()
    if not step:
        assert {report.kind for report in cuda.reports} == {"race"}
        return
    producer.fill(x, 9.0)
    cuda.synchronize()
    assert (seen.value, cuda.reports) == (SEEN, [])


@as_producer("override", "option-producer", "option-mechanism")
@each_producer
def test_minus_1_says_none_and_waits_for_nothing(cuda, speaks):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = pending(cuda, producer, speaks)
    mine.wait(producer.record())  # the user's own
    cuda.clear_calls()
    view = view_of(cuda, x, producer, stream=-1)
    assert stream_of(view) is None
    seen = cuda.consumer("cai-waits", mine).read(view)
    assert called(cuda, *WAITS, *BLOCKS) == []
    assert done(seen) == SEEN


@as_producer("override-no-guarantee")
@each_producer
@pytest.mark.unchecked
def test_minus_1_without_a_wait_of_the_users_is_a_race(cuda, speaks):
    producer = cuda.stream("producer's")
    view = view_of(cuda, pending(cuda, producer, speaks), producer, stream=-1)
    cuda.consumer("cai-waits", cuda.stream("mine")).read(view)
    cuda.synchronize()
    assert {report.kind for report in cuda.reports} == {"race"}


# --- the producer's stream is held back -----------------------------------------------------------


@as_producer("hold-back")
@pytest.mark.parametrize("speaks", ["exchange", "cai3"])
def test_a_views_end_holds_the_producer_back_where_the_reader_does_not(cuda, speaks):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = pending(cuda, producer, speaks)
    view = view_of(cuda, x, producer, stream=mine)
    seen = cuda.consumer("cai-waits", mine).read(view)
    cuda.clear_calls()
    view.release()
    assert called(cuda, *WAITS, *BLOCKS) == [
        ("cuEventRecord", mine.handle),
        ("cuStreamWaitEvent", producer.handle),
    ]
    producer.fill(x, 9.0)
    assert done(seen) == SEEN


@as_producer("enqueue-return", "enqueue-sufficient")
@pytest.mark.parametrize("speaks", ["exchange", "cai3"])
def test_a_reader_on_the_provided_stream_returns_at_once_and_the_producer_works_on(cuda, speaks):
    producer = cuda.stream("producer's")
    x = pending(cuda, producer, speaks)
    cuda.clear_calls()
    view = view_of(cuda, x, producer, stream=producer)
    seen = cuda.consumer("cai-enqueues", cuda.stream("mine")).read(view)
    view.release()
    expect_returned(cuda, seen, producer, x)


# --- work on several streams ----------------------------------------------------------------------


def worked_on(cuda: Any, doors: tuple[str, ...]) -> tuple[Any, list[Any]]:
    """An array of a library that queued work on it on three streams, and tracks them."""
    x = speaking("Several", doors=doors).made((8,), "float32")
    streams = [cuda.stream(name) for name in ("7", "9", "15")]
    for at, stream in enumerate(streams):
        with working_on(stream):
            x[at : at + 1].fill(float(at + 1))
    return x, streams


@as_producer("several-streams", "several-work", "several-events", "several-wait")
@each_reader
@pytest.mark.parametrize("doors", [("dlpack",), ("cai",), ("exchange",)])
def test_a_views_stream_waits_for_every_stream_that_has_work(cuda, doors, reader):
    x, streams = worked_on(cuda, doors)
    cuda.clear_calls()
    with working_on(streams[0]):
        view = to_cai(x, stream=cuda.stream("3"))
    assert stream_of(view) not in [stream.handle for stream in streams]
    recorded = {stream for call, stream in called(cuda, "cuEventRecord")}
    waited = [stream for call, stream in called(cuda, "cuStreamWaitEvent")]
    # A stranger may ignore the stream that it is asked for: the legacy one is waited for, too.
    unnamed = {1} if "dlpack" in doors else set()
    assert recorded <= {stream.handle for stream in streams} | unnamed
    assert stream_of(view) in waited
    seen = cuda.consumer(reader, cuda.stream("mine")).read(view)
    cuda.synchronize()
    assert seen.value[:3] == [1.0, 2.0, 3.0]


@as_producer("one-stream")
@pytest.mark.parametrize("speaks", ["exchange", "cai3"])
@pytest.mark.parametrize("idle", [True, False])
def test_work_on_the_named_stream_alone_needs_no_wait(cuda, speaks, idle):
    producer = cuda.stream("producer's")
    x = pending(cuda, producer, speaks)
    if idle:
        cuda.synchronize()
    cuda.clear_calls()
    view = view_of(cuda, x, producer)
    assert stream_of(view) == producer.handle
    assert called(cuda, *WAITS, *BLOCKS) == []
    seen = cuda.consumer("cai-waits", cuda.stream()).read(view)
    assert done(seen) == SEEN


def test_a_capsules_view_names_the_stream_that_its_maker_made_it_ready_on(cuda):
    x = cuda.array([7.0] * 4, speaks=(), stream=cuda.legacy)
    view = to_cai(HandMade(x.ptr).capsule())
    seen = cuda.consumer("cai-waits", cuda.stream()).read(view)
    assert done(seen) == [7.0] * 4


# --- that these tests see a missing wait ----------------------------------------------------------


@pytest.mark.unchecked
@pytest.mark.parametrize("call", sorted(WAITS))
@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
@pytest.mark.parametrize("edge", ["at hand-over", "at the end"])
def test_with_a_wait_left_out_a_race_is_reported(cuda, speaks, edge, call):
    producer, mine = cuda.stream("producer's"), cuda.stream("mine")
    x = pending(cuda, producer, speaks)
    if edge == "at hand-over":
        cuda.suppress(call)
    view = view_of(cuda, x, producer, stream=mine)
    seen = cuda.consumer("cai-waits", mine).read(view)
    if edge == "at the end":
        for nth in range(1, 4):  # of an unknown producer others are waited for as well
            cuda.suppress(call, nth)
    view.release()
    cuda.clear_faults()
    producer.fill(x, 9.0)
    cuda.synchronize()
    assert seen is not None
    assert "race" in {report.kind for report in cuda.reports}
