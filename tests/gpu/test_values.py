"""Every dtype and layout, from each producer through the bridge to each consumer: same values, same
pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

from . import capsules
from .libraries import (
    BY_CAI,
    BY_DLPACK,
    FLOAT8,
    NARROW,
    PRODUCERS,
    STANDARD,
    Seen,
    host_values,
    pointer_of,
    same_bits,
)


def check(seen: Seen, host: np.ndarray[Any, Any], ptr: int) -> None:
    assert seen.ptr == ptr, "the consumer was handed a copy"
    assert seen.shape == host.shape
    assert seen.dtype == host.dtype.name
    assert same_bits(seen.values, host)


VIA: dict[str, dict[str, Callable[[Any], Seen]]] = {"to_cai": BY_CAI, "from_cai": BY_DLPACK}


def view_of(driver: Any, door: str, array: Any, **how: Any) -> Any:
    if door == "to_cai":
        return to_cai(array, **how)
    driver.synchronize()
    return from_cai(array, stream=-1, **how)


def ways(to_cai: Iterable[str], from_cai: Iterable[str]) -> list[tuple[str, str, str]]:
    """Each producer with each consumer, by both doors."""
    producers = {"to_cai": to_cai, "from_cai": from_cai}
    return [(door, p, c) for door in VIA for p in producers[door] for c in VIA[door]]


@pytest.mark.parametrize("dtype", STANDARD)
@pytest.mark.parametrize(
    ("door", "producer", "consumer"), ways(["torch", "jax", "cupy"], PRODUCERS)
)
def test_a_producer_reaches_a_consumer_with_its_values_and_its_pointer(
    driver, door, producer, consumer, dtype
):
    if consumer == "tvm-ffi" and dtype.startswith("complex"):
        pytest.skip("tvm-ffi 0.1.15 has no complex types")
    host = host_values(dtype)
    array = PRODUCERS[producer](host, dtype)
    view = view_of(driver, door, array, readonly=False)
    assert view.ptr == pointer_of(array, producer)
    assert view.dtype == host.dtype
    assert door == "from_cai" or view.typestr == host.dtype.str
    check(VIA[door][consumer](view), host, view.ptr)


def layouts(library: str) -> dict[str, Any]:
    """One array of each layout, with the host array that it equals."""
    host = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    whole = PRODUCERS[library](host, "float32")
    row, scalar, empty = host[0], host[1, 2], np.empty((0, 3), np.float32)

    def made(h: Any) -> Any:
        return PRODUCERS[library](np.asarray(h), "float32")

    cases = {
        "C-contiguous": (whole, host),
        "sliced with an offset": (whole[1:, 2:], host[1:, 2:]),
        "every other column": (whole[:, ::2], host[:, ::2]),
        "transposed": (whole.T, host.T),
        "0-d": (made(scalar), np.asarray(scalar)),
        "zero-size": (made(empty), empty),
        "one element": (whole[1:2, 3:4], host[1:2, 3:4]),
        "broadcast": (None, np.broadcast_to(row, (4, 6))),
    }
    if library == "cupy":
        import cupy

        cases["broadcast"] = (cupy.broadcast_to(whole[0], (4, 6)), cases["broadcast"][1])
        cases["reversed"] = (whole[::-1, ::-1], host[::-1, ::-1])
        cases["one axis reversed"] = (whole[:, ::-2], host[:, ::-2])
    else:
        cases["broadcast"] = (whole[0].expand(4, 6), cases["broadcast"][1])
    return cases


LAYOUTS = [
    *("C-contiguous", "sliced with an offset", "every other column", "transposed", "0-d"),
    *("zero-size", "one element", "broadcast", "reversed", "one axis reversed"),
]
REVERSED = {"reversed", "one axis reversed"}
COMPACT = {"C-contiguous", "transposed", "0-d", "zero-size"}


def check_layout(seen: Seen, host: np.ndarray[Any, Any], ptr: int, *, strides: bool) -> None:
    assert seen.shape == host.shape
    assert same_bits(seen.values, host)
    if host.size:
        assert seen.ptr == ptr, "the consumer was handed a copy"
        # The stride of a dimension of one element says nothing.
        pairs = zip(seen.strides, host.strides, host.shape, strict=True)
        assert not strides or all(mine == its for mine, its, extent in pairs if extent > 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("door", "producer", "consumer"), ways(["torch", "cupy"], ["torch", "cupy"])
)
def test_a_layout_survives_the_way(driver, door, producer, consumer, layout):
    if layout in REVERSED and "torch" in {producer, consumer}:
        pytest.skip("torch has no negative strides")
    if consumer == "jax" and layout not in COMPACT:
        pytest.skip("JAX takes compact layouts only")
    array, host = layouts(producer)[layout]
    # By its dict: CuPy 14.2's capsules have negative strides as unsigned numbers.
    view = view_of(driver, door, array)
    if door == "to_cai":
        wanted = None if host.flags.c_contiguous else host.strides
        assert view.__cuda_array_interface__["strides"] == wanted
    assert view.ptr == (pointer_of(array, producer) if host.size else 0)
    check_layout(VIA[door][consumer](view), host, view.ptr, strides=consumer != "jax")


# dtypes that CAI has no name for


@pytest.mark.parametrize("dtype", NARROW)
def test_torchs_narrow_types_go_out_as_void_bytes_and_come_back(driver, torch, cupy, dtype):
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    host, bits = host_values(dtype), np.uint16 if dtype == "bfloat16" else np.uint8
    tensor = PRODUCERS["torch"](host, dtype)
    if dtype in FLOAT8:
        with pytest.raises(KeyError):
            _ = tensor.__cuda_array_interface__
    view = to_cai(tensor)
    assert view.typestr == ("<V2" if dtype == "bfloat16" else "|V1")
    array = cupy.asarray(view)
    assert array.data.ptr == tensor.data_ptr()
    assert same_bits(cupy.asnumpy(array.view(bits)), host.view(bits))
    foreign = capsules.OnlyCai(view.__cuda_array_interface__, keep=tensor)
    with pytest.raises((BufferError, ValueError), match=r"typestr|dtype"):
        from_cai(foreign)
    for named in (from_cai(view), from_cai(foreign, dtype=dtype)):
        back = torch.from_dlpack(named)
        assert (back.dtype, back.data_ptr()) == (tensor.dtype, tensor.data_ptr())
        assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.parametrize("consumer", ["torch", "cupy", "jax", "tvm-ffi"])
@pytest.mark.parametrize("producer", ["torch", "cupy"])
def test_bfloat16_by_cai_is_recognised_by_the_producers_dtype(driver, producer, consumer):
    host = host_values("bfloat16")
    array = PRODUCERS[producer](host, "bfloat16")
    driver.synchronize()
    view = from_cai(array, stream=-1)
    assert view.dtype == host.dtype
    check(BY_DLPACK[consumer](view), host, pointer_of(array, producer))


def test_bfloat16_of_jax_goes_out_by_cai_though_jax_itself_refuses(driver):
    cupy = pytest.importorskip("cupy")
    host = host_values("bfloat16")
    array = PRODUCERS["jax"](host, "bfloat16")
    with pytest.raises(AttributeError):
        _ = array.__cuda_array_interface__
    view = to_cai(array)
    assert view.typestr == "<V2"
    assert same_bits(cupy.asnumpy(cupy.asarray(view).view(np.uint16)), host.view(np.uint16))
