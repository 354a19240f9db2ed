"""Work that is certainly still pending when the test looks: a delay, then a write, by each library
on a given stream.

Every write takes its value from `fresh_values`, so an old right answer in a reused block never
passes for a new one.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import driver

WORDS = 4096
SPIN_MS = 3.0

_counter = itertools.count(1)


def fresh_values() -> Iterator[int]:
    """Whole numbers, exact in float32, that no run of this process has used before."""
    return _counter


def handle_of(stream: Any) -> int:
    """The handle of any library's stream object, with the default stream as 1."""
    return int(stream.__cuda_stream__()[1]) or driver.LEGACY


def torch_writes_late(tensor: Any, value: int, stream: Any, milliseconds: float = SPIN_MS) -> None:
    import torch

    driver.load().spin(handle_of(stream), milliseconds)
    with torch.cuda.stream(stream):
        tensor.fill_(value)


@functools.cache
def compile_cupys_fill(dtype: Any, kind: type) -> None:
    """Compile CuPy's kernel, which takes longer than what is queued in front of it would last.

    There is one for each type of the array and of the value.
    """
    import cupy

    cupy.empty(1, dtype).fill(kind(0))


def cupy_writes_late(array: Any, value: int, stream: Any, milliseconds: float = SPIN_MS) -> None:
    compile_cupys_fill(array.dtype, type(value))
    driver.load().spin(handle_of(stream), milliseconds)
    with stream:
        array.fill(value)


@functools.cache
def numba_kernels() -> tuple[Any, Any]:
    """Two numba kernels: `fill(array, value)` and `copy(source, target)`, one element a thread."""
    from numba import cuda

    @cuda.jit
    def fill(array, value):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < array.size:
            array[i] = value

    @cuda.jit
    def copy(source, target):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < target.size:
            target[i] = source[i]

    return fill, copy


def blocks_for(count: int) -> tuple[int, int]:
    """Numba's launch shape for `count` one-element threads."""
    return (count + 127) // 128, 128


def numba_writes_late(array: Any, value: int, stream: Any, milliseconds: float = SPIN_MS) -> None:
    fill, _ = numba_kernels()
    driver.load().spin(handle_of(stream), milliseconds)
    fill[(*blocks_for(array.size), stream)](array, value)


class JaxDelay:
    """A jitted function whose result of `WORDS` equal values is ready no sooner than `milliseconds`
    after the call has returned.

    JAX owns its streams, so the delay is a chain of matrix products. They are queued one by one
    before the call returns, so that products which take no longer than that leave nothing pending:
    these are large and of full precision, and the chain grows until enough of it is measured to be
    left. A reader on another stream gets on the device between two of them at the latest.
    """

    SIDE = 2048
    LONGEST = 1024

    def __init__(self, milliseconds: float) -> None:
        import jax
        import jax.numpy as jnp

        self._jax = jax
        self._seed = jnp.full((self.SIDE, self.SIDE), 0.5, dtype=jnp.float32)
        self.products, self.milliseconds = 2, 0.0
        while self.milliseconds < milliseconds and self.products < self.LONGEST:
            self.products *= 2
            self._delayed = self._build(self.products)
            self.milliseconds = self._left_after_the_call()
        assert self.milliseconds >= milliseconds, (
            f"of {self.products} products {self.milliseconds:.2f} ms are left after the call"
        )

    def _build(self, products: int) -> Callable[[Any, Any], Any]:
        jax, jnp = self._jax, self._jax.numpy

        def product(_: int, m: Any) -> Any:
            return jnp.tanh(jnp.matmul(m, m, precision=jax.lax.Precision.HIGHEST))

        @jax.jit
        def delayed(value, seed):  # type: ignore[no-untyped-def]
            last = jax.lax.fori_loop(0, products, product, seed)
            # tanh never passes 1, so this adds nothing; the compiler cannot know that, so the
            # result must wait.
            nothing = jnp.where(last[0, 0] > 2.0, 1.0, 0.0).astype(jnp.float32)
            return jnp.full((WORDS,), value, dtype=jnp.float32) + nothing

        return delayed  # type: ignore[no-any-return]

    def _left_after_the_call(self) -> float:
        """The least of several times, the first call's aside, which compiles."""
        self._jax.block_until_ready(self(1))
        times = []
        for _ in range(5):
            pending = self(1)
            start = time.perf_counter()
            self._jax.block_until_ready(pending)
            times.append(1e3 * (time.perf_counter() - start))
        return min(times)

    def __call__(self, value: int) -> Any:
        """A pending array that will hold `value`."""
        return self._delayed(float(value), self._seed)


@functools.cache
def jax_delay(milliseconds: float) -> JaxDelay:
    """One `JaxDelay` of each length per process: it compiles several programs."""
    return JaxDelay(milliseconds)


def cupy_view_without_sync(view: Any) -> Any:
    """A CuPy array over `view` that waits for nothing: what order there is, the bridge made."""
    import cupy

    memory = cupy.cuda.UnownedMemory(view.ptr, view.nbytes, view, view.device[1])
    return cupy.ndarray(
        view.shape, view.dtype, cupy.cuda.MemoryPointer(memory, 0), strides=view.strides
    )
