"""JAX, whose streams have no names and whose arrays are never written."""

from __future__ import annotations

import functools
import os
import time
from typing import Any

# JAX reads these at import. It must leave memory to other libraries, and keep 64-bit types.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("JAX_ENABLE_X64", "1")

import jax
import jax.numpy as jnp
import numpy as np

from ..adapter import ConsumerAdapter, ProducerAdapter
from ..lab import Hold, Lab, Late
from ..lab.cuda import Driver, load
from ..lab.gpu_objects import Queued
from ..requirement import NotApplicableError
from ..stand_in import DLPACK, speaks
from ._dtypes import FLOAT8, STANDARD, host_list, numpy_dtype

# A program that imported JAX earlier may have turned 64-bit types off.
_TOO_WIDE = () if jax.config.jax_enable_x64 else ("int64", "uint64", "float64", "complex128")
DTYPES = tuple(name for name in (*STANDARD, "bfloat16", *FLOAT8) if name not in _TOO_WIDE)
DELAY_MS = 20.0
_SIDE, _LONGEST = 2048, 1024
_LAG_S = 0.002
"""By how much one of two streams may be behind the other when both wait for the same event."""


def _start() -> None:
    """Start JAX, and make the GPU of its arrays current.

    JAX initialises all GPUs, and leaves the last one's context current (0.11.2, 2 H200s,
    2026-11-23).
    """
    jax.devices("gpu")
    (device,) = jnp.zeros(()).devices()
    driver = Driver(device.local_hardware_id)
    driver("cuCtxSetCurrent", driver.primary)


def _delayed(products: int, words: int) -> Any:
    """Compile a chain of matrix products, and an array that must wait for it.

    JAX queues the products one by one before the call returns, so small products leave nothing
    pending. These are large, and of full precision. Other work may run between two of them.
    """

    def product(_: int, m: Any) -> Any:
        return jnp.tanh(jnp.matmul(m, m, precision=jax.lax.Precision.HIGHEST))

    @jax.jit  # type: ignore[untyped-decorator]
    def delayed(value: Any, seed: Any) -> Any:
        last = jax.lax.fori_loop(0, products, product, seed)
        # tanh never exceeds 1, so this adds 0, but the compiler cannot know.
        nothing = jnp.where(last[0, 0] > 2.0, 1.0, 0.0).astype(jnp.float32)
        return jnp.full((words,), value, dtype=jnp.float32) + nothing

    return delayed


@functools.cache
def _seed() -> Any:
    return jnp.full((_SIDE, _SIDE), 0.5, dtype=jnp.float32)


def _left_after(function: Any) -> float:
    """Return how many ms of work are left when a call returns: the least of several runs."""
    jax.block_until_ready(function(0.0, _seed()))
    times = []
    for _ in range(3):
        pending = function(0.0, _seed())
        start = time.perf_counter()
        jax.block_until_ready(pending)
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


@functools.cache
def _products() -> int:
    """Find the number of products that leaves `DELAY_MS` of work after the call."""
    products = 16
    while products < _LONGEST and _left_after(_delayed(products, 8)) < DELAY_MS:
        products *= 2
    return products


@functools.cache
def _delay(words: int) -> Any:
    """Compile a delay of at least `DELAY_MS`."""
    function = _delayed(_products(), words)
    jax.block_until_ready(function(0.0, _seed()))
    return function


class _Unready:
    """An array that is being computed, as a hold; it cannot be released.

    `pending` asks the device, by a stream that JAX makes wait for the array. JAX itself notices
    late that an array is ready, and later still on a busy machine.
    """

    def __init__(self, lab: Lab, array: Any) -> None:
        self._array = array
        stream = lab.stream("the kit's, behind JAX's work").handle
        array.__dlpack__(stream=stream)
        self._behind = Queued(load(), stream)

    @property
    def pending(self) -> bool:
        """Whether the array is still being computed."""
        if self._behind.pending:
            time.sleep(_LAG_S)
        return self._behind.pending

    def release(self) -> None:
        """Wait until JAX's work is done."""
        self._array.block_until_ready()


class Producer(ProducerAdapter):
    """Arrays on the default device."""

    dtypes = DTYPES
    immutable = True

    def __init__(self) -> None:
        _start()
        self._full = functools.cache(self._compile)

    def _compile(self, shape: tuple[int, ...], dtype: str) -> Any:
        made = jax.jit(lambda value: jnp.full(shape, value).astype(numpy_dtype(dtype)))
        jax.block_until_ready(made(0.0))
        return made

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Make an array, and wait for it: no stream names the work that JAX dispatches."""
        return self.full(shape, dtype, 0.0).block_until_ready()

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        """Dispatch an array of one value."""
        return self._full(shape, dtype)(value)

    def fill(self, array: Any, value: float) -> None:
        """Refuse: JAX's arrays are never written."""
        del array, value
        raise NotApplicableError("JAX's arrays are never written")

    def strided(self, array: Any) -> Any:
        """Compute a copy of every second column, and wait for it."""
        return array[:, ::2].block_until_ready()

    def sliced(self, array: Any) -> Any:
        """Compute a copy of all rows but the first, and wait for it."""
        return array[1:, :].block_until_ready()

    def reversed(self, array: Any) -> Any:
        """Compute a copy of the rows in reverse order, and wait for it."""
        return array[::-1, :].block_until_ready()

    def readonly(self, array: Any) -> Any:
        """Return the array itself: all are read-only."""
        return array

    def late(self, lab: Lab, value: float, words: int | None = None) -> Late:
        """Dispatch an array that takes a while to compute."""
        words = words or lab.items
        delay = _delay(words)
        lab.synchronize()
        array = delay(value, _seed())
        return Late(array, None, value, _Unready(lab, array))


@jax.jit  # type: ignore[untyped-decorator]
def _copied(array: Any) -> Any:
    """Compute a copy. JAX returns the same memory for an identity function."""
    dtype = array.dtype
    if dtype == jnp.bool_:
        return array ^ False
    if dtype.name.startswith("float8"):
        # Adding zero needs a type with a zero, and not all of these types have one.
        bits = jax.lax.bitcast_convert_type(array, jnp.uint8)
        return jax.lax.bitcast_convert_type(bits + np.uint8(0), dtype)
    return array + dtype.type(0)


class Consumer(ConsumerAdapter):
    """``jax.dlpack.from_dlpack``, and ``jax.numpy.asarray`` for CAI."""

    dtypes = DTYPES
    library = "jax"

    def __init__(self) -> None:
        _start()
        self.values(self.copy(jnp.zeros((1024,), jnp.float32)))

    def take(self, x: Any) -> Any:
        """Import by DLPack if the array speaks it, else by CAI."""
        return self.take_by("dlpack" if speaks(x, DLPACK) else "cai", x)

    def take_by(self, door: str, x: Any) -> Any:
        """Import by one protocol."""
        return jax.dlpack.from_dlpack(x) if door == "dlpack" else jnp.asarray(x)

    def hold(self, lab: Lab, stream: Any) -> Hold:
        """Dispatch a delay. JAX's later work runs after it, since all of its work runs in order."""
        del stream
        return _Unready(lab, _delay(8)(0.0, _seed()))

    def copy(self, array: Any) -> Any:
        """Dispatch a computation of the same values."""
        return _copied(array)

    def values(self, copied: Any) -> Any:
        """Wait for the copy."""
        return host_list(np.asarray(copied))
