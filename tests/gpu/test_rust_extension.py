"""`examples/rust_extension` with the real libraries: a kernel of Rust's between any two of them.

Skipped where it is not installed; ``make extensions`` builds it.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import to_cai

from . import libraries, streams, test_give_back, test_races
from .converting import LATE, WORKERS, Place

rust = pytest.importorskip(
    "rust_extension", reason="examples/rust_extension is not installed: make extensions"
)

RUNS = 1000
PRODUCERS = ["torch", "cupy", "numba", "jax"]
# `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
USED = 7


def at_rest(library: str, value: float) -> Any:
    """An array of a library with nothing pending."""
    host = np.full(streams.WORDS, value, dtype=np.float32)
    array = getattr(libraries, f"make_{library}")(host, "float32")
    libraries.gpu_jax().block_until_ready(array) if library == "jax" else None
    return array


def taken(library: str, place: Place) -> Callable[[Any], Any]:
    """What a library makes of a result, and copies to the host."""
    if library == "jax":
        jax = libraries.gpu_jax()
        copied = jax.jit(lambda array: array + 0)
        return lambda out: np.asarray(copied(jax.dlpack.from_dlpack(out)))
    sink = WORKERS[library](place)
    library = getattr(sink, "torch", None) or getattr(sink, "cupy", None)
    make = library.from_dlpack if library else sink.cuda.as_cuda_array
    return lambda out: test_races.read_by(sink, lambda: make(out))


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_kernel_reads_what_was_pending_and_every_library_reads_what_the_kernel_wrote(
    place, note, producer
):
    """Each run: a late write of a new value, saxpy with an array of another library, and the result
    dropped while its consumer's copy is queued.
    """
    source = WORKERS[producer](place)
    others = [at_rest(library, 100.0) for library in PRODUCERS]
    readers = [taken(library, place) for library in PRODUCERS]
    values, wrong = streams.fresh_values(), 0
    for run in range(RUNS):
        value = next(values)
        other = others[run % 4]
        add = lambda x, other=other: rust.saxpy(2.0, x, other)  # noqa: E731
        out = [test_races.handed_over(source, value, add)]
        seen = readers[(run // 4) % 4](out.pop())
        wrong += not bool((seen == 2.0 * value + 100.0).all())
    place.driver.synchronize()
    note(f"{producer} pending -> Rust's kernel -> all four: wrong {wrong}/{RUNS}")
    assert wrong == 0


def by_dict(sink: Any, out: Any) -> Callable[[], Any]:
    view = to_cai(out, stream=sink.stream)
    return lambda: sink.cuda.as_cuda_array(view, sync=False)


TAKES: dict[str, Callable[[Any, Any], Callable[[], Any]]] = {
    "torch": lambda sink, out: lambda: sink.torch.from_dlpack(out),
    "cupy": lambda sink, out: lambda: sink.cupy.from_dlpack(out),
    "numba": by_dict,
}


def used(driver: Any) -> int:
    """Bytes of the device's memory pool that are allocated and not freed."""
    gc.collect()
    driver.synchronize()
    pool, found = ctypes.c_void_p(), ctypes.c_uint64()
    library = ctypes.CDLL("libcuda.so.1")
    assert library.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0
    assert library.cuMemPoolGetAttribute(pool, USED, ctypes.byref(found)) == 0
    return found.value


@pytest.mark.parametrize("consumer", list(TAKES))
def test_results_dropped_while_they_are_read_are_freed_once_and_after_that(place, note, consumer):
    sink, driver = test_give_back.worker(consumer, place), place.driver
    torch = pytest.importorskip("torch")
    words = test_give_back.WORDS
    zero = torch.zeros(words, device="cuda")
    values, wrong, same = streams.fresh_values(), 0, 0
    before = used(driver)
    for _ in range(RUNS):
        value = float(next(values))
        out = rust.saxpy(1.0, torch.full((words,), value, device="cuda"), zero)
        driver.synchronize()
        pointer = out.ptr
        take = TAKES[consumer](sink, out)
        read = test_give_back.read_late(place, sink, take)
        del out, take, read
        late = rust.saxpy(1.0, torch.full((words,), LATE, device="cuda"), zero)
        same += late.ptr == pointer
        wrong += not bool((sink.seen() == value).all())
        del late
    left = used(driver) - before
    note(
        f"Rust -> {consumer}, freed while read: wrong {wrong}/{RUNS} (block used again: {same}), "
        f"{left} bytes left",
    )
    assert (wrong, left) == (0, 0)
    assert same > 0


@pytest.mark.parametrize("library", PRODUCERS)
def test_blur_gives_the_right_values_for_strides_too(driver, library):
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    image = getattr(libraries, f"make_{library}")(host, "float32")
    if library in ("torch", "cupy"):
        image, host = image.T, host.T
    out = pytest.importorskip("torch").from_dlpack(rust.blur(image)).cpu().numpy()
    padded = np.pad(host, 1, mode="edge")
    h, w = host.shape
    wanted = sum(padded[r : r + h, c : c + w] for r in range(3) for c in range(3)) / 9
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
