"""Make arrays of each library that are written 50 ms after they are handed out."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

CYCLES = 100_000_000  # 50 ms on an H200

# NumPy 2.5 removed this name; Numba 0.68 reads it when it is imported.
np.row_stack = getattr(np, "row_stack", np.vstack)

SPIN = """extern "C" __global__ void late(float *x, float value, int count, long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {}
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += 65536) x[i] = value;
}"""


def torch(value: float, count: int) -> Any:
    """Make a tensor on torch's current stream."""
    import torch

    x = torch.zeros(count, device="cuda")
    torch.cuda._sleep(CYCLES)
    return x.fill_(value)


def jax(value: float, count: int) -> Any:
    """Make an array on JAX's stream, which JAX does not name."""
    return _jitted(count)(value)


@functools.cache
def _jitted(count: int) -> Any:
    import jax
    import jax.numpy as jnp

    def late(value: Any) -> Any:
        ones = jnp.ones((4096, 4096), dtype="float32")
        ones = jax.lax.fori_loop(0, 20, lambda _, one: one @ one / 4096, ones)
        return jnp.full(count, value, dtype="float32") * ones[0, 0]

    jitted = jax.jit(late)
    jitted(0.0).block_until_ready()  # compile now, so that the compilation does not count
    return jitted


def cupy(value: float, count: int) -> Any:
    """Make an array on CuPy's current stream."""
    import cupy

    x = cupy.zeros(count, dtype="float32")
    arguments = (x, np.float32(value), np.int32(count), np.int64(CYCLES))
    cupy.RawKernel(SPIN, "late")((256,), (256,), arguments)
    return x


def numba(value: float, count: int) -> Any:
    """Make an array on a new stream, which the array's dict names."""
    from numba import cuda

    stream = cuda.stream()
    x = cuda.device_array(count, dtype=np.float32, stream=stream)
    _kernel()[256, 256, stream](x, np.float32(value))
    return x


@functools.cache
def _kernel() -> Any:
    from numba import cuda

    @cuda.jit
    def late(x: Any, value: Any) -> None:
        for _ in range(50):
            cuda.nanosleep(1_000_000)
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            x[i] = value

    return late
