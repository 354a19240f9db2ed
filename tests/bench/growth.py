"""How the cost of a conversion grows: with dimensions, live views, arrays in one call, threads.

Over the simulated device, whose calls cost next to nothing and do not depend on any of it. All of
its calls share a lock, so threads are measured over the driver where there is a GPU.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import on_gpu
from timing import Row, ratio, timed

DIMENSIONS = (1, 2, 3, 4, 6, 8, 16, 32)
VIEWS = (1, 100, 10_000, 100_000, 1_000_000)
ARRAYS = (1, 10, 100, 1000)
THREADS = tuple(many for many in (1, 2, 4, 8) if many <= max(2, os.cpu_count() or 1))
CALLS = 20_000
CALLS_OF_ONE = 200
FLAT = 1.10
CLOCK = "sum(range(60))"
"""What takes as long whatever else there is, for a machine whose clock may halve between rows."""
PER_DIMENSION_NS = 14.0


class Stub:
    """The cheapest CAI producer there is."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


def rows() -> Iterator[Row]:
    from cai_bridge import convert, to_cai
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:
        memory = cuda.alloc(1024)
        yield from by_dimensions(to_cai, memory)
        yield from by_views(to_cai, memory)
        yield from by_arrays(convert, memory)
        if on_gpu.why_not() is not None:
            yield from by_threads(to_cai, memory.ptr, ", simulated")
    if on_gpu.why_not() is None:
        driver = on_gpu.driver()
        yield from by_threads(to_cai, driver.get("cuMemAlloc_v2", 1024))


def stub(pointer: int, ndim: int) -> Stub:
    shape = (4, *(1,) * (ndim - 1))
    return Stub(
        {
            "shape": shape,
            "typestr": "<f4",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
            "stream": 1,
        }
    )


def by_dimensions(to_cai: Any, memory: Any) -> Iterator[Row]:
    """`to_cai(x)` and its dict, and what a dimension adds."""
    names = {"to_cai": to_cai} | {f"x{ndim}": stub(memory.ptr, ndim) for ndim in DIMENSIONS}
    statements = [f"to_cai(x{ndim}).__cuda_array_interface__" for ndim in DIMENSIONS]
    least = [min(times) for times in timed(statements, names)]
    for ndim, value in zip(DIMENSIONS, least, strict=True):
        yield Row("growth with dimensions", f"to_cai(x) and its dict, {ndim} dimensions", value)
    most = DIMENSIONS.index(4)
    slope = (least[most] - least[0]) / (DIMENSIONS[most] - DIMENSIONS[0])
    yield Row("growth with dimensions", "a dimension, of 1 to 4", slope, budget=PER_DIMENSION_NS)


def by_views(to_cai: Any, memory: Any) -> Iterator[Row]:
    """`to_cai(x)` while so many other views live."""
    names, held, first = {"to_cai": to_cai, "x": stub(memory.ptr, 2)}, [], None
    for many in VIEWS:
        held += [to_cai(names["x"]) for _ in range(many - len(held))]
        times, clock = timed(["to_cai(x)", CLOCK], names)
        value, ticks = min(times), ratio(times, clock)
        first = first or (value, ticks)
        peer = "with one view" if many > 1 else ""
        yield Row(
            "growth with live views",
            f"to_cai(x), {many:,} views live",
            value,
            peer=peer,
            peer_value=first[0] if peer else None,
            ratio=ticks / first[1] if peer else None,
            budget=FLAT if peer else None,
        )
    held.clear()


def by_arrays(convert: Any, memory: Any) -> Iterator[Row]:
    """`convert` of a list of so many arrays: time for each of them."""
    names = {"convert": convert} | {
        f"x{many}": [stub(memory.ptr, 2) for _ in range(many)] for many in ARRAYS
    }
    for many in ARRAYS:
        (times,) = timed([f"convert(x{many}, 'dlpack')"], names, max(2, CALLS_OF_ONE // many))
        name = f"convert(list), {many:,} arrays, each"
        yield Row("growth with arrays in one call", name, min(times) / many)


def by_threads(to_cai: Any, pointer: int, where: str = "") -> Iterator[Row]:
    """`to_cai(x)` in several threads, each with its own array: time for a call of all of them."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    group = f"growth with threads, {'with' if gil else 'without'} the interpreter's lock{where}"
    arrays = [stub(pointer, 2) for _ in range(max(THREADS))]
    # In turns: a machine's clock may halve from one count of threads to the next.
    rounds = [[together(to_cai, arrays[:threads]) for threads in THREADS] for _ in range(5)]
    for threads, times in zip(THREADS, zip(*rounds, strict=True), strict=True):
        yield Row(group, f"to_cai(x) in {threads} threads, each call", min(times))


def together(to_cai: Any, arrays: list[Stub]) -> float:
    """The time in ns for each call, by the clock on the wall, where all threads are at it."""
    start = threading.Barrier(len(arrays) + 1)

    def work(x: Stub) -> None:
        start.wait()
        for _ in range(CALLS):
            to_cai(x)

    workers = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return 1e9 * (time.perf_counter() - began) / (CALLS * len(arrays))
