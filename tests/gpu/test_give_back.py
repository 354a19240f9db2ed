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

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import libraries, streams
from .streams import handle_of

RUNS = 1000
NATIVE_RUNS = 100
WORDS = 1 << 18
SPIN_MS = 0.5
LATE = -1.0


class Torch:
    """A producer on a side stream of PyTorch, and a consumer on another."""

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")
        self.stream = self.torch.cuda.Stream()
        self.out = self.torch.zeros(WORDS, device="cuda")

    def make(self, value: float) -> Any:
        with self.torch.cuda.stream(self.stream):
            return self.torch.full((WORDS,), value, device="cuda")

    def hand_over(self, tensor: Any, to: Callable[[Any], Any]) -> Any:
        with self.torch.cuda.stream(self.stream):
            return to(tensor)

    def write(self, tensor: Any, value: float) -> None:
        with self.torch.cuda.stream(self.stream):
            tensor.fill_(value)

    def read_late(self, driver: Any, take: Callable[[], Any]) -> Any:
        with self.torch.cuda.stream(self.stream):
            driver.spin(handle_of(self.stream), SPIN_MS)
            taken = take()
            self.out.copy_(taken)
        return taken

    def seen(self) -> Any:
        self.stream.synchronize()
        return self.out.cpu().numpy()

    def pointer(self, tensor: Any) -> int:
        return int(tensor.data_ptr())


class Cupy:
    """The same with CuPy, on non-blocking streams."""

    def __init__(self) -> None:
        self.cupy = pytest.importorskip("cupy")
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.out = self.cupy.empty(WORDS, dtype=np.float32)

    def make(self, value: float) -> Any:
        with self.stream:
            return self.cupy.full(WORDS, value, dtype=np.float32)

    def hand_over(self, array: Any, to: Callable[[Any], Any]) -> Any:
        with self.stream:
            return to(array)

    def write(self, array: Any, value: float) -> None:
        with self.stream:
            array.fill(value)

    def read_late(self, driver: Any, take: Callable[[], Any]) -> Any:
        with self.stream:
            driver.spin(self.stream.ptr, SPIN_MS)
            taken = take()
            self.out[...] = taken
        return taken

    def seen(self) -> Any:
        return self.cupy.asnumpy(self.out, stream=self.stream)

    def pointer(self, array: Any) -> int:
        return int(array.data.ptr)


class Numba(streams.NumbaCopies):
    """A consumer whose kernel runs on a stream of Numba's."""

    def __init__(self) -> None:
        super().__init__(WORDS)

    def read_late(self, driver: Any, take: Callable[[], Any]) -> Any:
        driver.spin(handle_of(self.stream), SPIN_MS)
        taken = take()
        self.copy_of(taken)
        return taken


class Jax:
    """A producer that says nothing of its streams."""

    def __init__(self) -> None:
        self.jax = libraries.gpu_jax()
        jnp = self.jax.numpy
        self.full = self.jax.jit(lambda value: jnp.full((WORDS,), value, dtype=jnp.float32))

    def make(self, value: float) -> Any:
        return self.full(value).block_until_ready()

    def hand_over(self, array: Any, to: Callable[[Any], Any]) -> Any:
        return to(array)

    def pointer(self, array: Any) -> int:
        return int(array.unsafe_buffer_pointer())


LIBRARIES: dict[str, type[Any]] = {"torch": Torch, "cupy": Cupy, "numba": Numba, "jax": Jax}


def by_dict(source: Any, sink: Any, array: Any) -> tuple[Any, Callable[[], Any]]:
    view = source.hand_over(array, lambda array: to_cai(array, stream=sink.stream))
    if isinstance(sink, Numba):
        return view, lambda: sink.cuda.as_cuda_array(view, sync=False)
    return view, lambda: streams.cupy_view_without_sync(view)


def by_capsule(source: Any, sink: Any, array: Any) -> tuple[Any, Callable[[], Any]]:
    view = source.hand_over(array, from_cai)
    return view, lambda: sink.torch.from_dlpack(view)


def native(source: Any, sink: Any, array: Any) -> tuple[Any, Callable[[], Any]]:
    if isinstance(sink, Numba):
        return None, lambda: sink.cuda.as_cuda_array(array, sync=False)
    library = sink.torch if isinstance(sink, Torch) else sink.cupy
    return None, lambda: library.from_dlpack(array)


