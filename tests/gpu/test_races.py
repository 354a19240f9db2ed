"""The races that the libraries run into among themselves, each with the bridge between and without
it.

Every run puts a spinning kernel in front of the producer's write and gives the write a value never
used before. Through the bridge no run may read anything else. Without it some run must, or the case
proves nothing; of JAX and torch only those runs count that were read before the write was done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import libraries, streams
from .converting import WORKERS

RUNS = 100
WARM_UP = 3

Read = Callable[[int], Any]


def count_wrong(driver: Any, read: Read, counts: Callable[[], bool] = lambda: True) -> int:
    """How many of `RUNS` runs read anything but the value that was written, of those of which
    `counts` says at their end that they are to be counted.
    """
    values = streams.fresh_values()
    wrong = 0
    for run in range(WARM_UP + RUNS):
        driver.synchronize()
        value = next(values)
        seen, counted = np.asarray(read(value)), counts()
        wrong += run >= WARM_UP and counted and not bool((seen == value).all())
    driver.synchronize()
    return wrong


def handed_over(source: Any, value: int, take: Callable[[Any], Any]) -> Any:
    """Hand over what a library writes late, while its stream is the current one."""
    array = source.written(value)
    with source.working():
        return take(array)


def read_by(sink: Any, make: Callable[[], Any]) -> Any:
    with sink.working():
        sink.read(make())
    return sink.seen()


# How a view is taken without any other order, by the library's own call, and an array natively.
TAKE: dict[str, tuple[Callable[[Any, Any], Any], ...]] = {
    "cupy": (
        lambda sink, view: streams.cupy_view_without_sync(view),
        lambda sink, view: sink.cupy.asarray(view),
        lambda sink, array: sink.cupy.asarray(array),
    ),
    "numba": (
        lambda sink, view: sink.cuda.as_cuda_array(view, sync=False),
        lambda sink, view: view,  # a launch is handed it as it is
        lambda sink, array: sink.cuda.as_cuda_array(array),
    ),
}


def report(note: Callable[..., None], case: str, wrong: int, without: int | str) -> None:
    beside = f"{without}/{RUNS}" if isinstance(without, int) else without
    note(f"{case}: wrong {wrong}/{RUNS} through the bridge, {beside} without")


@pytest.mark.parametrize("producer", ["torch", "jax"])
@pytest.mark.parametrize("consumer", TAKE)
def test_cupy_or_numba_reads_what_a_pending_dlpack_producer_wrote_and_without_the_bridge_does_not(
    place, note, consumer, producer
):
    source, sink = WORKERS[producer](place), WORKERS[consumer](place)
    without_sync, by_its_own_call, natively = TAKE[consumer]
    pending: list[Any] = []

    def through_the_bridge(value: int) -> Any:
        view = handed_over(source, value, lambda array: to_cai(array, stream=sink.stream))
        return read_by(sink, lambda: without_sync(sink, view))

    def by_own_call(value: int) -> Any:
        view = handed_over(source, value, to_cai)
        return read_by(sink, lambda: by_its_own_call(sink, view))

    def without(value: int) -> Any:
        array = source.written(value)
        pending[:] = [array]
        return read_by(sink, lambda: natively(sink, array))

    def is_pending() -> bool:
        return not (pending[0].is_ready() if producer == "jax" else source.stream.query())

    wrong = count_wrong(place.driver, through_the_bridge)
    wrong_by_its_own = count_wrong(place.driver, by_own_call)
    wrong_without = count_wrong(place.driver, without, is_pending)
    for way, seen in (("its own stream", wrong), ("its own call", wrong_by_its_own)):
        report(note, f"{producer} pending -> CAI -> {consumer} on {way}", seen, wrong_without)
    assert (wrong, wrong_by_its_own) == (0, 0)
    assert wrong_without > 0


@pytest.mark.parametrize("producer", ["cupy", "numba"])
def test_torch_reads_what_a_pending_cai_producer_wrote_and_without_the_bridge_does_not(
    place, note, producer
):
    source, sink = WORKERS[producer](place), WORKERS["torch"](place)

    def through_the_bridge(value: int) -> Any:
        view = handed_over(source, value, from_cai)
        return read_by(sink, lambda: sink.torch.from_dlpack(view))

    def without(value: int) -> Any:
        # torch reads the dict here, and with it the stream that it then ignores.
        array = source.written(value)
        return read_by(sink, lambda: sink.torch.as_tensor(array, device="cuda"))

    wrong = count_wrong(place.driver, through_the_bridge)
    wrong_without = count_wrong(place.driver, without)
    report(note, f"{producer} side stream -> CAI -> torch side stream", wrong, wrong_without)
    assert wrong == 0
    assert wrong_without > 0


def test_jax_reads_what_cupy_wrote_on_a_side_stream_where_its_own_import_fails(place, note):
    jax, source = libraries.gpu_jax(), WORKERS["cupy"](place)
    copied = jax.jit(lambda array: array + 0)

    def through_the_bridge(value: int) -> Any:
        view = handed_over(source, value, from_cai)
        return np.asarray(copied(jax.dlpack.from_dlpack(view)))

    def without(value: int) -> Any:
        return np.asarray(copied(handed_over(source, value, jax.numpy.asarray)))

    wrong = count_wrong(place.driver, through_the_bridge)
    try:
        beside: int | str = count_wrong(place.driver, without)
    except jax.errors.JaxRuntimeError as refusal:
        beside = f"jnp.asarray raises {type(refusal).__name__}"
    report(note, "cupy side stream -> CAI -> JAX", wrong, beside)
    assert wrong == 0
    assert beside != 0
