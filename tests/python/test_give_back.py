"""The end of a hand-over: the producer gets its memory back in order with the consumer's work.

Memory comes from the pool of the producer's stream, as caching allocators have it, so that it is
handed out again at once when the producer frees it. Each case ends while the consumer's read is
still queued, and the producer then writes: to a new array in the same block, or to its own array
again. Nothing may be reported; with any call of the order left out, something must be.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import capsules
import pytest
import tables
from capsules import HandMade
from fakes import only_cai

from cai_bridge import DriverError, from_cai, to_cai
from cai_bridge.testing import simulated_cuda

STREAMS = ("legacy", "per-thread", "blocking", "non-blocking")
# Pairs that the driver orders by itself only where an action on the legacy stream comes between.
PAIRS = [(p, c) for p in STREAMS for c in STREAMS]
ORDER = ("cuEventRecord", "cuStreamWaitEvent")


class Scene:
    """A producer with an array from its pool, and a consumer's stream."""

    def __init__(self, cuda: Any, speaks: Any, produced_on: str, consumed_on: str) -> None:
        self.cuda = cuda
        self.producer = self.stream(produced_on, "producer")
        self.consumer = self.stream(consumed_on, "consumer")
        self.array: Any = cuda.array(
            [1.0] * 8, speaks=speaks, memory="pool", stream=self.producer, name="x"
        )

    def stream(self, kind: str, name: str) -> Any:
        if kind == "legacy":
            return self.cuda.legacy
        if kind == "per-thread":
            return self.cuda.per_thread
        return self.cuda.stream(name, blocking=kind == "blocking")

    @contextmanager
    def current(self) -> Any:
        """The producer's stream is its library's current one, where it has no other way to say."""
        with ExitStack() as stack:
            if self.producer.handle > 2:
                stack.enter_context(self.cuda.current_stream(self.producer))
            elif self.producer.handle == 2:
                stack.enter_context(
                    self.cuda.current_stream(self.cuda.default_stream(0, per_thread=True))
                )
            yield


def by_dict(scene: Scene) -> tuple[Any, Any]:
    """DLPack producer, CAI consumer: the view is the consumer's hold on the memory."""
    with scene.current():
        view = to_cai(scene.array, stream=scene.consumer)
    return scene.consumer.read(view), view


def by_capsule(scene: Scene) -> tuple[Any, Any]:
    """CAI producer, DLPack consumer: the capsule's managed tensor is."""
    view = from_cai(scene.array)
    seen = scene.cuda.consumer("dlpack", scene.consumer).read(view)
    view.release()
    return seen, seen


def by_capsule_of_a_declared_stream(scene: Scene) -> tuple[Any, Any]:
    view = from_cai(scene.array, stream=scene.producer)
    seen = scene.cuda.consumer("dlpack", scene.consumer).read(view)
    view.release()
    return seen, seen


DOORS: dict[str, tuple[Any, Callable[[Scene], tuple[Any, Any]]]] = {
    "exchange to dict": ("exchange", by_dict),
    "cai3 to capsule": ("cai3", by_capsule),
    "cai2, declared, to capsule": ("cai2", by_capsule_of_a_declared_stream),
    "cai3 to dict": ("cai3", by_dict),
}


def let_go(holder: Any) -> None:
    holder.release()


def again(scene: Scene) -> None:
    """The producer's allocator hands the block out again, and the producer writes to it."""
    old = scene.array.ptr
    scene.array = None
    gc.collect()
    new = scene.cuda.array(
        shape=8, memory="pool", stream=scene.producer, speaks=(), name="the next tenant"
    )
    assert new.ptr == old, "the block was not handed out again: the case shows nothing"
    scene.producer.fill(new, 2.0, name="the next tenant's write")


def once_more(scene: Scene) -> None:
    """The producer writes to its own array again."""
    scene.producer.fill(scene.array, 2.0, name="the producer's next write")


