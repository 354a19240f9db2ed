"""The array libraries as producers and consumers: one way to make an array in each, and one way to
look at it.

A *producer* makes a GPU array of given host values. A *consumer* takes a view by one protocol and
reports what it got as a `Seen`: pointer, shape, byte strides, dtype name and, through its own copy
to the host, the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from . import driver

STANDARD = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
NARROW = ["bfloat16", *FLOAT8]


def host_dtype(name: str) -> np.dtype[Any]:
    if name in NARROW:
        return np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    return np.dtype(name)


def host_values(name: str, shape: tuple[int, ...] = (3, 4)) -> np.ndarray[Any, Any]:
    """Small distinct values that every dtype holds exactly enough for a bitwise comparison."""
    count = int(np.prod(shape))
    if name == "bool":
        return (np.arange(count) % 3 == 0).reshape(shape)
    values = np.arange(1, count + 1).astype(np.float32)
    if name.startswith("complex"):
        return (values - 1j * values).astype(name).reshape(shape)
    return values.astype(host_dtype(name)).reshape(shape)


def same_bits(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    return (
        left.shape == right.shape
        and left.itemsize == right.itemsize
        and left.tobytes() == right.tobytes()
    )


def make_torch(host: np.ndarray[Any, Any], name: str) -> Any:
    torch = pytest.importorskip("torch")
    if name in NARROW:
        carrier = np.int16 if name == "bfloat16" else np.uint8
        return torch.from_numpy(host.view(carrier)).cuda().view(getattr(torch, name))
    return torch.from_numpy(host).cuda()


def make_cupy(host: np.ndarray[Any, Any], name: str) -> Any:
    cupy = pytest.importorskip("cupy")
    if name in FLOAT8:
        pytest.skip(f"CuPy has no {name}")
    if name == "bfloat16":
        return cupy.asarray(host.view(np.uint16)).view(host.dtype)
    return cupy.asarray(host)


def make_numba(host: np.ndarray[Any, Any], name: str) -> Any:
    pytest.importorskip("numba")
    from numba import cuda

    if name in NARROW:
        pytest.skip(f"a numba array has no {name}")
    return cuda.to_device(host)


def make_jax(host: np.ndarray[Any, Any], name: str) -> Any:
    jax = gpu_jax()
    return jax.block_until_ready(jax.device_put(host, jax.devices("gpu")[0]))


def gpu_jax() -> Any:
    jax = pytest.importorskip("jax")
    try:
        jax.devices("gpu")
    except RuntimeError as reason:
        pytest.skip(f"JAX sees no GPU here: {reason}")
    return jax


PRODUCERS: dict[str, Callable[[np.ndarray[Any, Any], str], Any]] = {
    "torch": make_torch,
    "cupy": make_cupy,
    "numba": make_numba,
    "jax": make_jax,
}


def pointer_of(array: Any, library: str) -> int:
    match library:
        case "torch":
            return int(array.data_ptr())
        case "cupy":
            return int(array.data.ptr)
        case "numba":
            return int(array.device_ctypes_pointer.value or 0)
        case _:
            return int(array.unsafe_buffer_pointer())


@dataclass(frozen=True)
class Seen:
    """What a consumer got. `strides` in bytes."""

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    values: np.ndarray[Any, Any]


def raw_values(
    ptr: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    """Values at a pointer by the driver alone: for consumers that cannot copy to the host
    themselves.
    """
    driver.load().synchronize()
    if 0 in shape:
        return np.empty(shape, dtype)
    low = sum(step * (n - 1) for n, step in zip(shape, strides, strict=True) if step < 0)
    high = sum(step * (n - 1) for n, step in zip(shape, strides, strict=True) if step > 0)
    content = driver.load().read(ptr + low, high - low + dtype.itemsize)
    return np.ndarray(shape, dtype, buffer=content, offset=-low, strides=strides).copy()


def torch_seen(tensor: Any) -> Seen:
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    tensor_on_host = tensor.cpu()
    if name in NARROW:
        carrier = torch.int16 if name == "bfloat16" else torch.uint8
        values = tensor_on_host.view(carrier).numpy().view(host_dtype(name))
    else:
        values = tensor_on_host.numpy()
    strides = tuple(step * tensor.element_size() for step in tensor.stride())
    return Seen(int(tensor.data_ptr()), tuple(tensor.shape), strides, name, values)


def cupy_seen(array: Any) -> Seen:
    import cupy

    return Seen(array.data.ptr, array.shape, array.strides, array.dtype.name, cupy.asnumpy(array))


def numba_seen(array: Any) -> Seen:
    ptr = int(array.device_ctypes_pointer.value or 0)
    values = raw_values(ptr, array.shape, array.strides, array.dtype)
    return Seen(ptr, array.shape, array.strides, array.dtype.name, values)


def jax_seen(array: Any) -> Seen:
    # JAX tells no strides; where it is no zero-copy of a C-ordered block, the values still tell.
    values = np.asarray(array)
    return Seen(
        int(array.unsafe_buffer_pointer()),
        tuple(array.shape),
        values.strides,
        array.dtype.name,
        values,
    )


def core_seen(view: Any) -> Seen:
    dtype, strides = view.dtype, view.strides
    if strides is None:
        steps = np.empty(view.shape, dtype).strides
    else:
        steps = tuple(step * dtype.itemsize for step in strides)
    values = raw_values(view.ptr, view.shape, steps, dtype)
    return Seen(view.ptr, view.shape, steps, dtype.name, values)


def tvm_seen(tensor: Any) -> Seen:
    name = str(tensor.dtype)
    dtype = host_dtype(name)
    strides = tuple(step * dtype.itemsize for step in tensor.strides)
    shape = tuple(tensor.shape)
    ptr = int(tensor.data_ptr())
    return Seen(ptr, shape, strides, name, raw_values(ptr, shape, strides, dtype))


def core(view: Any, door: str) -> Seen:
    strided = pytest.importorskip("cuda.core.utils").StridedMemoryView
    return core_seen(getattr(strided, door)(view, stream_ptr=-1))


BY_CAI: dict[str, Callable[[Any], Seen]] = {
    "torch": lambda view: torch_seen(pytest.importorskip("torch").as_tensor(view, device="cuda")),
    "cupy": lambda view: cupy_seen(pytest.importorskip("cupy").asarray(view)),
    "numba": lambda view: numba_seen(pytest.importorskip("numba.cuda").as_cuda_array(view)),
    "cuda.core": lambda view: core(view, "from_cuda_array_interface"),
}
BY_DLPACK: dict[str, Callable[[Any], Seen]] = {
    "torch": lambda view: torch_seen(pytest.importorskip("torch").from_dlpack(view)),
    "cupy": lambda view: cupy_seen(pytest.importorskip("cupy").from_dlpack(view)),
    "jax": lambda view: jax_seen(gpu_jax().dlpack.from_dlpack(view)),
    "cuda.core": lambda view: core(view, "from_dlpack"),
    "tvm-ffi": lambda view: tvm_seen(pytest.importorskip("tvm_ffi").from_dlpack(view)),
}
