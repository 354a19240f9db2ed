"""A consumer that nobody named a stream for: what is waited for on its behalf, at what cost."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from scenes import again, done, once_more

from another_thread import in_another_thread
from cai_bridge import from_cai, to_cai, to_dlpack
from cai_bridge._core import _settle

KINDS = ("legacy", "per-thread", "blocking", "read on", "ends on")
ORDER = ("cuEventRecord", "cuStreamWaitEvent")


class Scene:
    """A producer on a non-blocking stream, and a reader of the dict on a stream of each kind."""

    def __init__(self, cuda: Any, kind: str, *, speaks: str = "cai3") -> None:
        self.cuda = cuda
        self.producer = cuda.stream("producer's")
        self.array = cuda.array(
            [1.0] * 8, speaks=speaks, memory="pool", stream=self.producer, name="x"
        )
        self.kind = kind
        self.reader = {
            "legacy": cuda.legacy,
            "per-thread": cuda.per_thread,
            "blocking": cuda.stream("reader's", blocking=True),
        }.get(kind) or cuda.stream("reader's")

    def view(self) -> Any:
        with self.cuda.current_stream(self.producer):
            return to_cai(self.array)

    def read(self, view: Any) -> Any:
        """Read the dict, wait as the specification asks, and queue the read."""
        if self.kind == "read on":
            return self.cuda.consumer("cai-waits", self.reader).read(view, name="the read")
        assert view.__cuda_array_interface__["stream"] == self.producer.handle
        self.reader.wait(self.producer.record())
        return self.reader.read(view, name="the read")

    def end(self, view: Any) -> None:
        if self.kind == "ends on":
            with self.cuda.current_stream(self.reader):
                view.release()
        else:
            view.release()

    def play(self, next_use: Any) -> Any:
        view = self.view()
        seen = self.read(view)
        self.end(view)
        seen.release()
        next_use(self)
        self.cuda.synchronize()
        return seen.value


@pytest.mark.parametrize("next_use", [again, once_more])
@pytest.mark.parametrize("speaks", ["cai3", "exchange"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_producers_next_use_comes_after_its_read(
    kind: str, speaks: str, next_use: Any, cuda: Any
) -> None:
    assert Scene(cuda, kind, speaks=speaks).play(next_use) == [1.0] * 8


@pytest.mark.unchecked
@pytest.mark.parametrize("call", ORDER)
@pytest.mark.parametrize("kind", KINDS)
def test_with_the_ends_orders_left_out_it_does_not(kind: str, call: str, cuda: Any) -> None:
    scene = Scene(cuda, kind)
    view = scene.view()
    seen = scene.read(view)
    for nth in range(1, 4):
        cuda.suppress(call, nth)
    scene.end(view)
    seen.release()
    cuda.clear_faults()
    once_more(scene)
    cuda.synchronize()
    assert seen.value != [1.0] * 8
    assert {report.kind for report in cuda.reports} == {"race"}


@pytest.mark.parametrize("kind", ["legacy", "read on"])
def test_a_library_on_the_producers_own_stream_costs_nothing(kind: str, cuda: Any) -> None:
    home = cuda.legacy
    x = cuda.array([1.0], speaks="cai3", stream=home)
    view = to_cai(x)
    cuda.clear_calls()
    if kind == "read on":
        cuda.consumer("cai-enqueues", home).read(view).release()
    else:
        home.read(view)
    view.release()
    assert not {call.call for call in cuda.calls} & set(ORDER)
    cuda.synchronize()


@pytest.mark.parametrize("door", [to_cai, from_cai])
def test_a_view_that_nobody_reads_has_no_consumer(door: Any, cuda: Any) -> None:
    producer, other = cuda.stream(), cuda.stream()
    x = cuda.array([1.0], speaks="cai3", stream=producer)
    with cuda.current_stream(other):
        view = door(x)
        said = view.shape, view.typestr, view.stream, repr(view), view.owner
        assert said[2] == producer.handle
        cuda.clear_calls()
        del view, said
    assert cuda.calls == []
    cuda.synchronize()


@pytest.mark.parametrize("look", ["ptr", "dict"])
def test_who_asks_where_the_memory_is_is_one(look: str, cuda: Any) -> None:
    producer, mine = cuda.stream(), cuda.stream()
    x = cuda.array([1.0], speaks="cai3", stream=producer)
    view = to_cai(x)
    with cuda.current_stream(mine):
        _ = view.ptr if look == "ptr" else view.__cuda_array_interface__
        cuda.clear_calls()
        del view
    recorded = {call.stream for call in cuda.calls if call.call == "cuEventRecord"}
    assert recorded == {cuda.legacy.handle, mine.handle}
    cuda.synchronize()


@pytest.mark.parametrize("how", ["stream=-1", "release(-1)"])
def test_minus_one_turns_it_off(how: str, cuda: Any) -> None:
    producer, mine = cuda.stream(), cuda.stream()
    x = cuda.array([1.0], speaks="cai3", stream=producer)
    with cuda.current_stream(mine):
        view = to_cai(x, stream=-1 if how == "stream=-1" else None)
        assert view.__cuda_array_interface__["data"][0] == x.ptr
        cuda.clear_calls()
        view.release(-1 if how == "release(-1)" else None)
    assert not {call.call for call in cuda.calls} & set(ORDER)
    cuda.synchronize()


def test_a_reader_that_ignores_the_dicts_stream_waits_for_it_as_it_reads(cuda: Any) -> None:
    producer, mine = cuda.stream(), cuda.stream()
    x = cuda.array([0.0] * 4, speaks="cai3", stream=producer)
    producer.fill(x, 7.0)
    seen = cuda.consumer("cai-trusting", mine).read(to_cai(x))
    assert done(seen) == [7.0] * 4


@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
@pytest.mark.parametrize("speaks", ["cai0", "cai1", "cai2", "cai3"])
@pytest.mark.parametrize("door", [to_cai, lambda x: to_cai(from_cai(x))], ids=["direct", "nested"])
def test_where_nothing_is_pending_a_reader_is_waited_for_too(
    door: Any, speaks: str, cuda: Any
) -> None:
    x = cuda.array([1.0] * 8, speaks=speaks)
    view = door(x)
    assert view.stream is None
    cuda.consumer("cai-waits", cuda.stream()).read(view)
    alive = weakref.ref(x)
    del x, view
    assert alive() is not None, "the producer's stream is unknown: the reader has to be done first"
    cuda.synchronize()
    _settle()
    assert alive() is None


def test_a_reader_on_a_stream_that_was_declared_by_its_handle_is_waited_for(cuda: Any) -> None:
    producer, declared = cuda.legacy, cuda.stream()
    x = cuda.array([0.0] * 4, speaks="cai3", stream=producer)
    cuda.synchronize()
    view = to_cai(from_cai(x, stream=declared.handle))
    seen = cuda.consumer("cai-enqueues", declared).read(view)
    view.release()
    producer.fill(x, 2.0)
    assert done(seen) == [0.0] * 4


def test_a_reader_on_another_gpus_default_stream_waits_for_the_producers_one(cuda: Any) -> None:
    x = cuda.array([0.0] * 4, speaks="cai3", memory="managed", stream=cuda.legacy)
    cuda.legacy.fill(x, 7.0)
    view = to_cai(from_cai(x, device=(2, 1)))
    seen = cuda.consumer("cai-trusting", cuda.default_stream(1)).read(view)
    assert done(seen) == [7.0] * 4


@pytest.mark.parametrize("captured", ["producer", "reader"])
def test_a_dict_that_is_read_during_a_capture_drags_nobody_into_it(
    captured: str, cuda: Any
) -> None:
    producer, mine = cuda.stream(), cuda.stream()
    x = cuda.array([0.0] * 4, speaks="cai3", stream=producer)
    cuda.synchronize()
    view = to_cai(x)
    with cuda.capture(producer if captured == "producer" else mine, "relaxed") as graph:
        consumer = cuda.consumer("cai-trusting", mine)
        if captured == "producer":
            consumer._taken(view)
        else:
            consumer.read(view).release()
    graph.launch(producer)
    cuda.synchronize()


def test_an_end_that_another_thread_tries_again_waits_for_the_same_streams(cuda: Any) -> None:
    scene = Scene(cuda, "ends on")
    view = scene.view()
    seen = scene.read(view)
    with cuda.current_stream(scene.reader):
        cuda.fail("cuEventRecord")
        del view
    # Tried again where the reader's stream is no library's. A call of the bridge asks a few of the
    # ends that are not over, and those of other tests may come first; this asks all of them.
    in_another_thread(_settle)
    seen.release()
    again(scene)
    assert done(seen) == [1.0] * 8


def test_a_reader_on_the_producers_stream_is_waited_for_by_another_that_was_declared(
    cuda: Any,
) -> None:
    home, declared = cuda.stream("home"), cuda.stream("declared")
    array = cuda.array([1.0] * 8, speaks="exchange")
    with cuda.current_stream(home):
        taken = to_cai(array)
    view = to_cai(from_cai(taken, stream=declared))
    cuda.consumer("cai-waits", home).read(view)
    view.release()
    declared.fill(array, 2.0)
    cuda.synchronize()
    assert not cuda.reports


@pytest.mark.parametrize("door", [from_cai, to_dlpack])
def test_a_reader_on_the_stream_that_a_dict_names_is_waited_for(door: Any, cuda: Any) -> None:
    theirs, declared = cuda.stream("theirs"), cuda.stream("declared")
    x = cuda.array([1.0] * 4, speaks="cai3", stream=theirs)
    declared.wait(theirs.record())
    view = to_cai(door(to_cai(x), stream=declared))
    assert view.__cuda_array_interface__["stream"] == declared.handle
    seen = declared.read(view)
    del view
    theirs.fill(x, 9.0)
    assert done(seen) == [1.0] * 4
