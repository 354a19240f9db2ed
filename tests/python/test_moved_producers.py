"""Exporters that move: the end is ordered with the stream that their dict names by now."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import capsules
import numpy as np
import pytest

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import _current_streams

ENDS = pytest.mark.parametrize("end", ["release", "drop", "capsule"])
GIVEN = pytest.mark.parametrize("given", ["object", "handle"])


def moved(array: Any, first: Any, then: Any) -> None:
    """Move the producer's work to another stream, as one that keeps to the dict's rules does."""
    then.wait(first.record())
    then.fill(array, 2.0)


def host_waits(cuda: Any) -> int:
    return [call.call for call in cuda.calls].count("cuCtxSynchronize")


@GIVEN
@ENDS
@pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])
def test_a_consumer_on_the_stream_that_the_producer_had(blocking, end, given, cuda):
    first, then = cuda.stream("first", blocking=blocking), cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    stream = first if given == "object" else first.handle
    if end == "capsule":
        view = capsules.take(from_cai(array).__dlpack__(stream=stream))
    else:
        view = to_cai(array, stream=stream)
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
    cuda.synchronize()
    assert seen.value == [2.0] * 4
    # Nothing keeps the handle of a non-blocking stream, and the exporter has another one.
    assert host_waits(cuda) == int(given == "handle" and not blocking)


@GIVEN
@ENDS
def test_a_consumer_on_the_producers_stream_pays_nothing_if_that_one_stays(end, given, cuda):
    stream = cuda.stream("both")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=stream, name="x")
    named = stream if given == "object" else stream.handle
    if end == "capsule":
        view = capsules.take(from_cai(array).__dlpack__(stream=named))
    else:
        view = to_cai(array, stream=named)
    seen = stream.read(array)
    cuda.clear_calls()
    if end == "capsule":
        view.delete()
    elif end == "release":
        view.release()
    del view
    assert cuda.calls == []
    cuda.synchronize()
    assert seen.value == [1.0] * 4


def test_a_reader_that_named_no_stream_and_worked_where_the_producer_did(cuda):
    first, then = cuda.stream("first"), cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    view = to_cai(array)
    with cuda.current_stream(first):
        interface = view.__cuda_array_interface__
    assert interface["stream"] == first.handle
    moved(array, first, then)
    first.wait(then.record())
    seen = first.read(array)
    view.release()
    then.fill(array, 3.0)
    cuda.synchronize()
    assert seen.value == [2.0] * 4


# Where somebody else keeps the stream that was named, too, the exporter may be around an array of a
# library's, and name its stream of the moment: both are ordered.
BEFORE = pytest.mark.parametrize("before", ["legacy", "per-thread", "a library's", "its own"])


def stream_before(cuda: Any, before: str) -> Any:
    named = {"legacy": cuda.legacy, "per-thread": cuda.per_thread}
    return named.get(before) or cuda.stream("first")


@BEFORE
@pytest.mark.parametrize("reader", ["capsule", "trusting", "dict", "copy", "host copy"])
def test_a_hand_over_after_the_move_waits_for_the_stream_of_now(reader, before, cuda):
    first, then = stream_before(cuda, before), cuda.stream("then")
    consumer = cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    if before == "a library's":
        with cuda.current_stream(first):
            view = from_cai(array)
    else:
        view = from_cai(array)
    if reader in {"dict", "trusting"}:
        view = to_cai(view)
    moved(array, first, then)
    if reader == "dict":
        assert view.__cuda_array_interface__["stream"] == then.handle
        seen = cuda.consumer("cai-waits", consumer).read(view)
        view.release(consumer)
    elif reader == "trusting":
        seen = cuda.consumer("cai-trusting", consumer).read(view)
        view.release(consumer)
    elif reader == "capsule":
        seen = cuda.consumer("dlpack", consumer).read(view)
        seen.release()
        view.release()
    elif reader == "host copy":
        copy = np.from_dlpack(view, device="cpu", copy=True)
        assert copy.tolist() == [2.0] * 4
        return
    else:
        copy = view.__dlpack__(stream=consumer, copy=True, max_version=(1, 3))
        copy = to_cai(copy, stream=consumer)
        seen = consumer.read(copy)
        copy.release()
        view.release()
    then.fill(array, 3.0)
    gc.collect()
    assert host_waits(cuda) == 0
    cuda.synchronize()
    assert seen.value == [2.0] * 4


@BEFORE
@pytest.mark.parametrize("consumer", ["named", "unnamed"])
def test_a_consumer_where_the_producer_was_is_waited_for_where_it_is(consumer, before, cuda):
    first, then = stream_before(cuda, before), cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    with cuda.current_stream(first):
        view = to_cai(array, stream=first if consumer == "named" else None)
        assert view.__cuda_array_interface__["stream"] == first.handle
    moved(array, first, then)
    first.wait(then.record())
    seen = first.read(array)
    view.release()
    then.fill(array, 3.0)
    cuda.synchronize()
    assert seen.value == [2.0] * 4


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


class Around:
    """A class around an array of a library, whose dict names the library's stream of the moment."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        now = _current_streams(0)
        stream = now[-1][0].handle if now else 1
        return {**self.array.__cuda_array_interface__, "stream": stream}


