"""Arrays on the host: shared by libraries that have such, copied to a GPU where that is asked."""

import ctypes
import gc

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi
from contract import ALLOWED, assert_refused, each
from copies import made as calls
from stand_in import library, no_libraries

from cai_bridge import CaiView, DLPackView, DriverError, adapt, convert, to_cai, to_dlpack

__all__ = ["library", "no_libraries"]

MESSAGES = {
    "CpuConverted": r"device: got CPU memory; allowed: .*; pass copy=True to copy to the GPU",
    "ReadOnlyConverted": r"readonly: got read-only memory; allowed: .*copy=True",
}
MADE = {"numpy": np.ndarray, "tvm_ffi": tvm_ffi.Tensor, "cai": CaiView, "dlpack": DLPackView}


def given(kind):
    """The array of a row, and NumPy's of the same values, of whose memory it is."""
    memory = np.arange(6, dtype="float32").reshape(2, 3)
    if kind.startswith("columns"):
        return memory.T, memory.T
    if kind.startswith("nothing"):
        return memory[:0], memory[:0]
    if kind.startswith("bfloat16"):
        memory = memory.astype(ml_dtypes.bfloat16)
    if kind.startswith("what may not be written"):
        memory.flags.writeable = False
    if kind.startswith("pinned"):
        return SaysPinned(memory), memory
    return (tvm_ffi.from_dlpack(memory) if "tvm-ffi" in kind else memory), memory


