"""Every dtype and layout, from each producer through the bridge to each consumer: same values, same
pointer.
"""

from __future__ import annotations

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
    host_dtype,
    host_values,
    pointer_of,
    same_bits,
)


def check(seen: Seen, host: np.ndarray[Any, Any], ptr: int) -> None:
    assert seen.ptr == ptr, "the consumer was handed a copy"
    assert seen.shape == host.shape
    assert seen.dtype == host.dtype.name
    assert same_bits(seen.values, host)


@pytest.mark.parametrize("dtype", STANDARD)
@pytest.mark.parametrize("consumer", BY_CAI)
@pytest.mark.parametrize("producer", ["torch", "jax", "cupy"])
@pytest.mark.usefixtures("driver")
def test_a_dlpack_producer_reaches_a_cai_consumer_with_its_values_and_its_pointer(
    producer: str, consumer: str, dtype: str
) -> None:
    host = host_values(dtype)
    array = PRODUCERS[producer](host, dtype)
    view = to_cai(array, readonly=False)
    assert view.ptr == pointer_of(array, producer)
    assert view.typestr == host.dtype.str
    check(BY_CAI[consumer](view), host, view.ptr)


@pytest.mark.parametrize("dtype", STANDARD)
@pytest.mark.parametrize("consumer", BY_DLPACK)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_cai_producer_reaches_a_dlpack_consumer_with_its_values_and_its_pointer(
    driver: Any, producer: str, consumer: str, dtype: str
) -> None:
    if consumer == "tvm-ffi" and dtype.startswith("complex"):
        pytest.skip("tvm-ffi 0.1.15 has no complex types")
    host = host_values(dtype)
    array = PRODUCERS[producer](host, dtype)
    driver.synchronize()
    view = from_cai(array, stream=-1, readonly=False)
    assert view.ptr == pointer_of(array, producer)
    assert view.dtype == host.dtype
    check(BY_DLPACK[consumer](view), host, view.ptr)


# layouts


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
    "C-contiguous",
    "sliced with an offset",
    "every other column",
    "transposed",
    "0-d",
    "zero-size",
]
LAYOUTS += ["one element", "broadcast", "reversed", "one axis reversed"]
REVERSED = {"reversed", "one axis reversed"}
COMPACT = {"C-contiguous", "transposed", "0-d", "zero-size"}


