"""Objects that are refused whole: the [[object]] rows of tests/data/refusals.toml."""

import contextlib
import ctypes
import datetime
import decimal
import enum
import fractions
import gc
import pathlib
import weakref
from functools import partial
from types import MappingProxyType

import capsules
import fakes
import numpy as np
import pytest
import tables
import tvm_ffi
from capsules import HandMade
from contract import assert_refused, each, rows
from fakes import OnlyCai, only_cai, torch_like
from test_said_twice import by_dlpack, by_table

from cai_bridge import DriverError, _core, convert, from_cai, to_cai, to_dlpack
from cai_bridge.testing import simulated_cuda

CALLS = {
    "to_cai": to_cai,
    "from_cai": from_cai,
    "dlpack": lambda view: view.__dlpack__(),
    "copy to the host": lambda view: view.__dlpack__(dl_device=(1, 0)),
    "borrow": _core._simulated_borrow_exchange,
    "managed": tables.managed,
    "convert": lambda x: convert(x, "cai"),
    "from_cai with an owner": lambda x: from_cai(x, owner=object()),
    "from_cai on device 99": lambda x: from_cai(x, device=99),
}
TORCH = {
    "requires_grad": {"dtype": "float32", "bits": {"_grad": True}},
    "conj": {"dtype": "complex64", "bits": {"_conj": True}},
    "neg": {"dtype": "int32", "bits": {"_neg": True}},
}
SPEAKS = ["exchange", "dlpack", "cai", ("exchange", "dlpack", "cai")]


def sparse():
    """A sparse tensor as torch has it: its table fails, and so does its property."""

    class SparseBits(fakes.Bits):
        layout = "torch.sparse_coo"

        @property
        def __cuda_array_interface__(self):
            raise AttributeError("Can't get __cuda_array_interface__ on sparse type")

    return tables.speaker(tables.table(None), SparseBits)()


def used(form):
    capsule = HandMade(4096, form=form).capsule()
    capsules.take(capsule).delete()
    return capsule


def released(view):
    view.release()
    return view


# What the programs of the rows name.
NAMES = vars(capsules) | vars(decimal) | vars(fakes) | vars(fractions)
NAMES |= {"MappingProxyType": MappingProxyType, "Color": enum.Enum("Color", ["RED"]), "np": np}
MORE = (sparse, used, released, by_dlpack, by_table, from_cai, to_cai)
MORE += (capsules, tables, tvm_ffi, datetime, weakref, pathlib.Path)
NAMES |= {one.__name__: one for one in MORE}


def call_of(name):
    """The door of a row's `call`."""
    start = "from_cai, owner="
    if name.startswith(start):
        return partial(from_cai, owner=eval(name.removeprefix(start), NAMES))
    return CALLS[name]


CASES = [
    pytest.param(row, call, make, id=f"{call} of {row['object']} {number}")
    for row in rows("refusals", "object")
    for call in row["call"]
    for number, make in enumerate(row.get("make", ()))
]


@pytest.mark.parametrize(("row", "call", "make"), CASES)
def test_an_object_that_cannot_be_taken_is_refused(row, call, make, cuda):
    x = cuda.array([1.0] * 4, speaks=())
    made = eval(make, {**NAMES, "cuda": cuda, "x": x})
    assert_refused(row, call_of(call), made)
    with contextlib.suppress(TypeError):
        gone = weakref.ref(made)
        del made
        gc.collect()
        assert gone() is None


@pytest.mark.unchecked
@each("refusals", "object", object="an array and a stream that is none")
@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai"])
@pytest.mark.parametrize(
    "call", [to_cai, to_dlpack, lambda x, stream: convert(x, "cai", stream=stream)]
)
def test_a_stream_that_is_none_is_named(row, speaks, call, cuda):
    error = assert_refused(row, call, cuda.array([1.0], speaks=speaks), stream=0x3039)
    assert (error.call, error.code) == ("cuStreamGetCtx", 400)
    assert str(error).endswith("; allowed: a stream that exists")