def freed_while_read(driver: Any, source: Any, sink: Any, hand_over: Any, runs: int) -> Any:
    """Count the runs that read anything but the first value, and the blocks that came again."""
    values, wrong, same = streams.fresh_values(), 0, 0
    for _ in range(runs):
        value = float(next(values))
        array = source.make(value)
        driver.synchronize()
        pointer = source.pointer(array)
        view, take = hand_over(source, sink, array)
        taken = sink.read_late(driver, take)
        del array, view, take, taken
        late = source.make(LATE) if not isinstance(source, Jax) else source.full(LATE)
        same += source.pointer(late) == pointer
        wrong += not bool((sink.seen() == value).all())
        driver.synchronize()
        del late
    return wrong, same


def written_again(driver: Any, source: Any, sink: Any, hand_over: Any, runs: int) -> int:
    """Count the runs that read anything but the first value, the producer writing once more."""
    values, wrong = streams.fresh_values(), 0
    for _ in range(runs):
        value = float(next(values))
        array = source.make(value)
        driver.synchronize()
        view, take = hand_over(source, sink, array)
        taken = sink.read_late(driver, take)
        del take, taken
        if view is not None:
            view.release()
        source.write(array, LATE)
        wrong += not bool((sink.seen() == value).all())
        driver.synchronize()
    return wrong


PAIRS = [
    ("torch", "cupy", by_dict),
    ("cupy", "torch", by_capsule),
    ("torch", "numba", by_dict),
    ("jax", "cupy", by_dict),
]


@pytest.mark.parametrize(("producer", "consumer", "hand_over"), PAIRS)
def test_memory_freed_while_a_consumer_reads_is_not_handed_out_before(
    driver: Any, note: Any, producer: str, consumer: str, hand_over: Any
) -> None:
    source, sink = LIBRARIES[producer](), LIBRARIES[consumer]()
    wrong, same = freed_while_read(driver, source, sink, hand_over, RUNS)
    without, reused = freed_while_read(driver, source, sink, native, NATIVE_RUNS)
    gc.collect()
    note(
        f"{producer} -> {consumer}, freed while read: wrong {wrong}/{RUNS} through the bridge "
        f"(block used again: {same}), {without}/{NATIVE_RUNS} without ({reused})",
        wrong=wrong,
        without=without,
    )
    assert wrong == 0
    assert without > 0


@pytest.mark.parametrize(
    ("producer", "consumer", "hand_over"), [pair for pair in PAIRS if pair[0] != "jax"]
)
def test_a_producers_next_write_comes_after_the_consumers_read(
    driver: Any, note: Any, producer: str, consumer: str, hand_over: Any
) -> None:
    source, sink = LIBRARIES[producer](), LIBRARIES[consumer]()
    wrong = written_again(driver, source, sink, hand_over, RUNS)
    without = written_again(driver, source, sink, native, NATIVE_RUNS)
    note(
        f"{producer} -> {consumer}, written again after release: wrong {wrong}/{RUNS} through the "
        f"bridge, {without}/{NATIVE_RUNS} without",
        wrong=wrong,
        without=without,
    )
    assert wrong == 0
    assert without > 0


def test_numba_with_a_caching_allocator_gets_its_memory_back_in_order(note: Any) -> None:
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
        f"written again, wrong {said['written']}/{RUNS}, {said['written without']}/{NATIVE_RUNS}",
        **{name.replace(" ", "_"): number for name, number in said.items()},
    )
    assert (said["freed"], said["written"]) == (0, 0)
    assert said["freed without"] > 0
    assert said["written without"] > 0


def test_what_waits_for_its_consumer_ends_without_another_call_of_the_bridge(driver: Any) -> None:
    """The main thread is asked to look, so that the memory does not stay until the next call.

    (JAX keeps an array whose tensor was given back until its own next call.)
    """
    import time
    import weakref

    source, sink = Jax(), Cupy()
    array = source.make(1.0)
    view = to_cai(array, stream=sink.stream)
    driver.spin(sink.stream.ptr, 20)
    gone = weakref.ref(view.owner)
    del array, view
    assert gone() is not None
    deadline = time.monotonic() + 5
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
        source.make(2.0)
    assert gone() is None


@pytest.mark.alone
def test_the_host_does_not_wait_at_release(driver: Any) -> None:
    import time

    source, sink = Torch(), Cupy()
    for _ in range(3):
        array = source.make(1.0)
        driver.synchronize()
        view = to_cai(array, stream=sink.stream)
        driver.spin(sink.stream.ptr, 50)
        start = time.perf_counter()
        view.release()
        held = time.perf_counter() - start
        driver.synchronize()
    assert held < 1e-3
