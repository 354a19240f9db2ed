"""Exporters that move: the end is ordered with the stream that their dict names by now."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import capsules
import pytest
from moving import GIVEN, host_waits, moved
from scenes import done

from cai_bridge import from_cai, to_cai

ENDS = pytest.mark.parametrize("end", ["release", "drop", "capsule"])


def lent(array: Any, end: str, stream: Any) -> Any:
    """What holds the array for a stream: a tensor that was taken over, or a view."""
    if end == "capsule":
        return capsules.take(from_cai(array).__dlpack__(stream=stream))
    return to_cai(array, stream=stream)


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
