"""JAX 0.11.2 calls a deleter once its work is done, and not where the array is deleted.

For versions that call it earlier the producer waits for the stream that JAX works on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import convert, from_cai
from cai_bridge._libraries import _jax

from . import libraries

WORDS, SIDE, RUNS = 1 << 18, 1 << 25, 50


@pytest.fixture(scope="module")
def jax():
    return libraries.gpu_jax()


def test_the_stream_that_it_computes_on_is_none_of_those_that_it_names(jax):
    device = jax.devices("gpu")[0]
    stream = _jax.work_stream(device.local_hardware_id)
    assert stream
    assert stream == _jax.work_stream(device.local_hardware_id)
    assert stream not in {device.get_stream_for_external_ready_events() for _ in range(8)}


def late_zero(jax: Any) -> Callable[[], Any]:
    """Give what queues some milliseconds of work, whose result is 0.0."""
    jnp = jax.numpy

    @jax.jit
    def late(seed: Any) -> Any:
        step = lambda _, total: jnp.sum(jnp.sin(seed + total)) * jnp.float32(1e-9)  # noqa: E731
        total = jax.lax.fori_loop(0, 32, step, jnp.float32(0))
        return jnp.where(total > 1e30, 1.0, 0.0).astype(jnp.float32)

    seed = jnp.zeros((SIDE,), jnp.float32).block_until_ready()
    late(seed).block_until_ready()
    return lambda: late(seed)


def of_cupy() -> tuple[Any, Any, Any]:
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)

    def made(value: float) -> Any:
        with stream:
            x = cupy.full(WORDS, value, cupy.float32)
        stream.synchronize()
        return x

    def written(x: Any) -> None:
        with stream:
            x.fill(-1)

    return stream, made, written


def of_torch() -> tuple[Any, Any, Any]:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()

    def made(value: float) -> Any:
        with torch.cuda.stream(stream):
            x = torch.full((WORDS,), value, device="cuda")
        stream.synchronize()
        return x

    def written(x: Any) -> None:
        with torch.cuda.stream(stream):
            x.fill_(-1)

    return torch.cuda.stream(stream), made, written


def until_it_ends(caplog: Any) -> None:
    """Wait for the deleter of JAX's array. To wait is all that may happen: to collect garbage takes
    so long that JAX's work would be over.
    """
    until = time.monotonic() + 30
    while not any(getattr(one, "door", "") == "release" for one in caplog.records):
        assert time.monotonic() < until, "JAX has not called the deleter"
        time.sleep(0)


@pytest.mark.parametrize("how", ["convert", "from_dlpack"])
@pytest.mark.parametrize("producer", [of_cupy, of_torch])
def test_the_producers_next_write_after_the_end_comes_after_jaxs_read(
    jax, note, caplog, producer, how
):
    stream, made, written = producer()
    late, copied = late_zero(jax), jax.jit(lambda a, zero: a + zero)
    wrong = pending = pending_at_the_end = 0
    caplog.set_level(logging.DEBUG, "cai_bridge")
    for run in range(RUNS + 1):
        x = made(float(run))
        with stream:
            view = from_cai(x)
            y = convert(x, "jax") if how == "convert" else jax.dlpack.from_dlpack(view)
        del view
        seen = copied(y, late())
        caplog.clear()
        del y
        # The first run compiles.
        pending += run > 0 and not seen.is_ready()
        until_it_ends(caplog)
        pending_at_the_end += not seen.is_ready()
        written(x)
        wrong += not bool((np.asarray(seen) == run).all())
    note(
        f"{how} to jax, at the end: wrong {wrong}/{RUNS + 1}, its work pending at del "
        f"{pending}/{RUNS}, at the end {pending_at_the_end}/{RUNS + 1}"
    )
    assert wrong == 0
    assert pending, "JAX's work was never pending: the case shows nothing"