@pytest.mark.parametrize("when", ["hand-over", "dict", "end"])
def test_a_class_around_a_librarys_array_is_ordered_with_the_stream_that_it_named(when, cuda):
    first, consumer = cuda.stream("first"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    with cuda.current_stream(first):
        view = from_cai(Around(array))
    if when == "hand-over":
        seen = cuda.consumer("dlpack", consumer).read(view)
    elif when == "dict":
        view = to_cai(view)
        with cuda.current_stream(consumer):
            seen = cuda.consumer("cai-enqueues", consumer).read(view)
    else:
        consumer.wait(first.record())
        capsule = capsules.take(view.__dlpack__(stream=consumer))
        seen = consumer.read(array)
        capsule.delete()
    if when != "end":
        seen.release()
    view.release()
    first.fill(array, 3.0)
    cuda.synchronize()
    assert seen.value == [1.0] * 4


class Idle:
    """An exporter whose dict names no stream once its work is done."""

    def __init__(self, array: Any) -> None:
        self.array, self.idle = array, False

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = self.array.__cuda_array_interface__
        return dict(interface, stream=None) if self.idle else interface


@pytest.mark.parametrize("reader", ["capsule", "dict"])
def test_nothing_waits_for_an_exporter_that_has_nothing_pending_any_more(reader, cuda):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    exporter = Idle(cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x"))
    view = from_cai(exporter) if reader == "capsule" else to_cai(exporter)
    cuda.synchronize()
    exporter.idle = True
    cuda.clear_calls()
    if reader == "capsule":
        capsule = view.__dlpack__(stream=consumer)
    else:
        assert view.__cuda_array_interface__["stream"] is None
        capsule = None
    made = {call.call for call in cuda.calls}
    del capsule
    assert not made & {"cuCtxSynchronize", "cuEventRecord", "cuStreamWaitEvent"}


def test_what_a_consumer_wrote_where_the_producer_was_is_waited_for_there(cuda):
    first, then, reader = (cuda.stream(name) for name in ("first", "then", "reader"))
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    view = to_cai(array, stream=first)
    moved(array, first, then)
    first.wait(then.record())
    # Not by the array, which keeps the stream that it names.
    first.launch(lambda: array.assign(5.0), writes=[view], name="the consumer's write")
    seen = cuda.consumer("dlpack", reader).read(from_cai(view))
    cuda.synchronize()
    assert seen.value == [5.0] * 4


def test_an_exporter_that_cannot_be_asked_is_taken_to_stay_where_others_keep_its_stream(cuda):
    class Failing(Idle):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            if self.idle:
                raise ValueError("not now")
            return self.array.__cuda_array_interface__

    consumer = cuda.stream("consumer")
    exporter = Failing(cuda.array([1.0] * 4, speaks="cai3", stream=cuda.legacy, name="x"))
    view = to_cai(exporter, stream=consumer)
    seen = consumer.read(view)
    exporter.idle = True
    cuda.clear_calls()
    view.release()
    waits = [(c.call, c.stream) for c in cuda.calls if c.call == "cuStreamWaitEvent"]
    assert waits == [("cuStreamWaitEvent", 1)]
    cuda.legacy.fill(exporter.array, 2.0)
    cuda.synchronize()
    assert seen.value == [1.0] * 4


@pytest.mark.parametrize("moves", [False, True])
def test_a_dict_by_itself_is_its_owners_if_the_owners_own_dict_says_the_same(moves, cuda):
    home, then, consumer = (cuda.stream(name) for name in ("home", "then", "consumer"))
    array = cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x")
    view = from_cai(array.__cuda_array_interface__, owner=array)
    if moves:
        moved(array, home, then)
    seen = cuda.consumer("dlpack", consumer).read(view)
    seen.release()
    view.release()
    (then if moves else home).fill(array, 3.0)
    cuda.synchronize()
    assert seen.value == [2.0 if moves else 1.0] * 4
    assert host_waits(cuda) == 0


@pytest.mark.parametrize("differs", ["stream", "address"])
def test_a_dict_that_is_not_the_owners_own_does_not_follow_it(differs, cuda):
    home, other = cuda.stream("home"), cuda.stream("other")
    array = cuda.array([1.0] * 8, speaks="cai3", stream=home, name="x")
    said = array.__cuda_array_interface__
    if differs == "stream":
        said["stream"] = other.handle
    else:
        said["data"], said["shape"] = (said["data"][0] + 4, False), (4,)
    # Nobody keeps it, so the legacy default stream replaces it.
    assert from_cai(said, owner=array).stream == 1
    cuda.synchronize()


def test_a_stream_that_a_dict_names_beside_a_view_as_its_owner_waits_at_the_end(cuda):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x")
    cuda.legacy.wait(home.record())
    view = to_cai(array)
    taken = from_cai(dict(view.__cuda_array_interface__, stream=1), owner=view)
    seen = cuda.consumer("dlpack", consumer).read(taken)
    seen.release()
    taken.release()
    cuda.legacy.fill(array, 3.0)
    home.wait(cuda.legacy.record())
    cuda.synchronize()
    assert seen.value == [1.0] * 4


def test_the_stream_of_a_views_own_dict_is_no_other_producers(cuda):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="dlpack", stream=home, name="x")
    view = to_cai(array)
    taken = from_cai(view.__cuda_array_interface__, owner=view)
    capsule = taken.__dlpack__(stream=consumer)
    cuda.clear_calls()
    del capsule
    waits = [call.stream for call in cuda.calls if call.call == "cuStreamWaitEvent"]
    assert waits == [1], "the legacy default stream stands in for the producer's, once"
