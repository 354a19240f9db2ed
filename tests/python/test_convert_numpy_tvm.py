"""`convert` to the libraries that need no GPU: NumPy, and tvm-ffi with the simulated device."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from scenes import done
from stand_in import StandIn, library, made_on, no_libraries, producer

from cai_bridge import (
    CaiView,
    convert,
    to_cai,
)

__all__ = ["library", "no_libraries", "producer"]


SPEAKS = ["exchange", "dlpack", "dlpack-legacy", "cai3", ("exchange", "cai2")]
DEVICE = tvm_ffi.device("cuda", 0)


# NumPy


@pytest.mark.parametrize("to", ["numpy", np, np.ndarray])
@pytest.mark.parametrize("speaks", SPEAKS)
def test_numpy_is_given_a_copy_in_order(cuda: Any, producer: Any, speaks: Any, to: Any) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    made = convert(x, to)
    assert type(made) is np.ndarray
    assert made.dtype == np.float32
    assert made.tolist() == [7.0] * 4
    producer.fill(x, 9.0)
    cuda.synchronize()
    assert made.tolist() == [7.0] * 4
    assert x.exports == 0


@pytest.mark.unchecked
def test_without_the_hosts_wait_numpy_is_given_what_was_there_before(
    cuda: Any, producer: Any
) -> None:
    x = made_on(cuda, producer, 91.5)
    for call in ("cuStreamWaitEvent", "cuStreamSynchronize", "cuEventSynchronize"):
        cuda.suppress(call)
    made = convert(x, "numpy")
    assert cuda.reports or made.tolist() != [91.5] * 4
    cuda.clear_faults()


def test_numpy_takes_what_layout_there_is(cuda: Any) -> None:
    for shape in ((), (0, 3), (2, 2)):
        items = int(np.prod(shape))
        values = np.arange(items, dtype=np.float32).reshape(shape)
        made = convert(cuda.array(values.tolist() if items else None, shape=shape), "numpy")
        assert made.shape == shape
        assert np.array_equal(made, values)
    columns = cuda.array([[1.0, 2.0], [3.0, 4.0]], strides="F")
    assert convert(columns, "numpy").tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_numpy_is_never_without_a_copy(cuda: Any) -> None:
    x = cuda.array([1.0])
    with pytest.raises(ValueError, match=r"^copy: got False; allowed: None or True: a NumPy"):
        convert(x, "numpy", copy=False)
    with pytest.raises(ValueError, match=r"^x\[1\]: copy: got False"):
        convert([1, x], "numpy", copy=False)
    assert convert(x, "numpy", copy=True).tolist() == [1.0]
    assert x.exports == 0


def test_numpys_own_arrays_stay(cuda: Any) -> None:
    x = np.ones(4)
    assert convert(x, np) is x
    assert convert(x, np, stream=1) is x


# tvm-ffi


def tensors_memory(tensor: Any) -> CaiView:
    """The memory of a tensor, with no order made."""
    return to_cai(tensor, stream=-1)


@pytest.mark.parametrize("speaks", SPEAKS)
def test_tvm_ffi_is_given_the_array_on_its_environments_stream(
    cuda: Any, producer: Any, speaks: Any
) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer, 7.0, speaks)
    with tvm_ffi.use_raw_stream(DEVICE, mine.handle):
        made = convert(x, tvm_ffi)
    assert type(made) is tvm_ffi.Tensor
    assert made.data_ptr() == x.ptr
    seen = mine.read(tensors_memory(made))
    mine.synchronize()
    assert seen.value == [7.0] * 4
    del made
    gc.collect()
    cuda.synchronize()
    assert x.exports == 0


def test_tvm_ffi_and_a_stream_that_is_said(cuda: Any, producer: Any) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer, 7.0)
    made = convert(x, "tvm_ffi.core", stream=mine)
    seen = mine.read(tensors_memory(made))
    del made
    producer.fill(x, 9.0, name="the producer's next write")
    assert done(seen) == [7.0] * 4


@pytest.mark.unchecked
def test_without_a_wait_tvm_ffis_array_is_a_race(cuda: Any, producer: Any) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer)
    for nth in (1, 2):
        cuda.suppress("cuStreamWaitEvent", nth=nth)
    made = convert(x, tvm_ffi, stream=mine)
    mine.read(tensors_memory(made))
    mine.synchronize()
    assert cuda.reports
    cuda.clear_faults()


def test_tvm_ffis_arrays_go_to_another_library(cuda: Any, library: StandIn, producer: Any) -> None:
    x = made_on(cuda, producer, 7.0)
    with tvm_ffi.use_raw_stream(DEVICE, producer.handle):
        made = convert(convert(x, tvm_ffi), "stand_in")
    seen = made.read()
    cuda.synchronize()
    assert (seen.value, made.view.ptr) == ([7.0] * 4, x.ptr)


def test_a_library_that_nobody_has_any_more_goes(cuda: Any) -> None:
    library = StandIn({0: cuda.legacy})
    assert len(library.converter.lend([cuda.array([1.0])])[0]) == 1
    gone = weakref.ref(library)
    del library
    gc.collect()
    assert gone() is None
