"""The host waits in a process of its own, beside captures: its exit code tells if it dies.

    python host_wait_child.py first MODE
    python host_wait_child.py captures|jax control|bridge

The first prints the outcome of a capture in which the bridge waits for the first time. The others
print what was made in a few seconds: waits, captures or products, and how many of these were wrong
or failed.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# JAX captures every program with matrix products into command buffers.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_graph_min_graph_size=1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # type: ignore[attr-defined]

from tests.gpu import driver as cuda_driver
from tests.gpu.capsules import OnlyCai, interface

from cai_bridge import to_cai

DRIVER = cuda_driver.load()
COUNT, SECONDS = 1024, 5.0


def end_of_a_bare_handle() -> Callable[[float], None]:
    """A function that ends a view for a bare handle, on which work is pending for so long."""
    DRIVER.use_primary()
    home, consumer = DRIVER.stream(), DRIVER.stream()
    block = DRIVER.allocate(4 * COUNT)
    array = OnlyCai(interface(block, (COUNT,), stream=home))

    def end(milliseconds: float) -> None:
        view = to_cai(array, stream=consumer)
        DRIVER.spin(consumer, milliseconds)
        view.release()
        if DRIVER.result("cuStreamQuery", consumer) == "CUDA_ERROR_NOT_READY":
            raise AssertionError("the host did not wait")

    return end


def captured(stream: int, mode: int, inside: Callable[[], object]) -> str:
    """Capture what spins, and return how the capture ended."""
    DRIVER("cuStreamBeginCapture_v2", stream, mode)
    graph = ctypes.c_void_p()
    DRIVER.spin(stream, 0.01)
    inside()
    said = DRIVER.result("cuStreamEndCapture", stream, ctypes.byref(graph))
    if graph.value:
        DRIVER("cuGraphDestroy", graph.value)
    return said


def first(mode: int) -> None:
    DRIVER.use_primary()
    home, consumer, stream = DRIVER.stream(), DRIVER.stream(), DRIVER.stream()
    array = OnlyCai(interface(DRIVER.allocate(4 * COUNT), (COUNT,), stream=home))
    done = DRIVER.event()
    DRIVER.spin(stream, 0.01)
    DRIVER.synchronize()
    view, said = to_cai(array, stream=consumer), list[str]()

    def inside() -> None:
        DRIVER.spin(consumer, 40.0)
        DRIVER("cuEventRecord", done, consumer)
        view.release()
        with DRIVER.thread_mode():
            said.append(DRIVER.result("cuEventQuery", done))

    print("done", captured(stream, mode, inside), *said)


def captures(over: threading.Event, counts: Counter[str]) -> None:
    """Captures in this thread's own mode, as JAX makes them."""
    DRIVER.use_primary()
    stream = DRIVER.stream()
    DRIVER.spin(stream, 0.01)
    while not over.is_set():
        said = captured(stream, cuda_driver.CAPTURE_THREAD_LOCAL, lambda: None)
        counts["made"] += 1
        counts["failed"] += said != "CUDA_SUCCESS"


def products(over: threading.Event, counts: Counter[str]) -> None:
    """Matrix products of ever new sizes: each is a program of its own, and captured by itself."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def chain(a: jax.Array) -> jax.Array:
        for _ in range(6):
            a = a @ jnp.eye(a.shape[0], dtype=a.dtype) + 1.0
        return a

    size = 64
    while not over.is_set():
        size += 8
        try:
            # Twice by one program, and once more: the first is not captured by every version.
            value = float(size % 1000)
            a = jnp.full((size, size), value, jnp.float32)
            for _ in range(4):
                made = chain(a)
            counts["wrong"] += not bool((made == value + 6.0).all())
            counts["made"] += 1
        except Exception as error:
            logging.warning("%s", error)
            counts["failed"] += 1


def beside(work: Callable[[threading.Event, Counter[str]], None], *, bridge: bool) -> None:
    counts, over = Counter[str](), threading.Event()
    each = [Counter[str]() for _ in range(1 if work is products else 2)]
    threads = [threading.Thread(target=work, args=(over, one)) for one in each]
    end = end_of_a_bare_handle()
    for thread in threads:
        thread.start()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if bridge:
            end(0.02)
            counts["waits"] += 1
        else:
            time.sleep(0.001)
    over.set()
    for thread in threads:
        thread.join()
    for one in each:
        counts.update(one)
    print(*(f"{name}={counts[name]}" for name in ("waits", "made", "wrong", "failed")))


if __name__ == "__main__":
    what, how = sys.argv[1:]
    if what == "first":
        first(int(how))
    else:
        beside(captures if what == "captures" else products, bridge=how == "bridge")
