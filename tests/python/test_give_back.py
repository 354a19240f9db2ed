"""The end of a hand-over: the producer gets its memory back in order with the consumer's work.

Each case ends while the consumer's read is still queued, and the producer then writes: to a new
array in the same block, or to its own array again. Nothing may be reported; with any call of the
order left out, something must be. `test_give_back_later.py` has the ends that cannot come at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
    once_more,
    read_before,
    with_block,
)
from specification import as_consumer, as_producer

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import simulated_cuda

# Pairs that the driver orders by itself only where an action on the legacy stream comes between.
PAIRS = [(p, c) for p in STREAMS for c in STREAMS]


def let_go(holder: Any) -> None:
    holder.release()


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


@as_consumer("no-races", "hazards", "hold-back", "hold-back-event")
@as_producer("no-races", "hazards", "hold-back")
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
        # Of a stream that an object keeps, the driver is asked whether it is still the same one.
        asked = {"cuCtxGetCurrent", "cuCtxGetId", "cuStreamGetId", "cuStreamIsCapturing"}
        assert [call for call in cuda.calls if call.call not in asked] == []
        assert read_before(again, scene, pending) == [1.0] * 8


# --- every way to end -----------------------------------------------------------------------------


def in_a_thread(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def dropped(views: list[Any]) -> None:
    views.clear()


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
    assert read_before(again, scene, pending) == [1.0] * 8


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
    assert read_before(again, scene, pending) == [1.0] * 8


def test_an_unconsumed_capsule_gives_its_share_back(cuda):
    scene = Scene(cuda, "cai3", "non-blocking", "non-blocking")
    capsule = from_cai(scene.array).__dlpack__(stream=scene.consumer)
    del capsule
    again(scene)
    cuda.synchronize()


def test_a_bare_handle_is_good_enough_for_release_itself(cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    with scene.current():
        view = to_cai(scene.array)
    seen = cuda.consumer("cai-waits", scene.consumer).read(view)
    seen.release()
    view.release(scene.consumer.handle)
    assert read_before(again, scene, seen) == [1.0] * 8


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
        if FREE_THREADED:
            consuming.submit(int).result()
        producing.submit(cuda.per_thread.fill, array, 2.0).result()
        assert done(seen) == [1.0] * 4
