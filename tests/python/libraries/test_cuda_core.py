"""`convert` to cuda.core, by a stand-in for its `StridedMemoryView`."""

import gc
import sys
import types

import pytest
from scenes import done

from cai_bridge import convert


class StridedMemoryView:
    """What `from_cuda_array_interface` makes of a dict."""

    def __init__(self, exporter, stream_ptr):
        self.exporting_obj, self.stream_ptr = exporter, stream_ptr
        self.described = exporter.__cuda_array_interface__

    @classmethod
    def from_cuda_array_interface(cls, exporter, stream_ptr):
        return cls(exporter, stream_ptr)


@pytest.fixture
def cuda_core(monkeypatch):
    from cai_bridge import _libraries
    from cai_bridge._libraries._cuda_core import CudaCore

    utils = types.ModuleType("cuda.core.utils")
    utils.StridedMemoryView = StridedMemoryView
    for name in ("cuda", "cuda.core"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
    library = CudaCore()
    monkeypatch.setattr(_libraries, "FOUND", dict(_libraries.FOUND))
    return library


def test_it_is_given_the_dict_and_asked_for_no_order(cuda, cuda_core):
    x = cuda.array([1.0, 2.0], dtype="float32", speaks="dlpack")
    made = convert(x, cuda_core)
    assert type(made) is StridedMemoryView
    assert (made.stream_ptr, made.described["typestr"]) == (-1, "<f4")
    assert made.described["data"][0] == x.ptr


def test_two_streams_that_work_on_it_one_after_the_other_are_in_order(cuda, cuda_core):
    """Either may be named to a call. The producer, on the legacy stream, queues nothing between."""
    one, other = cuda.stream("one", blocking=True), cuda.stream("other", blocking=True)
    x = cuda.array([1.0] * 64, speaks="exchange", stream=cuda.legacy, name="x")
    made = convert(x, cuda_core)
    one.fill(x, 2.0, name="the write")
    del made
    gc.collect()
    _held = convert(x, cuda_core)
    seen = other.read(x, name="the read")
    assert done(seen) == [2.0] * 64


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_a_type_that_the_dict_cannot_name_is_refused(cuda, cuda_core, dtype):
    x = cuda.array(shape=4, dtype=dtype, speaks="dlpack")
    with pytest.raises(BufferError, match=r"^dtype: got .*; allowed: other types"):
        convert(x, cuda_core)
    assert x.exports == 0
