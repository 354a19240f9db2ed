"""Exporters that move: the end is ordered with the stream that their dict names by now."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import capsules
import pytest
from moving import BEFORE, GIVEN, exporter_before, host_waits, moved, stream_before
from scenes import done

from cai_bridge import from_cai, to_cai

ENDS = pytest.mark.parametrize("end", ["release", "drop", "capsule"])


def lent(array: Any, end: str, stream: Any) -> Any:
    """What holds the array for a stream: a tensor that was taken over, or a view."""
    if end == "capsule":
        return capsules.take(from_cai(array).__dlpack__(stream=stream))
    return to_cai(array, stream=stream)


def expect_in_order(cuda: Any, view: Any, array: Any, streams: tuple[Any, Any]) -> None:
    """Move the producer, read where it was, and see that it waits for that after the end."""
    first, then = streams
    moved(array, first, then)
    first.wait(then.record())
    seen = first.read(array)
    view.release()
    then.fill(array, 3.0)
    assert done(seen) == [2.0] * 4


@GIVEN
@ENDS
@pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])
def test_a_consumer_on_the_stream_that_the_producer_had(blocking, end, given, cuda):
    first, then = cuda.stream("first", blocking=blocking), cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    view = lent(array, end, first if given == "object" else first.handle)
    moved(array, first, then)
    first.wait(then.record())
    seen = first.read(array)
    if end == "capsule":
        view.delete()
    elif end == "release":
        view.release()
    del view
    gc.collect()
    then.fill(array, 3.0)
    assert done(seen) == [2.0] * 4
    # Nothing keeps the handle of a non-blocking stream, and the exporter has another one.
    assert host_waits(cuda) == int(given == "handle" and not blocking)


@GIVEN
@ENDS
def test_a_consumer_on_the_producers_stream_pays_nothing_if_that_one_stays(end, given, cuda):
    stream = cuda.stream("both")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=stream, name="x")
    view = lent(array, end, stream if given == "object" else stream.handle)
    seen = stream.read(array)
    cuda.clear_calls()
    if end == "capsule":
        view.delete()
    elif end == "release":
        view.release()
    del view
    assert cuda.calls == []
    assert done(seen) == [1.0] * 4


def test_a_reader_that_named_no_stream_and_worked_where_the_producer_did(cuda):
    first, then = cuda.stream("first"), cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    view = to_cai(array)
    with cuda.current_stream(first):
        interface = view.__cuda_array_interface__
    assert interface["stream"] == first.handle
    expect_in_order(cuda, view, array, (first, then))


@BEFORE
@pytest.mark.parametrize("consumer", ["named", "unnamed"])
def test_a_consumer_where_the_producer_was_is_waited_for_where_it_is(consumer, before, cuda):
    first, then = stream_before(cuda, before), cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    with cuda.current_stream(first):
        view = to_cai(array, stream=first if consumer == "named" else None)
        assert view.__cuda_array_interface__["stream"] == first.handle
    expect_in_order(cuda, view, array, (first, then))


@ENDS
@pytest.mark.parametrize("before", ["none", "none, unknown"])
def test_an_exporter_that_named_no_stream_waits_on_the_one_that_it_names_at_the_end(
    before, end, cuda
):
    then, consumer = cuda.stream("then"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", name="x")
    cuda.synchronize()
    view = lent(exporter_before(array, before), end, consumer)
    moved(array, None, then)
    consumer.wait(then.record())
    seen = consumer.read(array)
    cuda.clear_calls()
    if end == "capsule":
        view.delete()
    elif end == "release":
        view.release()
    del view
    gc.collect()
    waits = [call.stream for call in cuda.calls if call.call == "cuStreamWaitEvent"]
    assert waits == [then.handle], "and no stream stands in for one that is known"
    then.fill(array, 3.0)
    assert done(seen) == [2.0] * 4
    assert host_waits(cuda) == 0


def test_an_exporter_whose_context_was_reset_is_not_asked_for_its_stream(cuda):
    array = cuda.array([1.0] * 4, speaks="cai3", stream=cuda.legacy, name="x")
    view, then = to_cai(array, stream=2), cuda.stream("then")
    moved(array, cuda.legacy, then)
    cuda.synchronize()
    cuda.reset_device(0)
    view.release()


@pytest.mark.parametrize("end", ["release", "copy"])
def test_a_bare_handle_that_the_consumer_names_as_well_is_alive(end, cuda):
    home, stream = cuda.stream("home"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x")
    view = to_cai(array, stream=stream.handle)
    if end == "release":
        view = to_cai(view, stream=stream)
        cuda.clear_calls()
        view.release()
        assert host_waits(cuda) == 0
    else:
        view = from_cai(view)
        cuda.clear_calls()
        copy = view.__dlpack__(stream=stream, copy=True, max_version=(1, 3))
        assert host_waits(cuda) == 1, "for what the array is ready on, before the copy"
        del copy
    cuda.synchronize()


@pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])
def test_a_consumer_between_on_the_producers_stream_is_there_as_long_as_that_one(blocking, cuda):
    """Its bare handle asks for nothing: whose stream it is, the producer knows."""
    home = cuda.stream("home", blocking=blocking)
    array = cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x")
    between = to_cai(array, stream=home.handle)
    view = to_cai(between, stream=home)
    cuda.clear_calls()
    with cuda.capture(home):
        view.release()
        home.fill(array, 2.0)
    assert host_waits(cuda) == 0
    assert "cuEventRecord" not in {call.call for call in cuda.calls}
    to_cai(between, stream=cuda.stream("consumer")).release()
    assert host_waits(cuda) == 0
    cuda.synchronize()


@GIVEN
def test_a_consumer_between_where_the_producer_was_is_ordered_at_the_end(given, cuda):
    first, then, second = (cuda.stream(name) for name in ("first", "then", "second"))
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    between = to_cai(array, stream=first if given == "object" else first.handle)
    view = to_cai(between, stream=second)
    then.wait(first.record())
    array._set_pending(then)
    second.launch(writes=[view], name="the consumer's write")
    with cuda.current_stream(first):
        view.release()
    first.read(array)
    assert host_waits(cuda) == 0
    cuda.synchronize()


@pytest.mark.parametrize("same", [False, True], ids=["another stream", "the producer's"])
def test_the_collector_finds_a_view_that_its_consumers_stream_holds(same, cuda):
    home = cuda.stream("home")
    stream = home if same else cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x")
    stream.view = to_cai(array, stream=stream)
    found = weakref.ref(stream.view)
    cuda.synchronize()
    del stream, array, home
    gc.collect()
    assert found() is None


# --- producers whose dict names no stream at the end ----------------------------------------------


class Dict:
    """An array whose dict says what a test has it say."""

    def __init__(self, cuda: Any, stream: Any) -> None:
        self.memory = cuda.array([0.0] * 4, speaks=(), name="x")
        self.answer: Any = lambda x: x.said(stream=stream.handle)

    def said(self, **more: Any) -> dict[str, Any]:
        data = (self.memory.ptr, False)
        return {"shape": (4,), "typestr": "<f4", "version": 3, "data": data, **more}

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.answer(self)


def raised(error: BaseException) -> Any:
    def answer(x: Dict) -> Any:
        raise error

    return answer


def end_of(view: Any, end: str) -> None:
    if end == "capsule":
        view.delete()
    elif end == "release":
        view.release()


@ENDS
@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x.said(),
        lambda x: x.said(stream=None),
        lambda x: x.said(stream=0),
        lambda x: x.said(stream="a"),
        lambda x: x.said(stream=1, data=(x.memory.ptr + 4, False)),
        lambda x: None,
        raised(KeyError("k")),
    ],
    ids=["no stream", "None", "stream 0", "a text", "other memory", "no dict", "an error"],
)
def test_the_host_waits_at_the_end_of_a_producer_that_names_its_stream_no_more(
    answer: Any, end: str, cuda: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It may go on on the stream that it named, which may as well be destroyed."""
    first, consumer = cuda.stream("first"), cuda.stream("consumer")
    x = Dict(cuda, first)
    first.fill(x.memory, 7.0)
    view = lent(x, end, consumer)
    seen = consumer.read(x.memory)
    x.answer = answer
    end_of(view, end)
    del view
    first.fill(x.memory, 9.0)
    assert done(seen) == [7.0] * 4
    assert "the array's stream may be destroyed; the host waited" in caplog.text


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_end_that_an_interrupt_cut_short_is_made_before_the_producer_goes_on(
    interrupt: type[BaseException], cuda: Any
) -> None:
    """Nobody can be told of it where the last reference goes."""
    first, consumer = cuda.stream("first"), cuda.stream("consumer")
    x = Dict(cuda, first)
    named = x.answer

    def cut_short(x: Dict) -> Any:
        x.answer = named
        raise interrupt

    first.fill(x.memory, 7.0)
    view = to_cai(x, stream=consumer)
    seen = consumer.read(view)
    x.answer = cut_short
    del view
    first.fill(x.memory, 9.0)
    assert done(seen) == [7.0] * 4


class Closing:
    """A stream object whose owner may close it, and open another."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        if self.stream is None:
            raise RuntimeError("closed")
        return 0, self.stream.handle


@pytest.mark.parametrize("of", ["producer", "between"])
@pytest.mark.parametrize("opened", [False, True], ids=["closed", "opened again"])
def test_the_host_waits_at_the_end_of_a_declared_stream_that_was_closed(
    of: str, opened: bool, cuda: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the producer's, and of that of the view between: who has it goes on somewhere."""
    consumer, then = cuda.stream("consumer"), cuda.stream("then")
    x, mine = cuda.array([7.0] * 4, speaks="cai2", name="x"), Closing(cuda.stream("mine"))
    if of == "producer":
        view = to_cai(from_cai(x, stream=mine), stream=consumer)
    else:
        between = to_cai(from_cai(x, stream=then), stream=-1)
        view = to_cai(from_cai(between, stream=mine), stream=consumer)
    seen = consumer.read(view)
    mine.stream.destroy()
    mine.stream = cuda.stream("another") if opened else None
    view.release()
    (mine.stream or cuda.stream("next")).fill(x, 9.0)
    assert done(seen) == [7.0] * 4
    assert "the array's stream may be destroyed; the host waited" in caplog.text
