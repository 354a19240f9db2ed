"""A kernel that scales, of several libraries, as functions for compiled programs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cai_bridge import adapt

from .streams import blocks_for

RUNS = 100
BY = 2.0
SCALE = "(Tensor x, float by) -> Tensor"
SOURCE = r"""
extern "C" __global__ void scale(const float* x, float* y, float by, int n)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}
"""


def cupys_kernel() -> Callable[[Any, float, Any], None]:
    """A kernel that CuPy compiles before it is first launched, in a capture for one."""
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(SOURCE, "scale")
    kernel.compile()

    def scale(x: Any, by: float, y: Any) -> None:
        kernel((blocks_for(x.size)[0],), (128,), (x, y, np.float32(by), np.int32(x.size)))

    return scale


def like(x: Any, by: Any) -> Any:
    return x


def of_cupy(name: str, **how: Any) -> Any:
    """CuPy's kernel, on the stream that is current in CuPy, or on PyTorch's."""
    scale, op = cupys_kernel(), f"cai_gpu::{name}{SCALE}"
    return adapt(scale, "cupy", op=op, like=like, into=True, **how)


def of_cupy_returned(name: str) -> Any:
    cupy, scale = pytest.importorskip("cupy"), cupys_kernel()

    @adapt(to="cupy", op=f"cai_gpu::{name}_returned{SCALE}", like=like)
    def scaled(x: Any, by: float) -> Any:
        y = cupy.empty_like(x)
        scale(x, by, y)
        return y

    return scaled


def of_cupy_writing(name: str) -> Any:
    """CuPy's kernel on a tensor that it writes to, which is a copy of what comes."""
    scale = cupys_kernel()

    @adapt(to="cupy", op=f"cai_gpu::{name}_writing(Tensor(a!) x, float by) -> ()")
    def scale_(x: Any, by: float) -> None:
        scale(x, by, x)

    def scaled(x: Any, by: float) -> Any:
        y = x.clone()
        scale_(y, by)
        return y

    return scaled


def of_numba(name: str) -> Any:
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit
    def kernel(x, y, by):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < x.size:
            y[i] = x[i] * by

    @adapt(to="numba", op=f"cai_gpu::{name}_numba{SCALE}", like=like, into=True)
    def scaled(x: Any, by: float, y: Any) -> None:
        kernel[blocks_for(x.size)](x, y, by)

    return scaled


def of_triton(name: str) -> Any:
    triton = pytest.importorskip("triton")
    kernel = triton.jit(triton_scale)

    @adapt(to="torch", op=f"cai_gpu::{name}_triton{SCALE}", like=like, into=True)
    def scaled(x: Any, by: float, y: Any) -> None:
        kernel[(triton.cdiv(x.numel(), 128),)](x, y, by, x.numel(), BLOCK=128)

    return scaled


with contextlib.suppress(ImportError):
    import triton.language as tl


def triton_scale(x, y, by, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * by, mask=at < n)


KERNELS: dict[str, Callable[[str], Any]] = {
    "cupy": of_cupy,
    "cupy returned": of_cupy_returned,
    "numba": of_numba,
    "triton": of_triton,
}


WRITING: dict[str, Callable[[str], Any]] = {"cupy writing": of_cupy_writing}
"""Of PyTorch alone: JAX's arrays never change."""
