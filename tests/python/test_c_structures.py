"""The C interface's structures, which can grow, and DLPack's, which it takes and gives."""

import ctypes

import pytest
from capsules import DLTensor, HandMade
from test_c_interface import ARRAY, Description, Export, extension

__all__ = ["extension"]
SIZE = ctypes.sizeof(Description)


class LaterDescription(ctypes.Structure):
    """As a later header might have it."""

    _fields_ = (*Description._fields_, ("later", ctypes.c_uint64))


class LaterExport(ctypes.Structure):
    _fields_ = (*Export._fields_, ("later", ctypes.c_uint64))


def imported(extension, tensor, stream, device=0):
    array = ctypes.c_void_p(1)
    try:
        code = extension.table.import_tensor(tensor, device, stream, ctypes.addressof(array))
    except Exception:
        assert array.value is None
        raise
    assert code == 0
    return array


@pytest.mark.parametrize("object_", [3, None])
def test_a_place_for_a_pointer_is_null_after_a_failure(extension, object_):
    out = ctypes.c_void_p(1)
    place = ctypes.addressof(out)
    with pytest.raises(TypeError):
        extension.table.import_object(None if object_ is None else id(object_), place)
    assert out.value is None
    out.value = 1
    wrong = Export(ndim=-1, device_type=2)
    with pytest.raises(ValueError, match="ndim: got -1"):
        extension.table.export_object(ctypes.addressof(wrong), place)
    assert out.value is None


def test_a_description_is_as_large_as_its_caller_says(cuda, extension):
    x, mine = cuda.array(shape=(2, 3), fill=1.0, speaks="cai3", readonly=True), cuda.stream("mine")
    array, known = extension.begin(x, mine)
    later = LaterDescription(later=7)
    extension.table.describe_sized(array, ctypes.addressof(later), ctypes.sizeof(later))
    assert (bytes(later)[:SIZE], later.later) == (bytes(known), 0)
    later.later = 7
    extension.table.describe(array, ctypes.addressof(later))
    assert (bytes(later)[:SIZE], later.later) == (bytes(known), 7), "the first version's fields"
    with pytest.raises(
        ValueError, match=r"size: got 47; allowed: sizeof\(CaiBridgeDescription\), 48"
    ):
        extension.table.describe_sized(array, ctypes.addressof(later), SIZE - 1)
    extension.end(array, mine)


def test_an_export_is_as_large_as_its_caller_says(cuda, extension):
    x, mine, out = cuda.array([1.0, 2.0]), cuda.stream("mine"), ctypes.c_void_p()
    array, it = extension.begin(x, mine)
    said = {name: getattr(it, name) for name, _ in ARRAY}
    later = LaterExport(**said, stream=mine.handle)
    size, place = ctypes.sizeof(later), ctypes.addressof(out)
    extension.table.export_sized(ctypes.addressof(later), size, place)
    made = ctypes.cast(out, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(out)
    assert made.shape == (2,)
    later.later = 7
    with pytest.raises(ValueError, match="export: got a field that this version"):
        extension.table.export_sized(ctypes.addressof(later), size, place)
    with pytest.raises(ValueError, match=r"size: got 71; allowed: sizeof\(CaiBridgeExport\), 72"):
        extension.table.export_sized(ctypes.addressof(later), ctypes.sizeof(Export) - 1, place)
    del made
    extension.end(array, mine)
    cuda.synchronize()


def test_a_tensor_of_c_is_ordered_by_the_stream_that_it_is_ready_on_and_deleted_once(
    cuda, extension
):
    theirs, mine = cuda.stream("theirs"), cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks=(), stream=theirs)
    theirs.fill(x, 7.0)
    tensor = HandMade(x.ptr, owner=x)
    array = imported(extension, tensor.hand_out(), theirs.handle)
    extension.table.order(array, mine.handle)
    seen = mine.read(x)
    extension.end(array, mine)
    cuda.synchronize()
    assert (seen.value, tensor.deleted) == ([7.0] * 4, 1)


def test_a_tensor_that_is_refused_is_its_callers(cuda, extension):
    x, other = cuda.array([0.0] * 4, speaks=()), cuda.stream("other", device=1)
    tensor = HandMade(x.ptr, owner=x)
    address = tensor.hand_out()
    for device, stream, said in [
        (0, other.handle, "device 1 for an array on device 0"),
        (9, 1, "device_id: got 9 for an array on device 0"),
        (1, 1, "device_id: got 1 for an array on device 0"),
    ]:
        with pytest.raises(ValueError, match=said):
            imported(extension, address, stream, device)
    assert tensor.deleted == 0
    extension.end(imported(extension, address, 1), cuda.stream("mine"))
    cuda.synchronize()
    assert tensor.deleted == 1


@pytest.mark.parametrize("speaks", ["exchange", "cai3", "dlpack"])
def test_the_streams_that_an_array_is_ready_on_are_told(cuda, extension, speaks):
    theirs, mine = cuda.stream("theirs"), cuda.stream("mine")
    with cuda.current_stream(theirs):
        x = cuda.array([1.0], speaks=speaks, stream=theirs)
        array, _ = extension.begin(x, mine)
    streams = (ctypes.c_uint64 * 2)(9, 9)
    extension.table.ready_on(array, ctypes.addressof(streams))
    # A producer that is asked for the default stream makes it wait.
    assert list(streams) == [1 if speaks == "dlpack" else theirs.handle, 0]
    extension.end(array, mine)
    cuda.synchronize()


def test_an_array_is_described_as_a_tensor_that_owns_nothing(cuda, extension):
    x = cuda.array(shape=(2, 3), speaks="exchange", strides="F")
    mine = cuda.stream("mine")
    array, it = extension.begin(x, mine)
    tensor = DLTensor()
    extension.table.tensor(array, ctypes.addressof(tensor))
    assert (tensor.shape[:2], tensor.strides[:2]) == (it.shape[:2], it.strides[:2])
    for name in ("data", "device_type", "device_id", "ndim", "code", "bits", "lanes"):
        assert getattr(tensor, name) == getattr(it, name), name
    assert tensor.byte_offset == 0
    extension.end(array, mine)