def strides_of(host: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return tuple(host.strides)


def check_layout(seen: Seen, host: np.ndarray[Any, Any], ptr: int, *, strides: bool) -> None:
    assert seen.shape == host.shape
    assert same_bits(seen.values, host)
    if host.size:
        assert seen.ptr == ptr, "the consumer was handed a copy"
        lengths = [
            n > 1 for n in host.shape
        ]  # the stride of a dimension of one element says nothing
        seen_steps = [step for step, counts in zip(seen.strides, lengths, strict=True) if counts]
        host_steps = [
            step for step, counts in zip(strides_of(host), lengths, strict=True) if counts
        ]
        assert not strides or seen_steps == host_steps


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("consumer", BY_CAI)
@pytest.mark.parametrize("producer", ["torch", "cupy"])
@pytest.mark.usefixtures("driver")
def test_a_layout_survives_the_way_from_dlpack_to_cai(
    producer: str, consumer: str, layout: str
) -> None:
    if layout in REVERSED and "torch" in {producer, consumer}:
        pytest.skip("torch has no negative strides")
    array, host = layouts(producer)[layout]
    # By its dict: CuPy 14.2's capsules have negative strides as unsigned numbers.
    view = to_cai(array)
    contiguous = host.flags.c_contiguous
    assert view.__cuda_array_interface__["strides"] == (None if contiguous else strides_of(host))
    assert view.ptr == (pointer_of(array, producer) if host.size else 0)
    check_layout(BY_CAI[consumer](view), host, view.ptr, strides=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("consumer", BY_DLPACK)
@pytest.mark.parametrize("producer", ["torch", "cupy"])
def test_a_layout_survives_the_way_from_cai_to_dlpack(
    driver: Any, producer: str, consumer: str, layout: str
) -> None:
    if layout in REVERSED and (producer == "torch" or consumer == "torch"):
        pytest.skip("torch has no negative strides")
    if consumer == "jax" and layout not in COMPACT:
        pytest.skip("JAX takes compact layouts only")
    array, host = layouts(producer)[layout]
    driver.synchronize()
    view = from_cai(array, stream=-1)
    assert view.ptr == (pointer_of(array, producer) if host.size else 0)
    check_layout(BY_DLPACK[consumer](view), host, view.ptr, strides=consumer != "jax")


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_exported_capsule_has_explicit_strides_and_no_byte_offset(layout: str) -> None:
    array, host = layouts("cupy")[layout]
    view = from_cai(array)
    said = capsules.read_capsule(view.__dlpack__(max_version=(1, 3)))
    assert said.byte_offset == 0
    assert said.ptr == (array.data.ptr if host.size else 0)
    assert said.shape == host.shape
    if host.ndim:
        assert said.strides is not None
    if host.size > 1:
        # A dict leaves the strides of contiguous arrays out, those of single elements with them.
        wanted = [step // host.itemsize for step in host.strides]
        pairs = zip(said.strides or (), wanted, host.shape, strict=True)
        assert all(got == want for got, want, extent in pairs if extent > 1)


# dtypes that CAI has no name for


@pytest.mark.usefixtures("driver")
def test_bfloat16_leaves_torch_as_two_void_bytes_and_cupy_reads_its_values() -> None:
    cupy = pytest.importorskip("cupy")
    host = host_values("bfloat16")
    view = to_cai(PRODUCERS["torch"](host, "bfloat16"))
    assert view.typestr == "<V2"
    assert view.dtype == host_dtype("bfloat16")
    array = cupy.asarray(view)
    assert array.data.ptr == view.ptr
    assert same_bits(cupy.asnumpy(array.view(np.uint16)), host.view(np.uint16))


@pytest.mark.parametrize("consumer", ["torch", "cupy", "jax", "tvm-ffi"])
@pytest.mark.parametrize("producer", ["torch", "cupy"])
def test_bfloat16_by_cai_is_recognised_by_the_producers_dtype(
    driver: Any, producer: str, consumer: str
) -> None:
    host = host_values("bfloat16")
    array = PRODUCERS[producer](host, "bfloat16")
    driver.synchronize()
    view = from_cai(array, stream=-1)
    assert view.dtype == host.dtype
    check(BY_DLPACK[consumer](view), host, pointer_of(array, producer))


@pytest.mark.usefixtures("driver")
def test_bfloat16_of_jax_goes_out_by_cai_though_jax_itself_refuses() -> None:
    cupy = pytest.importorskip("cupy")
    host = host_values("bfloat16")
    array = PRODUCERS["jax"](host, "bfloat16")
    with pytest.raises(AttributeError):
        _ = array.__cuda_array_interface__
    view = to_cai(array)
    assert view.typestr == "<V2"
    assert same_bits(cupy.asnumpy(cupy.asarray(view).view(np.uint16)), host.view(np.uint16))


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("dtype", NARROW)
def test_a_view_of_our_own_keeps_the_exact_dtype_on_the_way_back_to_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    host = host_values(dtype)
    tensor = PRODUCERS["torch"](host, dtype)
    view = to_cai(tensor)
    assert view.typestr == ("<V2" if dtype == "bfloat16" else "|V1")
    back = torch.from_dlpack(from_cai(view))
    assert back.dtype == tensor.dtype
    assert back.data_ptr() == tensor.data_ptr()
    assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("dtype", NARROW)
def test_a_void_typestr_takes_the_dtype_that_the_caller_names_and_is_never_guessed(
    dtype: str,
) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    tensor = PRODUCERS["torch"](host_values(dtype), dtype)
    view = to_cai(tensor)
    foreign = capsules.OnlyCai(view.__cuda_array_interface__, keep=tensor)
    with pytest.raises((BufferError, ValueError), match=r"typestr|dtype"):
        from_cai(foreign)
    back = torch.from_dlpack(from_cai(foreign, dtype=dtype))
    assert back.dtype == tensor.dtype
    assert back.data_ptr() == tensor.data_ptr()


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_of_torch_has_no_cai_of_its_own_and_has_one_through_the_bridge(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    cupy = pytest.importorskip("cupy")
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    host = host_values(dtype)
    tensor = PRODUCERS["torch"](host, dtype)
    with pytest.raises(KeyError):
        _ = tensor.__cuda_array_interface__
    array = cupy.asarray(to_cai(tensor))
    assert array.data.ptr == tensor.data_ptr()
    assert same_bits(cupy.asnumpy(array.view(np.uint8)), host.view(np.uint8))
