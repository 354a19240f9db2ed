"""What a `DLPackView` hands out: capsules by what was asked, and the exchange API of its type."""

import capsules
import numpy as np
import pytest
import tables
import tvm_ffi
from capsules import READ_ONLY, DLTensor, HandMade

from cai_bridge import DLPackView, from_cai, to_cai


@pytest.fixture
def view(cuda):
    return from_cai(cuda.array([[1.0, 2.0, 3.0]] * 2, speaks="cai"))


# --- __dlpack__ -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_version", "name", "version"),
    [
        (None, "dltensor", None),
        ((0, 0), "dltensor", None),
        ((0, 8), "dltensor", None),
        ((0, 99), "dltensor", None),
        ((1, 0), "dltensor_versioned", (1, 3)),
        ((1, 1), "dltensor_versioned", (1, 3)),
        ((1, 3), "dltensor_versioned", (1, 3)),
        ((1, 99), "dltensor_versioned", (1, 3)),
        ((2, 0), "dltensor_versioned", (1, 3)),
        ((2**70, 0), "dltensor_versioned", (1, 3)),
        ((np.int64(1), np.int64(0)), "dltensor_versioned", (1, 3)),
    ],
)
def test_the_capsule_is_versioned_from_1_0_on(max_version, name, version, view):
    capsule = view.__dlpack__(max_version=max_version)
    assert capsules.name_of(capsule) == name
    said = capsules.read(capsule)
    assert said.version == version
    assert said.flags == (None if version is None else 0)
    assert (said.shape, said.strides, said.dtype) == ((2, 3), (3, 1), (2, 32, 1))
    assert (said.ptr, said.byte_offset, said.device) == (view.ptr, 0, (2, 0))


# --- the exchange API -----------------------------------------------------------------------------


def test_the_table_is_of_1_3_and_on_the_type():
    table = tables.of(DLPackView)
    assert (table.major, table.minor, table.prev_api) == (1, 3, None)
    entries = ("allocate", "from_object", "to_object", "borrow", "stream")
    assert all(getattr(table, tables.ENTRIES[entry]) for entry in entries)
    assert "__dlpack_c_exchange_api__" in vars(DLPackView)


def test_the_cpu_has_no_work_stream():
    assert tables.work_stream(DLPackView, (1, 0)) == 0


def test_the_work_stream_of_another_device_is_refused():
    with pytest.raises(BufferError, match=r"^device: got \(10, 0\); allowed: "):
        tables.work_stream(DLPackView, (10, 0))


def test_the_allocator_says_that_it_is_not_supported():
    code, made, ((context, kind, text),) = tables.allocate(DLPackView, DLTensor())
    assert (code, made, context, kind) == (-1, None, 42, b"RuntimeError")
    assert b"not supported" in text


@pytest.mark.parametrize("flags", [0, READ_ONLY])
def test_a_managed_tensor_becomes_a_view_that_owns_it(flags, cuda):
    x = cuda.array([1.0, 2.0, 3.0, 4.0])
    tensor = HandMade(x.ptr - 8, flags=flags, byte_offset=8)
    view = tables.to_object(DLPackView, tensor)
    assert type(view) is DLPackView
    assert (view.ptr, view.shape, view.readonly) == (x.ptr, (4,), bool(flags))
    assert (view.stream, view.owner) == (1, None)
    assert cuda.read(view) == [1.0, 2.0, 3.0, 4.0]
    assert tensor.deleted == 0
    capsule = view.__dlpack__(max_version=(1, 0))
    del view
    assert tensor.deleted == 0
    del capsule
    assert tensor.deleted == 1


# --- real consumers -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16", "float8_e4m3fn", "bool"])
def test_tvm_ffi_takes_a_view_by_the_exchange_api(dtype, cuda):
    x = cuda.array([[1, 0]] * 3, dtype=dtype, speaks="cai", device=1)
    tensor = tvm_ffi.from_dlpack(from_cai(x))
    assert (tuple(tensor.shape), str(tensor.dtype)) == ((3, 2), dtype)
    assert str(tensor.device) == "cuda:1"
    assert tensor.data_ptr() == x.ptr
    view = to_cai(tensor)
    assert (view.ptr, view.shape, view.device) == (x.ptr, (3, 2), (2, 1))
    assert cuda.read(from_cai(view)) == [[1, 0]] * 3


@pytest.mark.parametrize("readonly", [True, False])
def test_numpy_takes_a_view_of_pinned_memory(readonly, cuda):
    x = cuda.array([[1.0, 2.0]] * 2, memory="pinned", speaks="cai", strides="F", readonly=readonly)
    array = np.from_dlpack(from_cai(x))
    assert array.tolist() == [[1.0, 2.0]] * 2
    assert array.ctypes.data == x.ptr
    assert (array.strides, array.flags.writeable) == (x.strides, not readonly)
