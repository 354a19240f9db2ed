"""Exporters that move: hand-overs and ends follow the stream that their dict names by now."""

import gc
import weakref
from contextlib import nullcontext

import capsules
import numpy as np
import pytest
from moving import BEFORE_OR_NONE, GIVEN, exporter_before, host_waits, moved, stream_before
from scenes import done

from cai_bridge import adapt, from_cai, to_cai, to_dlpack
from cai_bridge.testing import _current_streams


@BEFORE_OR_NONE
@pytest.mark.parametrize("through", ["itself", "a capsule that declined"])
@pytest.mark.parametrize("reader", ["capsule", "trusting", "dict", "copy", "host copy", "wait"])
def test_a_hand_over_after_the_move_waits_for_the_stream_of_now(reader, through, before, cuda):
    first, then = stream_before(cuda, before), cuda.stream("then")
    consumer = cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    cuda.synchronize()
    exporter = exporter_before(array, before)
    works = cuda.current_stream(first) if before == "a library's" else nullcontext()
    with works:
        view = from_cai(exporter)
    if through == "a capsule that declined":
        view = to_dlpack(view.__dlpack__(stream=-1))
    if reader in {"dict", "trusting"}:
        view = to_cai(view)
    moved(array, first, then)
    if reader in {"dict", "trusting"}:
        if reader == "dict":
            assert view.__cuda_array_interface__["stream"] == then.handle
        kind = "cai-waits" if reader == "dict" else "cai-trusting"
        seen = cuda.consumer(kind, consumer).read(view)
        view.release(consumer)
    elif reader == "capsule":
        seen = cuda.consumer("dlpack", consumer).read(view)
        seen.release()
        view.release()
    elif reader == "wait":
        to_cai(view).wait()
        assert done(consumer.read(array)) == [2.0] * 4
        return
    elif reader == "host copy":
        assert np.from_dlpack(view, device="cpu", copy=True).tolist() == [2.0] * 4
        return
    else:
        copy = to_cai(view.__dlpack__(stream=consumer, copy=True), stream=consumer)
        seen = consumer.read(copy)
        copy.release()
        view.release()
    then.fill(array, 3.0)
    gc.collect()
    assert host_waits(cuda) == 0
    assert done(seen) == [2.0] * 4


def test_one_that_named_no_stream_is_heard_after_a_consumer_that_named_its_own(cuda):
    then, consumer = cuda.stream("then"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", name="x")
    view = from_cai(to_cai(array, stream=consumer), stream=-1)
    then.fill(array, 2.0)
    copy = to_cai(view.__dlpack__(stream=consumer, copy=True), stream=consumer)
    seen = consumer.read(copy)
    copy.release()
    assert done(seen) == [2.0] * 4


def test_one_that_named_no_stream_before_a_call_waits_for_consumers_on_the_streams_it_had(cuda):
    consumers, then = [cuda.stream("first"), cuda.stream("second")], cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", name="x")
    seen, kept = [], []

    @adapt(to="dlpack")
    def function(x):
        for before, stream in zip([None, *consumers], consumers, strict=False):
            moved(array, before, stream)
            kept.append(capsules.take(x.__dlpack__(stream=stream)))
        moved(array, consumers[-1], then)
        for stream in consumers:
            stream.wait(then.record())
            seen.append(stream.read(array))

    function(array)
    then.fill(array, 3.0)
    assert [done(one) for one in seen] == [[2.0] * 4] * 2


class Around:
    """A class around an array of a library, whose dict names the library's stream of the moment."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
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
    assert done(seen) == [1.0] * 4


class Idle:
    """Of a library whose dict names no stream once its work is done, and which means it."""

    __module__ = "cai_bridge.testing"

    def __init__(self, array):
        self.array, self.idle = array, False

    @property
    def __cuda_array_interface__(self):
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
        _held = view.__dlpack__(stream=consumer)
    else:
        assert view.__cuda_array_interface__["stream"] is None
    made = {call.call for call in cuda.calls}
    assert not made & {"cuModuleUnload", "cuEventRecord", "cuStreamWaitEvent"}


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
    assert done(seen) == [1.0] * 4


@pytest.mark.parametrize("reader", ["capsule", "dict"])
def test_a_dict_of_before_is_ordered_after_the_stream_that_its_owner_names_now(reader, cuda):
    then, consumer = cuda.stream("then"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=cuda.legacy, name="x")
    said = array.__cuda_array_interface__
    moved(array, cuda.legacy, then)
    view = from_cai(said, owner=array)
    if reader == "dict":
        seen = cuda.consumer("cai-waits", consumer).read(to_cai(view))
    else:
        seen = cuda.consumer("dlpack", consumer).read(view)
    seen.release()
    view.release()
    assert done(seen) == [2.0] * 4


@GIVEN
@pytest.mark.parametrize("end", ["release", "drop", "capsule"])
@pytest.mark.parametrize("moves", ["no", "from non-blocking", "from blocking"])
def test_a_consumer_on_the_stream_that_the_producer_had(moves, end, given, cuda):
    first, then = cuda.stream("first", blocking=moves == "from blocking"), cuda.stream("then")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    stream = first if given == "object" else first.handle
    if end == "capsule":
        lent = capsules.take(from_cai(array).__dlpack__(stream=stream))
    else:
        lent = to_cai(array, stream=stream)
    if moves != "no":
        moved(array, first, then)
        first.wait(then.record())
    seen = first.read(array)
    cuda.clear_calls()
    if end == "capsule":
        lent.delete()
    elif end == "release":
        lent.release()
    del lent
    gc.collect()
    # Nothing keeps the handle of a non-blocking stream, and the exporter has another one.
    assert host_waits(cuda) == (given == "handle" and moves == "from non-blocking")
    if moves == "no":
        assert cuda.calls == []
    else:
        then.fill(array, 3.0)
    assert done(seen) == [1.0 if moves == "no" else 2.0] * 4


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


class Closing:
    """A stream object whose owner may close it, and open another."""

    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        if self.stream is None:
            raise RuntimeError("closed")
        return 0, self.stream.handle


@pytest.mark.parametrize("of", ["producer", "between"])
@pytest.mark.parametrize("opened", [False, True], ids=["closed", "opened again"])
def test_the_host_waits_at_the_end_of_a_declared_stream_that_was_closed(of, opened, cuda, caplog):
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
