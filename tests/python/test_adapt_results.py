"""`adapt`: what a function returns comes back as the caller's kind."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

import numpy as np
import pytest
import tvm_ffi
from scenes import done
from stand_in import Array, StandIn, library, made_on, no_libraries, producer

from cai_bridge import CaiView, adapt, to_cai

__all__ = ["library", "no_libraries", "producer"]


# what comes back


def test_a_result_comes_back_like_the_first_array(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), producer.handle):
        tensor = tvm_ffi.from_dlpack(x)

        @adapt(to="stand_in")
        def function(number: int, x: Any, y: Any) -> Any:
            x.write(14.0)
            return x

        made = function(3, tensor, made_on(cuda, producer))
        assert type(made) is tvm_ffi.Tensor
        assert made.data_ptr() == x.ptr
        seen = producer.read(to_cai(made, stream=producer))
    assert done(seen) == [14.0] * 4
    del made
    gc.collect()
    cuda.synchronize()


def test_a_tree_of_results_comes_back_in_its_shape(cuda: Any, producer: Any) -> None:
    class Made(NamedTuple):
        one: Any
        host: Any

    tensor, host = tvm_ffi.from_dlpack(made_on(cuda, producer)), np.ones(2)
    cuda.synchronize()
    made = adapt(lambda x: {"a": [Made(x, host), 3]})(tensor)
    (one, three) = made["a"]
    assert (type(one), type(one.one), one.host is host, three) == (Made, tvm_ffi.Tensor, True, 3)


@pytest.mark.parametrize("returns", ["stand_in", Array])
def test_a_result_comes_back_as_is_said(
    cuda: Any, library: StandIn, producer: Any, returns: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    made = adapt(lambda x: x, returns=returns)(x)
    assert type(made) is Array
    assert made.view.ptr == x.ptr
    seen = made.read()
    del made
    assert done(seen) == [7.0] * 4


def test_a_result_as_numpy_is_on_the_host_in_order(cuda: Any, library: StandIn, producer: Any):
    x = made_on(cuda, producer, 7.0)

    def function(x: Any) -> Any:
        x.write(14.0)
        return x

    made = adapt(function, "stand_in", returns=np)(x)
    assert made.tolist() == [14.0] * 4
    producer.fill(x, 9.0)
    cuda.synchronize()


def test_a_result_stays_as_it_is_where_that_is_said(cuda: Any, producer: Any) -> None:
    x = made_on(cuda, producer)
    made = adapt(lambda x: x, returns=None)(x)
    assert type(made) is CaiView
    assert made.ptr == x.ptr
    made.release()
    cuda.synchronize()


def test_a_result_like_an_array_of_no_known_library_stays_as_it_is(cuda: Any) -> None:
    # Nobody makes arrays of the simulated device's type.
    made = adapt(lambda x: x)(cuda.array([1.0]))
    assert type(made) is CaiView


@pytest.mark.parametrize("to", ["cai", "dlpack"])
def test_a_result_comes_back_like_a_view(cuda: Any, library: StandIn, to: str) -> None:
    view = adapt(lambda x: x, to, returns=None)(cuda.array([1.0]))
    made = adapt(lambda x: x, "stand_in")(view)
    assert type(made) is type(view)
    assert made.ptr == view.ptr


def test_without_an_array_among_the_arguments_results_stay_as_they_are(
    cuda: Any, library: StandIn
) -> None:
    x = cuda.array([1.0])
    assert adapt(lambda: x, "stand_in")() is x
    assert adapt(lambda: 3, "stand_in")() == 3
    assert type(adapt(lambda: x, returns="stand_in")()) is Array


def test_what_a_function_would_write_to_numpys_copy_is_refused_not_lost(
    cuda: Any, producer: Any
) -> None:
    x = made_on(cuda, producer, 7.0)

    def add_one(x: Any) -> float:
        x += 1
        return float(x[0])

    with pytest.raises(ValueError, match="read-only"):
        adapt(add_one, "numpy")(x)
    assert adapt(add_one, "numpy", readonly=False)(x) == 8.0
    assert adapt(lambda x: x[0], "numpy")(x) == 7.0


# which stream a view is ready on that comes back


def test_what_comes_back_as_a_view_is_ordered_for_whoever_reads_it(cuda: Any) -> None:
    producer, own, reader = (cuda.stream(name) for name in ("producer's", "own", "reader's"))
    x = cuda.array([1.0] * 4, speaks="cai3", stream=producer)
    made = adapt(lambda x: x, "dlpack", stream=own, returns="cai")(x)
    read = cuda.consumer("cai-waits", reader).read(made)
    read.release()
    made.release()
    producer.fill(x, 9.0)
    assert done(read) == [1.0] * 4