def run(
    door: str,
    pair: tuple[str, str],
    after: Callable[[Scene], None],
    without: tuple[str, int] | None = None,
) -> tuple[list[Any], list[Any], list[str]]:
    """The reports, what the consumer saw, and the order's calls at the end."""
    speaks, hand_over = DOORS[door]
    with simulated_cuda(check=False) as cuda:
        scene = Scene(cuda, speaks, *pair)
        pending, holder = hand_over(scene)
        cuda.clear_calls()
        if without:
            cuda.suppress(without[0], nth=without[1])
        let_go(holder)
        del holder
        made = [call.call for call in cuda.calls if call.call in ORDER]
        after(scene)
        cuda.synchronize()
        return cuda.reports, pending.value, made


@pytest.mark.parametrize("after", [again, once_more])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("door", DOORS)
def test_the_producers_next_write_comes_after_the_consumers_read(door, pair, after):
    reports, seen, made = run(door, pair, after)
    assert (reports, seen) == ([], [1.0] * 8)
    for call in made:
        reports, _, _ = run(door, pair, after, without=(call, 1))
        ordered_anyway = (
            # Neither needs an order, but the driver alone knows that they share a context.
            pair[0] == "legacy" and pair[1] != "non-blocking"
        ) or (pair[1] == "legacy" and pair[0] != "non-blocking")
        assert reports or ordered_anyway, f"{call} was not needed, or the case cannot see"


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("door", DOORS)
def test_one_stream_for_both_pays_nothing(door, kind):
    speaks, hand_over = DOORS[door]
    with simulated_cuda() as cuda:
        scene = Scene(cuda, speaks, kind, kind)
        scene.consumer = scene.producer
        pending, holder = hand_over(scene)
        cuda.clear_calls()
        let_go(holder)
        del holder
        assert cuda.calls == []
        again(scene)
        cuda.synchronize()
        assert pending.value == [1.0] * 8


# --- every way to end -----------------------------------------------------------------------------


def in_a_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def dropped(views: list[Any]) -> None:
    views.clear()


def collected(views: list[Any]) -> None:
    class Cycle:
        pass

    cycle = Cycle()
    cycle.self, cycle.view = cycle, views.pop()
    del cycle
    gc.collect()


def with_block(views: list[Any]) -> None:
    with views[0]:
        pass


ENDS: dict[str, Callable[[list[Any]], object]] = {
    "release": lambda views: views[0].release(),
    "release with the same stream": lambda views: views[0].release(views[0].stream),
    "with": with_block,
    "the last reference": dropped,
    "the garbage collector": collected,
    "another thread's release": lambda views: in_a_thread(views[0].release),
    "another thread's last reference": lambda views: in_a_thread(views.clear),
}


