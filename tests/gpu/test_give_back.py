"""Memory that a consumer still reads when its producer gets it back: every pair, a thousand runs.

The consumer's read waits behind a spinning kernel on a stream of its own. Everything that holds
the memory is dropped, and the producer at once does what producers do: it allocates as much again,
which its caching allocator takes from the same block, and writes; or it writes to its own array
again. With the bridge the consumer must have read the first values every time; natively some run
must fail, or the case proves nothing.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cai_bridge import from_cai, to_cai

from . import streams
from .converting import LATE, WORKERS, Place, pointer
from .streams import handle_of

RUNS = 1000
NATIVE_RUNS = 100
WORDS = 1 << 18
SPIN_MS = 0.5


def worker(library: str, place: Place) -> Any:
    return WORKERS[library](place, WORDS)


def fresh(source: Any, value: float) -> Any:
    """An array of a library that is written, which JAX does when it likes."""
    array = source.fresh(value)
    return array.block_until_ready() if source.to == "jax" else array


def read_late(place: Place, sink: Any, take: Callable[[], Any]) -> Any:
    with sink.working():
        place.driver.spin(handle_of(sink.stream), SPIN_MS)
        taken = take()
        sink.read(taken)
    return taken


def by_dict(source: Any, sink: Any, array: Any) -> tuple[Any, Callable[[], Any]]:
    with source.working():
        view = to_cai(array, stream=sink.stream)
    if sink.to == "numba":
        return view, lambda: sink.cuda.as_cuda_array(view, sync=False)
    return view, lambda: streams.cupy_view_without_sync(view)


def by_capsule(source: Any, sink: Any, array: Any) -> tuple[Any, Callable[[], Any]]:
    with source.working():
        view = from_cai(array)
    return view, lambda: sink.torch.from_dlpack(view)


def native(source: Any, sink: Any, array: Any) -> tuple[Any, Callable[[], Any]]:
    return None, lambda: sink.native(array)


def freed_while_read(place: Place, source: Any, sink: Any, hand_over: Any, runs: int) -> Any:
    """Count the runs that read anything but the first value, and the blocks that came again."""
    values, wrong, same = streams.fresh_values(), 0, 0
    for _ in range(runs):
        value = float(next(values))
        array = fresh(source, value)
        place.driver.synchronize()
        at = pointer(array, source.to)
        view, take = hand_over(source, sink, array)
        taken = read_late(place, sink, take)
        del array, view, take, taken
        late = source.fresh(LATE)
        same += pointer(late, source.to) == at
        wrong += not bool((sink.seen() == value).all())
        place.driver.synchronize()
        del late
    return wrong, same


def written_again(place: Place, source: Any, sink: Any, hand_over: Any, runs: int) -> int:
    """Count the runs that read anything but the first value, the producer writing once more."""
    values, wrong = streams.fresh_values(), 0
    for _ in range(runs):
        value = float(next(values))
        array = fresh(source, value)
        place.driver.synchronize()
        view, take = hand_over(source, sink, array)
        taken = read_late(place, sink, take)
        del take, taken
        if view is not None:
            view.release()
        source.write(LATE, array)
        wrong += not bool((sink.seen() == value).all())
        place.driver.synchronize()
    return wrong


PAIRS = [
    ("torch", "cupy", by_dict),
    ("cupy", "torch", by_capsule),
    ("torch", "numba", by_dict),
    ("jax", "cupy", by_dict),
]


@pytest.mark.parametrize(("producer", "consumer", "hand_over"), PAIRS)
def test_memory_freed_while_a_consumer_reads_is_not_handed_out_before(
    place, note, producer, consumer, hand_over
):
    source, sink = worker(producer, place), worker(consumer, place)
    wrong, same = freed_while_read(place, source, sink, hand_over, RUNS)
    without, reused = freed_while_read(place, source, sink, native, NATIVE_RUNS)
    gc.collect()
    note(
        f"{producer} -> {consumer}, freed while read: wrong {wrong}/{RUNS} through the bridge "
        f"(block used again: {same}), {without}/{NATIVE_RUNS} without ({reused})",
    )
    assert wrong == 0
    assert without > 0


@pytest.mark.parametrize(
    ("producer", "consumer", "hand_over"), [pair for pair in PAIRS if pair[0] != "jax"]
)
def test_a_producers_next_write_comes_after_the_consumers_read(
    place, note, producer, consumer, hand_over
):
    source, sink = worker(producer, place), worker(consumer, place)
    wrong = written_again(place, source, sink, hand_over, RUNS)
    without = written_again(place, source, sink, native, NATIVE_RUNS)
    note(
        f"{producer} -> {consumer}, written again after release: wrong {wrong}/{RUNS} through the "
        f"bridge, {without}/{NATIVE_RUNS} without",
    )
    assert wrong == 0
    assert without > 0


def test_numba_with_a_caching_allocator_gets_its_memory_back_in_order(note):
    """In a process of its own: Numba takes its allocator before its first context."""
    pytest.importorskip("numba")
    pytest.importorskip("torch")
    pytest.importorskip("cupy")
    child = Path(__file__).with_name("numba_pool_child.py")
    done = subprocess.run(
        [sys.executable, str(child), str(RUNS), str(NATIVE_RUNS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    note(
        f"numba -> torch: freed while read, wrong {said['freed']}/{RUNS} through the bridge "
        f"(used again {said['reused']} times), {said['freed without']}/{NATIVE_RUNS} without; "
        f"written again, wrong {said['written']}/{RUNS}, {said['written without']}/{NATIVE_RUNS}"
    )
    assert (said["freed"], said["written"]) == (0, 0)
    assert said["freed without"] > 0
    assert said["written without"] > 0
