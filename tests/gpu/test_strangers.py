"""Producers that no table knows, with work pending on the legacy default stream; and their like."""

from __future__ import annotations

from typing import Any

import pytest

from cai_bridge import convert, from_cai, to_cai

from . import libraries, streams
from .streams import WORDS

RUNS = 20


class SaysNone:
    """A dict of version 3 without a stream, whatever is pending, as cuda.stf's."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__cuda_array_interface__, "stream": None}


class IgnoresStreams:
    """A ``__dlpack__`` that orders nothing, as LMDeploy's."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.array.__dlpack_device__()
        return device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, **_: Any) -> Any:
        return self.array.__dlpack__(stream=-1, max_version=max_version)


def wrong(cupy: Any, driver: Any, stranger: Any, how: Any) -> int:
    """Count the runs in which a read on a non-blocking stream did not see the late write."""
    array, mine = cupy.zeros(WORDS, dtype="float32"), cupy.cuda.Stream(non_blocking=True)
    values, count = streams.fresh_values(), 0
    for _ in range(RUNS):
        driver.synchronize()
        value = next(values)
        streams.cupy_writes_late(array, value, cupy.cuda.Stream.null)
        with mine:
            seen = how(stranger(array), mine)
            count += not bool((cupy.asnumpy(seen) == value).all())
    driver.synchronize()
    return count


def through(x: Any, stream: Any) -> Any:
    return convert(x, "cupy", stream=stream).copy()


def by_dlpack_for(x: Any, stream: Any) -> Any:
    return convert(to_cai(x, stream=stream), "cupy", stream=stream).copy()


def unordered(x: Any, stream: Any) -> Any:
    return convert(to_cai(x, stream=-1), "cupy", stream=stream).copy()


@pytest.mark.parametrize("stranger", [SaysNone, IgnoresStreams])
@pytest.mark.parametrize("how", [through, by_dlpack_for])
def test_work_that_nobody_named_is_waited_for(stranger, how, driver, cupy):
    assert wrong(cupy, driver, stranger, how) == 0


@pytest.mark.parametrize("stranger", [SaysNone, IgnoresStreams])
def test_without_an_order_it_is_not(stranger, driver, cupy):
    assert wrong(cupy, driver, stranger, unordered) > 0


class NamesStream:
    """A dict that names the stream that its array is written on."""

    def __init__(self, array: Any, stream: Any) -> None:
        self.array, self.stream = array, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__cuda_array_interface__, "stream": self.stream.ptr}


@pytest.mark.parametrize("ordered", [True, False])
def test_the_dicts_stream_is_waited_for_beside_the_one_that_the_caller_names(ordered, driver, cupy):
    """Whoever passes the consumer's stream to ``from_cai`` gets no race."""
    array = cupy.zeros(WORDS, dtype="float32")
    home, mine = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    values, wrong = streams.fresh_values(), 0
    for _ in range(RUNS):
        driver.synchronize()
        value = next(values)
        streams.cupy_writes_late(array, value, home)
        view = from_cai(NamesStream(array, home), stream=mine if ordered else -1)
        with mine:
            seen = convert(view, "cupy", stream=mine).copy()
            wrong += not bool((cupy.asnumpy(seen) == value).all())
    driver.synchronize()
    assert (wrong == 0) == ordered


def test_the_default_stream_of_numba_cuda_mlir_is_waited_for(driver, cupy):
    pytest.importorskip("numba_cuda_mlir")
    from numba_cuda_mlir import numba_cuda as cuda

    def as_its(array: Any) -> Any:
        its = cuda.as_cuda_array(array, sync=False)
        its.stream = 0
        return its

    assert wrong(cupy, driver, as_its, through) == 0
    wide = cuda.as_cuda_array(cupy.broadcast_to(cupy.arange(3, dtype="float32"), (2, 3)))
    assert wide.__cuda_array_interface__["strides"] is None
    assert from_cai(wide).strides == (0, 4)


def test_strided_memory_is_refused_for_jax_with_the_way_out(cupy):
    libraries.gpu_jax()
    x = cupy.arange(12, dtype="float32").reshape(3, 4)
    for strided in (x[:, ::2], cupy.broadcast_to(x[0], (2, 4))):
        with pytest.raises(BufferError, match=r"^strides: got .*; allowed: .*copy=True"):
            convert(strided, "jax")
        assert convert(strided, "jax", copy=True).tolist() == strided.tolist()
    assert convert(x.T, "jax").tolist() == x.T.tolist()


def test_torchs_float4_goes_to_tvm_ffi_as_it_is(driver):
    """The CUDA Array Interface, which has no word for it, takes no part."""
    torch, tvm_ffi = pytest.importorskip("torch"), pytest.importorskip("tvm_ffi")
    float4 = getattr(torch, "float4_e2m1fn_x2", None)
    if float4 is None:
        pytest.skip("this torch has no float4")
    x = torch.arange(16, dtype=torch.uint8, device="cuda").view(float4)
    made = convert(x, "tvm_ffi")
    assert isinstance(made, tvm_ffi.Tensor)
    assert (made.data_ptr(), tuple(made.shape)) == (x.data_ptr(), tuple(x.shape))
    assert "float4_e2m1fn" in str(made.dtype)
    again = convert(made, "torch")
    assert again.dtype == float4
    assert torch.equal(again.view(torch.uint8), x.view(torch.uint8))
    with pytest.raises(BufferError, match="dtype: got DLDataType"):
        to_cai(x)
