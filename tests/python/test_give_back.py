"""The end of a hand-over: the producer gets its memory back in order with the consumer's work.

Each case ends while the consumer's read is still queued, and the producer then writes: to a new
array in the same block, or to its own array again. Nothing may be reported; with any call of the
order left out, something must be. What cannot be given back at once is kept until it can be.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import capsules
import pytest
import tables
from fakes import FREE_THREADED
from scenes import (
    DOORS,
    ORDER,
    STREAMS,
    Scene,
    again,
    by_dict,
    collected,
    done,
    next_tenant,
    once_more,
    read_before,
    with_block,
)
from specification import as_consumer, as_producer

from another_thread import in_another_thread
from cai_bridge import DriverError, from_cai, to_cai
from cai_bridge.testing import simulated_cuda

# Pairs that the driver orders by itself only where an action on the legacy stream comes between.
PAIRS = [(p, c) for p in STREAMS for c in STREAMS]


def run(
    door: str, pair: tuple[str, str], after: Callable[[Scene], None], without: str | None = None
) -> tuple[list[Any], list[Any], list[str]]:
    """The reports, what the consumer saw, and the order's calls at the end."""
    speaks, hand_over = DOORS[door]
    with simulated_cuda(check=False) as cuda:
        scene = Scene(cuda, speaks, *pair)
        pending, holder = hand_over(scene)
        cuda.clear_calls()
        if without:
            cuda.suppress(without)
        holder.release()
        del holder
        made = [call.call for call in cuda.calls if call.call in ORDER]
        after(scene)
        cuda.synchronize()
        return cuda.reports, pending.value, made


@as_consumer("no-races", "hazards", "hold-back", "hold-back-event")
@as_producer("no-races", "hazards", "hold-back")
@pytest.mark.parametrize("after", [again, once_more])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("door", DOORS)
def test_the_producers_next_write_comes_after_the_consumers_read(door, pair, after):
    reports, seen, made = run(door, pair, after)
    assert (reports, seen) == ([], [1.0] * 8)
    # Neither needs an order, but the driver alone knows that they share a context.
    ordered_anyway = "legacy" in pair and "non-blocking" not in pair
    for call in made:
        reports, _, _ = run(door, pair, after, without=call)
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
        holder.release()
        del holder
        # Of a stream that an object keeps, the driver is asked whether it is still the same one.
        asked = {"cuCtxGetCurrent", "cuCtxGetId", "cuStreamGetId", "cuStreamIsCapturing"}
        assert [call for call in cuda.calls if call.call not in asked] == []
        assert read_before(again, scene, pending) == [1.0] * 8


ENDS: dict[str, Callable[[list[Any]], object]] = {
    "release": lambda views: views[0].release(),
    "release with the same stream": lambda views: views[0].release(views[0].stream),
    "with": with_block,
    "the last reference": list.clear,
    "the garbage collector": collected,
    "another thread's release": lambda views: in_another_thread(views[0].release),
    "another thread's last reference": lambda views: in_another_thread(views.clear),
}


@pytest.fixture
def scene(cuda):
    return Scene(cuda, "exchange", "non-blocking", "non-blocking")


@pytest.mark.parametrize("end", ENDS)
def test_every_end_of_a_view_gives_the_memory_back_in_order(end, scene):
    pending, view = by_dict(scene)
    views = [view]
    del view
    ENDS[end](views)
    assert read_before(again, scene, pending) == [1.0] * 8


@pytest.mark.parametrize("form", ["versioned", "legacy", "exchange"])
@pytest.mark.parametrize(
    "call", [lambda act: act(), in_another_thread], ids=["here", "in a thread"]
)
def test_a_managed_tensors_deleter_gives_the_memory_back_in_order(call, form, cuda):
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
    call(taken.delete)
    assert read_before(again, scene, pending) == [1.0] * 8


def test_an_unconsumed_capsule_gives_its_share_back(cuda):
    scene = Scene(cuda, "cai3", "non-blocking", "non-blocking")
    capsule = from_cai(scene.array).__dlpack__(stream=scene.consumer)
    del capsule
    again(scene)
    cuda.synchronize()