class SaysPinned:
    """An array on the host whose device is that of pinned memory, as PyTorch's are."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **wishes):
        return self.array.__dlpack__(max_version=wishes.get("max_version"))

    def __dlpack_device__(self):
        return 3, 0


def values(made):
    return np.asarray(convert(made, "numpy"), dtype="float32").tolist()


@each("strangers", "host")
def test_an_array_on_the_host_is_shared_or_copied_or_refused(row, cuda):
    x, memory = given(row["kind"])
    on_gpu = cuda.array([5.0], speaks="dlpack")
    wishes = {"copy": True} if "copy" in row else {}
    tree = [x, on_gpu, "text", np.array(["words"])] if "list" in row["kind"] else x
    if "refused" in row:
        for where, refused in (("", tree), (r"x\[0\]: ", [tree])):
            if where and row["to"] == "cai":
                continue  # in a tree it stays
            with pytest.raises(BufferError, match="^" + where + MESSAGES[row["refused"]]):
                convert(refused, row["to"], **wishes)
        return
    made = convert(tree, row["to"], **wishes)
    if isinstance(tree, list):
        assert made[2:] == tree[2:]
        assert isinstance(made[1], MADE[row["to"]])
        made = made[0]
    if row.get("does", "").startswith("a library for GPUs"):
        assert made is x
        return
    assert isinstance(made, MADE[row["to"]])
    if memory.dtype != ml_dtypes.bfloat16 or row["to"] != "tvm_ffi":
        assert values(made) == memory.tolist()
    else:
        assert str(made.dtype) == "bfloat16"
    if memory.flags.writeable and memory.size:
        before, memory[0] = memory.tolist(), 9.0
        if memory.dtype != ml_dtypes.bfloat16:
            assert values(made) == (before if "copy" in row else memory.tolist())


@each("refusals", "object", kind="CpuConverted")
@pytest.mark.parametrize("to", ["cai", "dlpack"])
@pytest.mark.parametrize("copy", [None, False])
def test_a_library_for_gpus_gets_no_array_on_the_host_without_a_copy(row, to, copy, cuda):
    assert_refused(row, convert, np.ones(4), to, copy=copy)


def test_numpy_may_not_write_what_the_caller_calls_read_only():
    x, _ = given("an array of tvm-ffi")
    assert not convert(x, "numpy", readonly=True).flags.writeable
    assert not convert([x], "numpy", readonly=True)[0].flags.writeable


def test_the_memory_of_a_copy_is_freed_after_its_user(cuda):
    mine = cuda.stream("mine", blocking=False)
    made = convert(np.ones(4), "cai", copy=True, stream=mine)
    seen = mine.read(made)
    cuda.clear_calls()
    del made
    gc.collect()
    assert calls(cuda) == [("cuMemFreeAsync", mine.handle)]
    cuda.synchronize()
    assert seen.value == [1.0] * 4


def test_a_copy_goes_to_the_gpu_that_the_stream_is_of_or_that_is_current(cuda):
    far = cuda.stream("far", device=1)
    assert convert(np.ones(4), "cai", copy=True, stream=far).device == (2, 1)
    assert convert([np.ones(4)], "cai", copy=True, stream=far)[0].device == (2, 1)
    assert convert(np.ones(4), "cai", copy=True).device == (2, 0)
    cuda.set_device(1)
    assert convert(np.ones(4), "cai", copy=True).device == (2, 1)


@pytest.mark.parametrize("memory", ["pinned", "managed", "pageable"])
def test_the_host_may_write_at_once_after_a_copy(memory, cuda):
    """From memory that CUDA knows, its copy reads when the stream comes to it."""
    mine = cuda.stream("mine", blocking=False)
    host, held = np.ones(4, np.float32), None
    if memory != "pageable":
        held = cuda.array([1.0] * 4, dtype="float32", memory=memory)
        cuda.synchronize()
        address = to_cai(held).ptr
        host = np.ctypeslib.as_array((ctypes.c_float * 4).from_address(address))
    made = convert(host, "cai", copy=True, stream=mine)
    host[:] = 7.0
    seen = mine.read(made)
    cuda.synchronize()
    assert seen.value == [1.0] * 4
    assert held is None or held.tolist() == [7.0] * 4


@pytest.mark.parametrize("memory", ["pinned", "managed"])
def test_numpys_array_over_memory_that_a_gpu_reaches_is_an_array_of_it(memory, cuda, library):
    """NumPy keeps the device, and its `__dlpack__` takes no stream."""
    x = cuda.array([1.0] * 4, dtype="float32", memory=memory)
    mine = cuda.stream("mine")
    array = np.from_dlpack(to_dlpack(x))
    cuda.legacy.fill(x, 2.0)
    read = mine.read(to_cai(array, stream=mine))
    cuda.synchronize()
    assert read.value == [2.0] * 4
    for copy in (None, True):
        made = convert([array], "stand_in", copy=copy, stream=mine)[0]
        seen = mine.read(made.view)
        cuda.synchronize()
        assert seen.value == [2.0] * 4
    assert to_cai(array).device == to_cai(x).device


def test_a_copy_in_a_capture_is_refused_and_the_capture_goes_on(cuda):
    mine = cuda.stream("mine", blocking=False)
    x = cuda.array([0.0] * 4)
    with cuda.capture(mine) as graph:
        with pytest.raises(DriverError, match="a copy"):
            convert(np.ones(4), "cai", copy=True, stream=mine)
        mine.fill(x, 3.0)
    graph.launch(mine)
    cuda.synchronize()
    assert x.tolist() == [3.0] * 4


@pytest.mark.parametrize("call", ["cuMemAllocAsync", "cuMemcpyHtoDAsync"])
def test_a_copy_that_fails_leaves_nothing(call, cuda):
    cuda.fail(call)
    with pytest.raises(DriverError, match=call):
        convert(np.ones(4), "cai", copy=True)
    freed = [name for name, _ in calls(cuda) if name == "cuMemFreeAsync"]
    assert len(freed) == (call != "cuMemAllocAsync")


@pytest.mark.parametrize("mask", [[False, True, False], False])
@pytest.mark.parametrize("to", ["cai", "dlpack", "tvm_ffi"])
def test_a_masked_array_is_not_given_without_its_mask(to, mask, cuda):
    masked = np.ma.array([1.0, 2.0, 3.0], mask=mask)
    for given in (masked, {"a": masked, "b": cuda.array([5.0])}):
        for copy in (True, None) if to == "tvm_ffi" else (True,):
            with pytest.raises(BufferError, match=r'^(x\["a"\]: )?mask: got .*; allowed: None'):
                convert(given, to, copy=copy)
    assert convert(masked, "numpy") is masked
    assert convert(masked, "numpy", copy=True).mask.tolist() == masked.mask.tolist()
    has_a_method = type("HasMaskMethod", (np.ndarray,), {"mask": lambda self: None})
    assert values(convert(np.ones(3).view(has_a_method), to, copy=True)) == [1.0] * 3


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("dtype", ["U4", "M8[s]", "O", "longdouble", "clongdouble", ">f8", ">u2"])
def test_what_only_numpy_has_stays_in_a_tree(dtype, copy, cuda):
    labels = np.zeros(2, dtype)
    made = convert({"a": labels, "b": cuda.array([5.0])}, "tvm_ffi", copy=copy)
    assert made["a"] is labels
    assert isinstance(made["b"], tvm_ffi.Tensor)


def test_the_librarys_own_array_on_the_host_is_copied_if_asked(cuda):
    own = tvm_ffi.from_dlpack(np.arange(3.0))
    on_gpu = tvm_ffi.from_dlpack(cuda.array([7.0]))
    assert convert(own, "tvm_ffi") is own
    made = convert([own, on_gpu], "tvm_ffi", copy=True)
    assert made[0] is not own
    assert made[0].data_ptr() != own.data_ptr()
    assert str(made[0].device) == "cpu:0"
    assert to_cai(made[1]).ptr != on_gpu.data_ptr()
    assert values(made[0]) == [0.0, 1.0, 2.0]
    cuda.synchronize()


@each("strangers", "elsewhere")
def test_an_array_that_is_elsewhere_is_refused_as_what_it_is(row, cuda):
    members = {
        "__dlpack_device__": lambda self: tuple(row["device"]),
        "__dlpack__": lambda self, **_: pytest.fail("asked"),
    }
    there = type("There", (), members)()
    with pytest.raises((BufferError, ValueError)) as alone:
        to_cai(there)
    assert str(alone.value).endswith(f"; allowed: {ALLOWED[row['refused']]}")
    for to in ("cai", "dlpack", "numpy"):
        tree = [cuda.array([1.0]), {"a": there}]
        for x, where in ((there, ""), (tree, 'x[1]["a"]: ')):
            for copy in (None, True):
                with pytest.raises(alone.type) as refused:
                    convert(x, to, copy=copy)
                assert str(refused.value) == f"{where}{alone.value}"
        with pytest.raises(alone.type) as refused:
            adapt(lambda a: a, to)(there)
        assert str(refused.value) == f"a: {alone.value}"


def test_a_dict_that_raises_is_none_where_the_array_says_that_it_is_on_the_host():
    def no_dict(_):
        raise RuntimeError("not on a GPU")

    memory = np.ones(2)
    members = {
        "__cuda_array_interface__": property(no_dict),
        "__dlpack__": lambda self, **_: memory.__dlpack__(),
        "__dlpack_device__": lambda self: (1, 0),
    }
    x = type("RaisesForADict", (), members)()
    assert np.shares_memory(convert(x, "numpy"), memory)
    assert np.shares_memory(convert([x], "numpy")[0], memory)


def test_a_class_is_refused_where_its_arrays_are_taken(cuda):
    class Array:
        def __dlpack_device__(self):
            raise AssertionError

        def __dlpack__(self, **_):
            raise AssertionError

    for to in ("cai", "numpy", "tvm_ffi"):
        with pytest.raises(
            TypeError, match=r"object: got the class .*Array; allowed: an array, not"
        ):
            convert(Array, to)