@pytest.mark.parametrize("end", ENDS)
def test_every_end_of_a_view_gives_the_memory_back_in_order(end, cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    pending, view = by_dict(scene)
    views = [view]
    del view
    ENDS[end](views)
    again(scene)
    cuda.synchronize()
    assert pending.value == [1.0] * 8


@pytest.mark.parametrize("form", ["versioned", "legacy", "exchange"])
@pytest.mark.parametrize("thread", [False, True])
def test_a_managed_tensors_deleter_gives_the_memory_back_in_order(thread, form, cuda):
    scene = Scene(cuda, "cai3", "non-blocking", "non-blocking")
    view = from_cai(scene.array)
    if form == "exchange":
        # Its consumer is told to work on the legacy default stream.
        taken, scene.consumer = tables.managed(view), cuda.legacy
    else:
        version = (1, 3) if form == "versioned" else None
        taken = capsules.take(view.__dlpack__(stream=scene.consumer, max_version=version))
    pending = scene.consumer.read(view)
    del view
    if thread:
        in_a_thread(taken.delete)
    else:
        taken.delete()
    again(scene)
    cuda.synchronize()
    assert pending.value == [1.0] * 8


def test_an_unconsumed_capsule_gives_its_share_back(cuda):
    scene = Scene(cuda, "cai3", "non-blocking", "non-blocking")
    capsule = from_cai(scene.array).__dlpack__(stream=scene.consumer)
    del capsule
    again(scene)
    cuda.synchronize()


def test_each_of_several_holders_orders_its_own_consumer(cuda):
    scene = Scene(cuda, "cai3", "non-blocking", "non-blocking")
    view, streams = from_cai(scene.array), [cuda.stream(f"consumer {n}") for n in range(3)]
    reads = [cuda.consumer("dlpack", stream).read(view) for stream in streams]
    view.release()
    for read in reversed(reads):
        read.release()
    again(scene)
    cuda.synchronize()
    assert [read.value for read in reads] == [[1.0] * 8] * 3


def test_a_stream_given_to_release_is_ordered_beside_the_one_that_was_known(cuda):
    scene, other = Scene(cuda, "exchange", "non-blocking", "non-blocking"), cuda.stream("other")
    pending, view = by_dict(scene)
    other.wait(scene.consumer.record())
    both = [pending, other.read(view)]
    view.release(other)
    again(scene)
    cuda.synchronize()
    assert [seen.value for seen in both] == [[1.0] * 8] * 2


def test_a_bare_handle_is_good_enough_for_release_itself(cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    with scene.current():
        view = to_cai(scene.array)
    seen = cuda.consumer("cai-waits", scene.consumer).read(view)
    seen.release()
    view.release(scene.consumer.handle)
    again(scene)
    cuda.synchronize()
    assert seen.value == [1.0] * 8


def test_minus_1_says_that_the_consumer_is_done(cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    pending, view = by_dict(scene)
    scene.consumer.synchronize()
    cuda.clear_calls()
    view.release(-1)
    assert cuda.calls == []
    assert pending.value == [1.0] * 8


@pytest.mark.parametrize("stream", [0, True, -2, "1", 1.0])
def test_what_is_no_stream_is_refused_and_the_view_stays(stream, cuda):
    view = to_cai(cuda.array([1.0]))
    with pytest.raises((ValueError, TypeError), match=r"^stream: got .+; allowed: "):
        view.release(stream)
    assert cuda.read(view) == [1.0]
    view.release()


def test_a_second_release_does_nothing(cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    _, view = by_dict(scene)
    view.release()
    cuda.clear_calls()
    view.release()
    view.release(cuda.stream())
    with view_closed(view):
        pass
    assert cuda.calls == []
    cuda.synchronize()


@contextmanager
def view_closed(view: Any) -> Any:
    yield
    view.__exit__(None, None, None)


def test_zero_size_arrays_have_nothing_to_give_back(cuda):
    view = from_cai(cuda.array(shape=0, speaks="cai", stream=cuda.stream()))
    capsule = view.__dlpack__(stream=cuda.stream())
    cuda.clear_calls()
    del capsule
    view.release(cuda.stream())
    assert cuda.calls == []


@pytest.mark.parametrize("ends_on", ["producer's", "consumer's", "third"])
@pytest.mark.parametrize("consumer", ["another thread's own", "non-blocking", "legacy"])
def test_a_per_thread_stream_is_that_of_its_thread_whoever_lets_go(consumer, ends_on, cuda):
    with ThreadPoolExecutor(1) as producing, ThreadPoolExecutor(1) as consuming:
        array = producing.submit(
            lambda: cuda.array([1.0] * 4, speaks="cai3", stream=cuda.per_thread, name="x")
        ).result()
        view = producing.submit(from_cai, array).result()
        stream = {
            "another thread's own": cuda.per_thread,
            "non-blocking": cuda.stream("consumer"),
            "legacy": cuda.legacy,
        }[consumer]
        seen = consuming.submit(cuda.consumer("dlpack", stream).read, view).result()
        if ends_on == "third":
            seen.release()
        else:
            {"producer's": producing, "consumer's": consuming}[ends_on].submit(
                seen.release
            ).result()
        producing.submit(cuda.per_thread.fill, array, 2.0).result()
        cuda.synchronize()
        assert seen.value == [1.0] * 4


# --- a producer whose stream is unknown -----------------------------------------------------------


class Unknown(Scene):
    """A producer that says nothing of its stream, with an allocator on a non-blocking one."""

    def __init__(self, cuda: Any, speaks: str, consumed_on: str = "non-blocking") -> None:
        super().__init__(cuda, speaks, "non-blocking", consumed_on)
        self.producer.synchronize()

    def view(self) -> Any:
        if self.array.__class__.__dict__.get("_version") or hasattr(
            self.array, "__cuda_array_interface__"
        ):
            return from_cai(only_cai(self.array, shape=(8,)))
        return to_cai(self.array, stream=self.consumer)


@pytest.mark.parametrize("consumed_on", STREAMS)
@pytest.mark.parametrize("speaks", ["dlpack", "dlpack-strict", "dlpack-bare", "capsule"])
def test_without_its_stream_a_producer_gets_its_memory_back_when_the_consumer_is_done(
    speaks, consumed_on, cuda
):
    scene = Unknown(cuda, "dlpack" if speaks == "capsule" else speaks, consumed_on)
    given = scene.array.__dlpack__() if speaks == "capsule" else scene.array
    view = to_cai(given, stream=scene.consumer)
    del given
    seen, block = scene.consumer.read(view), scene.array.ptr
    scene.array, view = None, view.release()
    gc.collect()
    new = cuda.array(shape=8, memory="pool", stream=scene.producer, speaks=())
    assert new.ptr != block, "the consumer has not read yet"
    scene.producer.fill(new, 2.0)
    scene.consumer.synchronize()
    assert seen.value == [1.0] * 8
    # The next call of the bridge finds that the consumer is done; here the sync was one.
    last = cuda.array(shape=8, memory="pool", stream=scene.producer, speaks=())
    assert last.ptr == block
    scene.producer.fill(last, 3.0)
    cuda.synchronize()


def test_what_waits_for_its_consumer_goes_at_the_next_call_of_the_bridge(cuda):
    scene = Unknown(cuda, "dlpack")
    view = to_cai(scene.array, stream=scene.consumer)
    gone = weakref.ref(scene.array)
    scene.consumer.read(view)
    scene.array = None
    del view
    gc.collect()
    assert gone() is not None
    cuda.run()
    to_cai(cuda.array([1.0]))
    assert gone() is None
    cuda.synchronize()


def test_a_consumer_that_is_done_lets_go_at_once(cuda):
    scene = Unknown(cuda, "dlpack")
    view = to_cai(scene.array, stream=scene.consumer)
    gone = weakref.ref(scene.array)
    cuda.synchronize()
    scene.array = None
    del view
    gc.collect()
    assert gone() is None


def test_the_legacy_default_stream_stands_in_for_the_producers(cuda):
    array, consumer = cuda.array([1.0] * 4, name="x"), cuda.stream("consumer")
    tensor = HandMade(array.ptr)
    view = to_cai(tensor.capsule(), stream=consumer)
    seen = consumer.read(view)
    view.release()
    cuda.legacy.fill(view, 2.0)
    cuda.synchronize()
    assert seen.value == [1.0] * 4


def test_what_is_not_done_at_the_end_of_the_device_goes_then():
    with simulated_cuda() as cuda:
        stream, array = cuda.stream(), cuda.array([1.0] * 4)
        tensor = HandMade(array.ptr)
        view = to_cai(tensor.capsule(), stream=stream)
        stream.launch(reads=[view])
        view.release()
        assert tensor.deleted == 0
    assert tensor.deleted == 1


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ORDER)
def test_a_release_whose_order_fails_leaves_everything_as_it_was(call, cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    pending, view = by_dict(scene)
    cuda.fail(call)
    with pytest.raises(DriverError, match=rf"^{call}: got "):
        view.release()
    assert view.owner is scene.array
    view.release()
    assert view.owner is None
    again(scene)
    cuda.synchronize()
    assert pending.value == [1.0] * 8


@pytest.mark.parametrize("call", ORDER)
def test_a_last_reference_whose_order_fails_keeps_the_memory_until_it_is_made(call, cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    pending, view = by_dict(scene)
    block, gone = scene.array.ptr, weakref.ref(scene.array)
    cuda.fail(call)
    scene.array = None
    del view
    gc.collect()
    assert cuda.clear_faults() == 0
    assert gone() is not None
    to_cai(cuda.array([1.0]))
    assert gone() is None
    new = cuda.array(shape=8, memory="pool", stream=scene.producer, speaks=())
    assert new.ptr == block
    scene.producer.fill(new, 2.0)
    cuda.synchronize()
    assert pending.value == [1.0] * 8


@pytest.mark.parametrize("code", ["CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_LAUNCH_FAILED"])
def test_where_no_order_can_ever_be_made_nothing_is_kept(code):
    with simulated_cuda(check=False) as cuda:
        scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
        _, view = by_dict(scene)
        gone = weakref.ref(scene.array)
        cuda.fail("cuEventRecord", error=code)
        scene.array = None
        del view
        gc.collect()
        assert gone() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_order_that_fails_at_the_end_of_a_with_block_replaces_no_exception(cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    pending, view = by_dict(scene)

    def failing_in_the_block() -> None:
        with view:
            cuda.fail("cuEventRecord")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_in_the_block()
    assert view.owner is scene.array
    with pytest.raises(DriverError, match=r"^cuEventRecord"), view:
        cuda.fail("cuEventRecord")
    view.release()
    again(scene)
    cuda.synchronize()
    assert pending.value == [1.0] * 8


def test_a_view_dropped_while_an_exception_unwinds_does_not_replace_it(cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")

    def dropping() -> None:
        held = by_dict(scene)
        cuda.fail("cuEventRecord")
        assert held, "dropped while the exception leaves the frame"
        raise LookupError("on its way")

    with pytest.raises(LookupError, match="on its way"):
        dropping()
    gc.collect()
    cuda.synchronize()


# --- several streams on either side ---------------------------------------------------------------


@pytest.mark.parametrize("again", [to_cai, from_cai, lambda view: to_cai(from_cai(view))])
def test_a_view_of_a_view_is_ordered_for_the_stream_that_it_names(again, cuda):
    scene = Scene(cuda, "cai3", "non-blocking", "non-blocking")
    first = to_cai(scene.array, stream=scene.consumer)
    second = again(first)
    first.release()
    assert second.stream == scene.consumer.handle
    seen = scene.consumer.read(second)
    second.release()
    once_more(scene)
    cuda.synchronize()
    assert seen.value == [1.0] * 8


def test_a_borrowed_tensor_is_waited_for_at_the_end_of_the_view_that_lent_it(cuda):
    scene = Scene(cuda, "cai3", "non-blocking", "legacy")
    view = from_cai(scene.array)
    seen = cuda.consumer("dlpack-borrowed", cuda.legacy).read(view)
    seen.release()
    view.release()
    once_more(scene)
    cuda.synchronize()
    assert seen.value == [1.0] * 8


def test_a_capsule_of_a_view_that_lent_its_array_ends_for_its_own_consumer_alone(cuda):
    scene = Scene(cuda, "cai3", "non-blocking", "non-blocking")
    view = from_cai(scene.array)
    tables.borrowed(view)
    taken = capsules.take(view.__dlpack__(stream=scene.producer))
    cuda.clear_calls()
    taken.delete()
    assert cuda.calls == []


@pytest.mark.parametrize("given", ["object", "handle"])
def test_a_declared_stream_waits_for_a_consumer_on_the_memorys_own(given, cuda):
    scene, declared = Scene(cuda, "cai3", "non-blocking", "legacy"), cuda.stream("declared")
    view = from_cai(to_cai(scene.array), stream=declared)
    stream = scene.producer if given == "object" else scene.producer.handle
    taken = capsules.take(view.__dlpack__(stream=stream))
    seen = scene.producer.read(scene.array)
    taken.delete()
    declared.fill(scene.array, 2.0)
    cuda.synchronize()
    assert seen.value == [1.0] * 8


@pytest.mark.parametrize("how", ["view", "dict"])
@pytest.mark.parametrize("writes", ["declared", "first", "freed"])
def test_a_stream_that_is_declared_for_a_view_waits_beside_the_memorys_own(writes, how, cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    declared = cuda.stream("declared")
    with scene.current():
        view = to_cai(scene.array)
    if how == "view":
        taken = from_cai(view, stream=declared)
    else:
        taken = from_cai(view.__cuda_array_interface__, stream=declared, owner=view)
    declared.wait(scene.producer.record())
    declared.fill(scene.array, 1.0)
    seen = cuda.consumer("dlpack", scene.consumer).read(taken)
    taken.release()
    view.release()
    seen.release()
    if writes == "declared":
        declared.fill(scene.array, 2.0)
    elif writes == "first":
        once_more(scene)
    else:
        again(scene)
    cuda.synchronize()
    assert seen.value == [1.0] * 8