def test_what_is_no_stream_is_refused_and_a_second_release_does_nothing(scene, cuda):
    pending, view = by_dict(scene)
    for stream in (0, True, -2, "1", 1.0):
        with pytest.raises((ValueError, TypeError), match=r"^stream: got .+; allowed: "):
            view.release(stream)
    assert view.owner is scene.array
    view.release()
    cuda.clear_calls()
    view.release()
    view.release(cuda.stream())
    view.__exit__(None, None, None)
    assert cuda.calls == []
    assert done(pending) == [1.0] * 8


def test_zero_size_arrays_have_nothing_to_give_back(cuda):
    view = from_cai(cuda.array(shape=0, speaks="cai", stream=cuda.stream()))
    capsule = view.__dlpack__(stream=cuda.stream())
    assert to_cai(view).__cuda_array_interface__["stream"] is None
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
            pool = producing if ends_on == "producer's" else consuming
            pool.submit(seen.release).result()
        if FREE_THREADED:
            consuming.submit(int).result()
        producing.submit(cuda.per_thread.fill, array, 2.0).result()
        assert done(seen) == [1.0] * 4


def unknown(cuda: Any, speaks: Any, consumed_on: str = "non-blocking") -> Scene:
    """A producer that says nothing of its stream, with an allocator on a non-blocking one."""
    scene = Scene(cuda, speaks, "non-blocking", consumed_on)
    scene.producer.synchronize()
    return scene


@pytest.mark.parametrize("consumed_on", STREAMS)
@pytest.mark.parametrize("speaks", ["dlpack", "dlpack-strict", "dlpack-bare", "capsule"])
@pytest.mark.parametrize("finds", ["the next call", "a synchronize"])
def test_without_its_stream_a_producer_gets_its_memory_back_when_the_consumer_is_done(
    finds, speaks, consumed_on, cuda
):
    scene = unknown(cuda, "dlpack" if speaks == "capsule" else speaks, consumed_on)
    given = scene.array.__dlpack__() if speaks == "capsule" else scene.array
    view = to_cai(given, stream=scene.consumer)
    del given
    seen, block = scene.consumer.read(view), scene.array.ptr
    scene.array, view = None, view.release()
    gc.collect()
    new = cuda.array(shape=8, memory="pool", stream=scene.producer, speaks=())
    assert new.ptr != block, "the consumer has not read yet"
    scene.producer.fill(new, 2.0)
    if finds == "the next call":
        cuda.run()
        to_cai(cuda.array([1.0]))
    else:
        scene.consumer.synchronize()
    assert seen.value == [1.0] * 8
    next_tenant(scene.producer, block, 8)
    cuda.synchronize()


def test_the_stream_that_a_silent_dicts_producer_was_asked_for_is_not_its_own(cuda):
    scene = unknown(cuda, ("dlpack", "cai2"), "legacy")
    gone = weakref.ref(scene.array)
    view = from_cai(scene.array)
    seen = cuda.consumer("dlpack", scene.consumer).read(view)
    scene.array, view = None, view.release()
    seen.release()
    assert gone() is not None, "the consumer has not read yet"
    scene.consumer.synchronize()
    assert (seen.value, gone()) == ([1.0] * 8, None)


def test_what_is_not_done_at_the_end_of_the_device_goes_then():
    with simulated_cuda() as cuda:
        stream, array = cuda.stream(), cuda.array([1.0] * 4)
        tensor = capsules.HandMade(array.ptr)
        view = to_cai(tensor.capsule(), stream=stream)
        stream.launch(reads=[view])
        view.release()
        assert tensor.deleted == 0
    assert tensor.deleted == 1


@pytest.mark.parametrize("call", ORDER)
def test_a_last_reference_whose_order_fails_keeps_the_memory_until_it_is_made(call, scene, cuda):
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
    next_tenant(scene.producer, block, 8)
    assert done(pending) == [1.0] * 8


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_order_that_fails_at_the_end_of_a_with_block_replaces_no_exception(scene, cuda):
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
    assert read_before(again, scene, pending) == [1.0] * 8
