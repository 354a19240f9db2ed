"""Numba's arrays are read by their attributes, which say what their dict does."""

import ctypes
import logging
import sys
import types

import numpy as np
import pytest
from test_limits import stand_in

from cai_bridge import convert, from_cai, to_cai


class Stream:
    """A stream of Numba's: it has no way to be closed."""

    __module__ = "numba.cuda.cudadrv.driver"

    def __init__(self, owned, external=False):
        self.handle = getattr(owned, "handle", owned)
        self.owned, self.external, self.asked = None if external else owned, external, 0

    def __cuda_stream__(self):
        self.asked += 1
        return (0, self.handle)


def contiguous(array):
    """What Numba's `is_contiguous` answers: it passes over strides of 0."""
    size = array.dtype.itemsize
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if extent > 1 and stride != 0:
            if stride != size:
                return False
            size *= extent
    return True


def interface(self):
    self.read += 1
    pointer = self.gpu_data.device_ctypes_pointer
    return {
        "shape": self.shape,
        "strides": None if contiguous(self) else tuple(self.strides),
        "data": (int(getattr(pointer, "value", pointer) or 0), False),
        "typestr": self.dtype.str,
        "stream": int(self.stream.handle) if self.stream != 0 else None,
        "version": 3,
    }


interface.__module__ = "numba.cuda.cudadrv.devicearray"


def array_type(**members):
    """A type of arrays as Numba's are, new each time, since what is known of a type is kept."""

    def init(self, memory, like, stream=0):
        address = memory.__cuda_array_interface__["data"][0] if like.size else None
        pointer = ctypes.c_size_t(address) if address else ctypes.c_void_p(None)
        self.gpu_data = types.SimpleNamespace(device_ctypes_pointer=pointer)
        self.shape, self.strides, self.dtype = like.shape, like.strides, like.dtype
        self.stream, self.memory, self.read = stream, memory, 0

    members = {"__cuda_array_interface__": property(interface), **members}
    name = {"__module__": "numba.cuda.cudadrv.devicearray", "__init__": init}
    return type("DeviceNDArray", (), {**name, **members})


@pytest.fixture(params=["numba.cuda", "numba_cuda_mlir.numba_cuda"])
def library(request):
    """The module that the arrays' class is of."""
    return f"{request.param}.cudadrv.devicearray"


@pytest.fixture
def memory(cuda):
    return cuda.array([1.0, 2.0, 3.0, 4.0], dtype="float32", speaks="cai3")


NUMBAS = interface.__module__


def kind_of(dicts, module=NUMBAS, dict_of=interface):
    """A type of arrays of that module, whose dict is by a function of the module `dicts`."""

    def own(self):
        return dict_of(self)

    own.__module__ = dicts
    return array_type(__cuda_array_interface__=property(own), __module__=module)


@pytest.fixture(params=["by attributes", "by the dict"])
def make(request, library):
    """A type of arrays for the quick route, and one for the plain route."""
    return kind_of(library if request.param == "by attributes" else "somebody.else", library)


def facts(view):
    return (view.shape, view.strides, view.typestr, view.ptr, view.readonly, view.stream)


ARRAYS = {
    "two dimensions": np.zeros((2, 3), "float32"),
    "none": np.zeros((), "int64"),
    "no elements": np.zeros((2, 0), "uint8"),
    "ones": np.zeros((1, 4, 1), "complex64"),
    "every second": np.zeros((2, 8), "float16")[:, ::2],
    "transposed": np.zeros((2, 3), "int32").T,
    "backwards": np.zeros(6, "int16")[::-1],
}


@pytest.mark.parametrize("like", ARRAYS.values(), ids=ARRAYS)
def test_the_attributes_say_what_the_dict_says(like, cuda):
    memory = cuda.array([0.0] * 32, dtype="float64", speaks="cai3")
    mine = cuda.stream("mine")
    array = array_type()(memory, like, Stream(mine))
    by_parts = to_cai(array)
    assert array.read == 1, "once, to compare"
    by_dict = to_cai(from_cai(array.__cuda_array_interface__, owner=array, device=0))
    assert facts(by_parts) == facts(by_dict)
    to_cai(array)
    assert array.read == 2


