"""`adapt(like=, into=)` in `jax.jit`: kernels of other libraries, ordered on XLA's stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cai_bridge import adapt

from . import libraries, streams
from .converting import LATE_MS
from .kernels import BY, KERNELS, RUNS, cupys_kernel, like
from .streams import WORDS


@pytest.fixture
def jax():
    jax = libraries.gpu_jax()
    pytest.importorskip("jax.experimental.buffer_callback")
    return jax


@pytest.mark.parametrize("library", [*KERNELS])
def test_a_program_of_jaxs_is_right(library, jax, place, note):
    scaled = KERNELS[library]("in_jax")
    delay = streams.jax_delay(LATE_MS)
    program = jax.jit(lambda x: scaled(x + 1.0, BY) + 3.0)
    values, wrong = streams.fresh_values(), 0
    jax.block_until_ready(program(delay(1)))
    for _ in range(RUNS):
        value = next(values) % 1000 + 1
        made = program(delay(value))
        wrong += not bool((np.asarray(made) == (value + 1.0) * BY + 3.0).all())
    note(f"jax.jit, {library}: {wrong} of {RUNS} wrong")
    assert wrong == 0


def test_xla_waits_for_a_functions_own_stream_and_it_for_xla(jax, place, cupy, note):
    """The function's stream is non-blocking, and late: only an event at each end orders it."""
    scale = cupys_kernel()
    own = cupy.cuda.Stream(non_blocking=True)

    @adapt(to="cupy", like=like, into=True, stream=own)
    def scaled(x: Any, by: float, y: Any) -> None:
        place.driver.spin(own.ptr, LATE_MS)
        with own:
            scale(x, by, y)

    delay = streams.jax_delay(LATE_MS)
    # Twice: the second call reads what the first wrote, in memory that XLA uses again.
    program = jax.jit(lambda x: scaled(scaled(x + 1.0, BY) + 3.0, BY) + 5.0)
    values, wrong = streams.fresh_values(), 0
    for _ in range(RUNS):
        value = next(values) % 1000 + 1
        made = np.asarray(program(delay(value)))
        wrong += not bool((made == ((value + 1.0) * BY + 3.0) * BY + 5.0).all())
    note(f"jax.jit, a stream of its own: {wrong} of {RUNS} wrong")
    assert wrong == 0


def test_nothing_is_copied_and_what_is_kept_is_refused(jax, cupy, place):
    seen: list[Any] = []

    @adapt(to="cupy", like=lambda x: x, into=True)
    def noted(x: Any, y: Any) -> None:
        seen.append((x.data.ptr, y.data.ptr))
        y[...] = x

    x = jax.block_until_ready(jax.device_put(np.ones(WORDS, np.float32), jax.devices("gpu")[0]))
    made = jax.block_until_ready(jax.jit(noted)(x))
    assert seen == [(x.unsafe_buffer_pointer(), made.unsafe_buffer_pointer())]
    assert (np.asarray(made) == 1.0).all()

    @adapt(to="cupy", like=lambda x: x, into=True)
    def keeps(x: Any, y: Any) -> None:
        seen.append(x[1:])
        y[...] = x

    try:
        with pytest.raises(Exception, match="keeps: got one that kept its array 0"):
            jax.block_until_ready(jax.jit(keeps)(x))
    finally:
        seen.clear()


# XLA's buffers have no word for 8-bit floats (jaxlib 0.11.2).
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "bool"])
def test_jaxs_other_types_reach_pytorch(dtype, jax, place):
    torch = pytest.importorskip("torch")

    @adapt(to="torch", like=lambda x: x, into=True)
    def copied(x: Any, y: Any) -> None:
        assert str(x.dtype) == f"torch.{dtype}"
        y.copy_(x)

    # XLA has no conversion of every type on a GPU.
    host = (np.arange(64) % 2).astype(jax.numpy.dtype(dtype))
    made = jax.jit(copied)(jax.device_put(host, jax.devices("gpu")[0]))
    assert (np.asarray(made) == host).all()
    assert torch.cuda.is_available()
