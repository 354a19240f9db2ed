"""Arrays on the host: shared by PyTorch, JAX and tvm-ffi; copied to the GPU if that is asked."""

from __future__ import annotations

import time

import numpy as np
import pytest

from cai_bridge import convert, to_dlpack

from . import streams

LARGE = 1 << 24


@pytest.mark.parametrize("to", ["torch", "cupy", "numba", "jax", "tvm_ffi", "cai"])
@pytest.mark.parametrize("count", [1, 1000, LARGE])
def test_a_copy_of_numpys_array_has_its_values_and_none_of_its_later_ones(to, count, driver):
    if to != "cai":
        pytest.importorskip("numba.cuda" if to == "numba" else to)
    x = np.arange(count, dtype="float32")
    made = convert(x, to, copy=True)
    x[:] = -1.0
    seen = convert(made, "numpy")
    assert (seen == np.arange(count, dtype="float32")).all()


@pytest.mark.parametrize("count", [1000, LARGE])
def test_a_copy_is_made_after_what_is_pending_on_the_stream(count, driver, cupy):
    """The memory may be that of an array that was freed in order on the same stream."""
    mine = cupy.cuda.Stream(non_blocking=True)
    values = streams.fresh_values()
    for _ in range(10):
        value = next(values)
        with mine:
            array = cupy.zeros(count, dtype="float32")
            streams.cupy_writes_late(array, value, mine)
            made = convert(np.full(count, value + 1, dtype="float32"), "cupy", copy=True)
            total = made + array
        mine.synchronize()
        assert (cupy.asnumpy(total) == 2 * value + 1).all()


@pytest.mark.alone
def test_the_host_does_not_wait_for_a_small_copy(driver, cupy):
    """Up to 64 KB the driver stages pageable memory and returns; beyond that it may wait."""
    mine = cupy.cuda.Stream(non_blocking=True)
    convert(np.ones(16, dtype="float32"), "cupy", copy=True, stream=mine)
    driver.synchronize()
    # CuPy's own late writes may be compiled for longer than they wait.
    driver.spin(mine.ptr, 50.0)
    began = time.perf_counter()
    made = convert(np.ones(16, dtype="float32"), "cupy", copy=True, stream=mine)
    took, pending = time.perf_counter() - began, not mine.done
    mine.synchronize()
    assert pending, f"the host waited {took * 1e3:.1f} ms"
    assert (cupy.asnumpy(made) == 1.0).all()


@pytest.mark.parametrize("to", ["torch", "jax", "tvm_ffi"])
def test_numpys_array_is_shared_with_a_library_that_has_arrays_on_the_host(to, driver):
    pytest.importorskip(to)
    x = np.arange(64, dtype="float32")  # aligned as JAX wants it, or JAX copies
    for made in (convert(x, to), convert([x], to)[0]):
        assert np.asarray(convert(made, "numpy")).tolist() == x.tolist()
    if to != "jax":
        x[0] = 5.0
        assert convert(made, "numpy")[0] == 5.0


def test_jaxs_array_on_the_host_is_not_handed_to_a_library_that_writes(driver):
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    x = jax.device_put(np.arange(4.0, dtype="float32"), jax.devices("cpu")[0])
    with pytest.raises(BufferError, match="readonly: got read-only memory"):
        convert(x, torch)
    made = convert(x, torch, copy=True)
    made += 1.0
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert convert(x, np).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert convert([x], "cupy", copy=True)[0].tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64"])
def test_torchs_tensor_on_the_host_goes_to_the_gpu(dtype, driver, torch):
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    for one in (x, x.T, x[:, ::2]):
        made = convert(one, "torch", copy=True)
        assert made.device.type == "cpu", "a library with arrays on the host keeps them there"
        assert torch.equal(made, one)
        on_gpu = convert(convert(one, "dlpack", copy=True), "torch")
        assert on_gpu.device.type == "cuda"
        assert torch.equal(on_gpu.cpu(), one)


def test_torchs_pinned_tensor_is_shared_with_libraries_that_have_arrays_on_the_host(driver, torch):
    x = torch.arange(64, dtype=torch.float32).pin_memory()
    for to in ("numpy", "jax", "tvm_ffi"):
        pytest.importorskip(to)
        for made in (convert(x, to), convert([x], to)[0]):
            assert np.asarray(convert(made, "numpy")).tolist() == x.tolist()
    assert convert(x, "torch") is x
    made = convert(x, "cupy", copy=True)
    assert made.tolist() == x.tolist()
    with pytest.raises(BufferError, match="pass copy=True"):
        convert(x, "cupy")


@pytest.mark.parametrize("memory", ["managed", "pinned"])
def test_cupy_jax_and_numpy_get_a_copy_of_memory_that_the_cpu_reaches(memory, driver, cupy):
    """As CuPy's and JAX's own tests of `copy=True` have it."""
    if memory == "managed":
        x = cupy.ndarray(16, dtype="float32", memptr=cupy.cuda.malloc_managed(64))
    else:
        x = pytest.importorskip("numba.cuda").mapped_array(16, dtype="float32")
    x[:] = 3.0
    driver.synchronize()
    view = to_dlpack(x)
    assert (np.from_dlpack(view, copy=True) == 3.0).all()
    if memory == "pinned":
        # CuPy 14.2 takes device type 3 from nobody.
        with pytest.raises(TypeError, match="Unsupported array type: 3"):
            cupy.from_dlpack(view, copy=True)
        return
    made = cupy.from_dlpack(view, copy=True)
    assert made.data.ptr != view.ptr
    assert (cupy.asnumpy(made) == 3.0).all()