ODD = {
    "an extent below 0": ((-1,), (4,)),
    "a stride of one item and a half": ((2,), (6,)),
    "65 dimensions": ((1,) * 65, (4,) * 65),
    "a reach that overflows": ((4,), (2**62,)),
    "a size that overflows": ((2**40, 2**40), (4, 4)),
    "items below address 0": ((2**30,), (-(2**30),)),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_a_dict_is_refused_for_is_refused_by_the_attributes(odd, cuda):
    memory = cuda.array([0.0] * 32, dtype="float64", speaks="cai3")
    shape, strides = odd
    like = types.SimpleNamespace(shape=shape, strides=strides, dtype=np.dtype("f4"), size=1)
    words = []
    for module in (NUMBAS, "somebody.else"):
        kind = kind_of(module, module)
        # From its first array on, Numba's type is read by the attributes.
        assert to_cai(kind(memory, np.zeros(4, "f4"))).shape == (4,)
        for function in (to_cai, from_cai):
            with pytest.raises((ValueError, BufferError)) as error:
                function(kind(memory, like))
            words.append((error.type, str(error.value)))
    assert words[:2] == words[2:]


def test_strides_that_a_library_has_not_are_refused_by_the_attributes(cuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    memory = cuda.array([0.0] * 32, dtype="float64", speaks="cai3")
    to = stand_in("torch", {0: cuda.stream("consumer")})
    kind = array_type()
    for like in (ARRAYS["transposed"], ARRAYS["backwards"]):
        array = kind(memory, like)
        assert to_cai(array).strides == like.strides
        read = array.read
        if like is ARRAYS["transposed"]:
            assert convert(array, to).view.shape == like.shape
        else:
            with pytest.raises(BufferError, match="strides: got"):
                convert(array, to)
        assert array.read == read, "its dict is not read"


@pytest.mark.parametrize("first", ["broadcast", "plain"])
def test_a_broadcast_array_keeps_its_strides_which_the_dict_leaves_out(first, make, cuda, memory):
    plain, wide = np.zeros(3, "float32"), np.broadcast_to(np.zeros(3, "float32"), (2, 3))
    if first == "plain":
        to_cai(make(memory, plain))
    array = make(memory, wide)
    assert array.__cuda_array_interface__["strides"] is None
    assert to_cai(array).strides == (0, 4)
    assert to_cai(make(memory, plain)).__cuda_array_interface__["strides"] is None
    pending = cuda.legacy.read(to_cai(array))
    cuda.synchronize()
    assert pending.value == [[1.0, 2.0, 3.0]] * 2


def test_a_dict_of_a_broadcast_array_has_the_strides_of_its_owner(make, cuda, memory):
    array = make(memory, np.broadcast_to(np.zeros(3, "float32"), (2, 3)))
    interface = array.__cuda_array_interface__
    assert from_cai(interface, owner=array).strides == (0, 4)
    assert interface["strides"] is None, "the dict is its maker's"
    other = {**interface, "shape": (3,), "data": (memory.ptr, False)}
    assert from_cai(other, owner=array).strides == (4,), "another array of the same owner"


def test_a_subclass_with_a_dict_of_its_own_is_read_by_that(cuda, memory):
    own = property(lambda self: {**interface(self), "data": (interface(self)["data"][0], True)})
    array = array_type(__cuda_array_interface__=own)(memory, np.zeros(4, "float32"))
    assert to_cai(array).readonly


def test_a_dict_that_differs_is_believed_and_the_log_says_so(cuda, caplog, memory):
    kind = kind_of(NUMBAS, dict_of=lambda self: {**interface(self), "shape": (2,)})
    array = kind(memory, np.zeros(4, "float32"))
    with caplog.at_level(logging.DEBUG, "cai_bridge"):
        assert to_cai(array).shape == (2,)
    assert [record for record in caplog.records if "numba" in record.getMessage()]


@pytest.mark.parametrize("per_thread", [False, True, None])
@pytest.mark.parametrize("named", [False, True])
def test_the_default_stream_is_numbas_by_its_setting(
    named, per_thread, make, library, cuda, monkeypatch, memory
):
    for setting in ("numba.cuda", "numba_cuda_mlir.numba_cuda.core"):
        module = types.ModuleType(setting)
        own = setting.partition(".")[0] == library.partition(".")[0]
        flag = int(bool(per_thread) == own)
        module.config = types.SimpleNamespace(CUDA_PER_THREAD_DEFAULT_STREAM=flag)
        # Without Numba itself its arrays are on the legacy default stream.
        if per_thread is not None:
            monkeypatch.setitem(sys.modules, setting, module)
    array = make(memory, np.zeros(4, "float32"), Stream(0) if named else 0)
    assert to_cai(array).stream == (2 if per_thread else 1)


def test_a_stream_is_asked_for_once_and_lives_as_long_as_the_view(cuda, memory):
    numbas, mine = (cuda.stream(name) for name in ("numba's", "mine"))
    array = array_type()(memory, np.zeros(4, "float32"), Stream(numbas))
    to_cai(array).release()
    stream = array.stream
    asked = stream.asked
    numbas.fill(memory, 7.0)
    with to_cai(array, stream=mine) as view:
        pending = mine.read(view)
        mine.fill(view, 8.0)
    after = numbas.read(memory)
    assert stream.asked == asked + 1
    cuda.synchronize()
    assert (pending.value, after.value) == ([7.0] * 4, [8.0] * 4)


def test_a_stream_around_somebody_elses_handle_is_not_used_later(make, cuda, memory):
    lent, mine = (cuda.stream(name) for name in ("lent", "mine"))
    array = make(memory, np.zeros(4, "float32"), Stream(lent, external=True))
    view = to_cai(array)
    array.stream = Stream(mine)
    lent.destroy()
    view.release()


class OldStream:
    """A stream of Numba's before numba-cuda 0.21."""

    __module__ = "numba.cuda.cudadrv.driver"

    def __init__(self, owned):
        self.handle = owned.handle

    def __int__(self):
        return int(self.handle)


class BindingsPointer:
    """What NVIDIA's binding has for an address: in Numba's own CUDA target the memory has it."""

    def __init__(self, address):
        self.address = address

    def __int__(self):
        return self.address


@pytest.mark.parametrize("route", ["by attributes", "by the dict"])
@pytest.mark.parametrize("made", [ctypes.c_size_t, BindingsPointer])
@pytest.mark.parametrize("first", ["broadcast", "plain"])
def test_an_array_of_an_older_release_keeps_its_strides_too(first, made, route, cuda, memory):
    stream = cuda.stream("Numba's")
    plain, wide = np.zeros(3, "float32"), np.broadcast_to(np.zeros(3, "float32"), (2, 3))
    make = kind_of(NUMBAS if route == "by attributes" else __name__)

    def array(like):
        one = make(memory, like, OldStream(stream))
        one.gpu_data = types.SimpleNamespace(device_ctypes_pointer=made(memory.ptr))
        return one

    if first == "plain":
        to_cai(array(plain))
    view = to_cai(array(wide))
    assert (view.strides, view.ptr, view.stream) == ((0, 4), memory.ptr, stream.handle)


OldStream.__name__ = "Stream"