@each("refusals", "object", object="a copy of more than the GPU's memory")
def test_a_copy_that_the_gpu_has_no_memory_for_says_how_large_it_is(row, cuda):
    x = only_cai(cuda.array([1.0], speaks=()), shape=(2**30, 2**20), strides=(0, 0))
    error = assert_refused(row, convert, x, "cai", copy=True)
    assert (error.call, error.code) == ("cuMemAllocAsync", 2)
    assert f"got {2**52} bytes" in str(error)


@pytest.mark.unchecked
@each("refusals", "object", object="a dict that names a stream that is none")
@pytest.mark.parametrize("consumer", ["the legacy default stream", "its own"])
def test_a_stream_of_a_dict_that_is_none_is_named_where_it_is_waited_for(row, consumer, cuda):
    stream = cuda.legacy if consumer == "the legacy default stream" else cuda.stream()
    view = from_cai(only_cai(cuda.array([1.0]), stream=0x3039))
    error = assert_refused(row, view.__dlpack__, stream=stream.handle)
    assert (error.call, error.code) == ("cuStreamIsCapturing", 400)


def test_an_integer_of_another_library_is_the_number_of_a_device(cuda):
    index = type("Index", (), {"__index__": lambda self: 0})()
    for device in (np.int64(0), index):
        assert from_cai(cuda.array([1.0], speaks="cai"), device=device).device == (2, 0)


def test_what_an_error_of_the_driver_has_it_has_from_the_start():
    assert (DriverError("made by hand").call, DriverError.code) == (None, None)


TORCH_CASES = [
    pytest.param(row, call, speaks, id=f"{call} of {row['object']} {speaks}")
    for row in rows("refusals", "object")
    if row["object"] in TORCH
    for call in row["call"]
    for speaks in SPEAKS
    if call == "to_cai" or "cai" in speaks
]


@pytest.mark.parametrize(("row", "call", "speaks"), TORCH_CASES)
def test_a_tensor_whose_memory_is_not_its_value_is_refused_until_it_is(row, call, speaks, cuda):
    made = TORCH[row["object"]]
    x = torch_like(cuda.array([1, 2], dtype=made["dtype"], speaks=speaks), **made["bits"])
    assert_refused(row, CALLS[call], x)
    assert x.exports == 0
    for bit in made["bits"]:
        setattr(x, bit, False)
    view = CALLS[call](x)
    assert cuda.read(view) == [1, 2]
    assert view.owner is x


def test_a_producers_failure_is_the_cause_of_the_refusal_of_its_layout():
    with pytest.raises(BufferError, match=r"^layout: got torch\.sparse_coo") as caught:
        to_cai(sparse())
    assert isinstance(caught.value.__cause__, ValueError)


@each("refusals", "object", object="failing driver")
def test_a_call_of_the_driver_that_fails_is_named(row, cuda):
    x = cuda.array([1.0], speaks="cai")
    cuda.fail(row["field"])
    error = assert_refused(row, from_cai, x)
    assert (error.call, error.code) == ("cuPointerGetAttributes", 2)
    assert cuda.read(from_cai(x)) == [1.0]


def driver_is_there():
    with contextlib.suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return True
    return False


@pytest.mark.skipif(driver_is_there(), reason="this machine has a CUDA driver")
@each("refusals", "object", object="no driver")
def test_without_a_driver_only_what_needs_none_works(row):
    made = OnlyCai({"shape": (1,), "typestr": "<f4", "data": (4096, False), "version": 3})
    error = assert_refused(row, from_cai, made)
    assert "simulated_cuda" in str(error)
    assert (error.call, error.code) == (None, None)
    view = to_cai(HandMade(4096).capsule())
    assert view.__cuda_array_interface__["data"] == (4096, False)
    with pytest.raises(DriverError, match=r"no CUDA driver library"):
        to_cai(view, stream=7)


def test_the_driver_is_back_as_it_was_after_the_simulated_device():
    with simulated_cuda() as cuda:
        x = cuda.array([1.0], speaks="cai")
        interface, view = x.__cuda_array_interface__, from_cai(x)
    if not driver_is_there():
        with pytest.raises(DriverError):
            from_cai(interface, owner=x)
    view.release()
