"""Types that only one protocol has: they go from it to itself as they came."""

import ctypes

import capsules
import numpy as np
import pytest
import tvm_ffi
from contract import ALLOWED, each
from fakes import only_cai
from specification import as_consumer, as_producer

from cai_bridge import convert, from_cai, to_cai, to_dlpack

TEN = (1, 0)


def tensor(cuda, row):
    """A tensor of the row's type, over bytes that count up."""
    memory = cuda.array(np.arange(64, dtype=np.uint8) + 1)
    named = {key: row[key] for key in ("code", "bits", "lanes", "shape", "strides") if key in row}
    flags = capsules.IS_SUBBYTE_TYPE_PADDED if row.get("padded") else 0
    return capsules.HandMade(memory.ptr, owner=memory, flags=flags, **named)


def described(capsule):
    found = capsules.read(capsule)
    padded = bool(found.flags & capsules.IS_SUBBYTE_TYPE_PADDED)
    return found.dtype, found.shape, found.strides, padded


@each("strangers", "dlpacks_alone")
def test_a_type_that_dlpack_alone_has_goes_on_as_it_came(row, cuda):
    capsule = tensor(cuda, row).capsule()
    said = described(capsule)
    view = to_dlpack(capsule)
    assert view.nbytes == row["bytes"]
    assert described(view.__dlpack__(max_version=TEN)) == said
    assert described(convert(view, "dlpack").__dlpack__(max_version=TEN)) == said
    assert f"bits={row['bits']}" in repr(view)
    assert view.shape == tuple(row["shape"])
    if "name" in row:  # tvm-ffi has a word for it
        made = convert(view, "tvm_ffi")
        assert isinstance(made, tvm_ffi.Tensor)
        assert (str(made.dtype), tuple(made.shape)) == (row["name"], view.shape)


@each("strangers", "dlpacks_alone")
def test_a_type_that_dlpack_alone_has_is_refused_where_the_other_protocol_comes_in(row, cuda):
    x = tensor(cuda, row)
    capsule = x.capsule()
    message = rf"dtype: got DLDataType\(code={row['code']}, bits={row['bits']}, lanes="
    for refusing in (to_cai, lambda x: convert(x, "cai"), lambda x: convert(x, "numpy")):
        with pytest.raises(BufferError, match=message):
            refusing(capsule)
        assert (capsules.name_of(capsule), x.deleted) == ("dltensor_versioned", 0)
    view = to_dlpack(capsule)
    for refusing in (to_cai, lambda view: view.typestr, lambda view: view.dtype):
        with pytest.raises(BufferError, match=message):
            refusing(view)
    packed = not row.get("padded") and row["bits"] * row["lanes"] % 8
    for name in ("strides", "itemsize"):
        if packed:
            with pytest.raises(BufferError, match=message):
                getattr(view, name)
        else:
            assert getattr(view, name)


@each("strangers", "dlpacks_alone")
def test_a_type_that_dlpack_alone_has_is_copied_by_its_bytes(row, cuda):
    view = to_dlpack(tensor(cuda, row).capsule())
    wishes = {"max_version": TEN, "copy": True, "dl_device": (1, 0)}
    if row.get("gaps"):
        for device in ((1, 0), (2, 0)):
            with pytest.raises(BufferError, match="to be copied; allowed: elements of whole bytes"):
                view.__dlpack__(**{**wishes, "dl_device": device})
        return
    copy = view.__dlpack__(**wishes)
    dtype, shape, _, padded = described(copy)
    assert dtype == (row["code"], row["bits"], row["lanes"])
    assert (shape, padded) == (tuple(row["shape"]), row.get("padded", False))
    again = to_dlpack(view.__dlpack__(max_version=TEN, copy=True))
    assert again.nbytes == row["bytes"]
    if "strides" not in row and row["bytes"]:
        data = ctypes.string_at(capsules.read(copy).ptr, row["bytes"])
        assert list(data) == list(range(1, row["bytes"] + 1))


def test_padded_elements_are_not_handed_out_without_their_flag(cuda):
    row = {"code": 17, "bits": 4, "lanes": 1, "shape": [4], "padded": True}
    view = to_dlpack(tensor(cuda, row).capsule())
    for wishes in ({}, {"copy": True}):
        with pytest.raises(BufferError, match="padded, and a consumer that asks for a legacy"):
            view.__dlpack__(**wishes)
    assert view.__dlpack__(max_version=TEN)


def by_dict(cuda, row):
    """An array of the row's type that speaks by a dict, and the same as NumPy has it."""
    host = np.arange(600, dtype=np.uint8) % 97
    memory = cuda.array(host, speaks=())
    start, entries = row.get("start", 0), {"strides": None, **row["set"]}
    named = {key: tuple(value) for key, value in entries.items() if isinstance(value, list)}
    if "descr" in row:
        named["descr"] = eval(row["descr"])
    entries |= named
    dtype = np.dtype(named.get("descr", entries["typestr"]))
    same = np.ndarray(entries["shape"], dtype, host.data, start, entries["strides"])
    return only_cai(memory, data=(memory.ptr + start, False), **entries), same


@as_consumer("descr", "descr-numpy")
@as_producer("descr", "descr-numpy")
@each("strangers", "cais_alone")
def test_a_type_that_cai_alone_has_goes_on_as_it_came(row, cuda):
    x, same = by_dict(cuda, row)
    given = x.__cuda_array_interface__
    view = to_cai(x)
    mine = cuda.stream("mine")
    for made in (view, to_cai(view), to_cai(x, stream=mine), convert(x, "cai")):
        said = made.__cuda_array_interface__
        for entry in ("shape", "typestr", "strides"):
            assert said[entry] == given[entry], entry
        assert said.get("descr") == given.get("descr")
        assert said["data"][0] == (given["data"][0] if same.size else 0)
        assert said["version"] == 3
        assert made.__cuda_array_interface__ == said
    assert (view.shape, view.typestr) == (same.shape, row["set"]["typestr"])
    assert view.dtype == same.dtype
    assert (view.ndim, view.size, view.nbytes) == (same.ndim, same.size, same.nbytes)
    assert view.itemsize == row["bytes"]
    assert row["set"]["typestr"] in repr(view)
    if "strides" in row["set"]:
        assert view.strides == same.strides
    assert to_cai(x, readonly=True).__cuda_array_interface__["data"][1]
    view.release()
    assert (view.typestr, view.dtype) == (row["set"]["typestr"], same.dtype)


@each("strangers", "cais_alone")
def test_a_type_that_cai_alone_has_is_refused_where_dlpack_comes_in(row, cuda):
    x, _ = by_dict(cuda, row)
    view = to_cai(x)
    messages = set()
    for given in (x, view, to_cai(view)):
        for door in (to_dlpack, from_cai, lambda x: convert(x, "tvm_ffi")):
            with pytest.raises(BufferError) as refused:
                door(given)
            messages.add(str(refused.value))
            assert to_cai(given).__cuda_array_interface__
    (message,) = messages
    assert message.endswith(f"; allowed: {ALLOWED[row['refused']]}")


@each("strangers", "cais_alone")
def test_numpy_gets_a_type_that_cai_alone_has(row, cuda):
    x, same = by_dict(cuda, row)
    for given in (x, to_cai(x)):
        made = convert(given, "numpy")
        assert (made.dtype, made.shape) == (same.dtype, same.shape)
        assert made.tobytes() == same.tobytes()
        assert made.flags.owndata


def test_work_on_a_type_that_cai_alone_has_is_ordered(cuda):
    theirs, mine = cuda.stream("theirs", blocking=False), cuda.stream("mine", blocking=False)
    memory = cuda.array([0.0, 0.0, 0.0, 0.0], speaks="cai3", stream=theirs)
    theirs.fill(memory, 7.0)
    said = memory.__cuda_array_interface__
    records = only_cai(memory, **{**said, "typestr": "|V8", "shape": (2,)})
    view = to_cai(records, stream=mine)
    assert view.__cuda_array_interface__["stream"] == mine.handle
    seen = mine.read(memory)
    cuda.synchronize()
    assert seen.value == [7.0] * 4
    assert not cuda.reports


@as_consumer("typestr-string", "typestr")
@each("strangers", "written")
def test_a_typestr_that_numpy_reads_is_read(row, cuda):
    memory = cuda.array(np.arange(64, dtype=np.uint8) % 2, speaks=())
    assert np.dtype(row["typestr"]).str == row["means"], "NumPy's word"
    x = only_cai(memory, typestr=row["typestr"], shape=(2,))
    assert to_cai(x).typestr == row["means"] == to_cai(x).__cuda_array_interface__["typestr"]
    assert convert(x, "numpy").dtype == np.dtype(row["means"])
    if not row.get("alone"):
        assert from_cai(x).typestr == row["means"]


def recorded(cuda, dtype, says):
    memory = cuda.array(np.arange(3 * dtype.itemsize, dtype=np.uint8) % 97, speaks=())
    entries = {"typestr": dtype.str, "shape": (3,)}
    if "descr" in says:
        entries["descr"] = dtype.descr
    x = only_cai(memory, **entries)
    if "dtype" in says:
        x.dtype = dtype
    return x


@pytest.mark.parametrize("says", ["descr", "dtype", "descr and dtype"])
@each("strangers", "records")
def test_records_come_back_exactly_from_wherever_their_type_is_said(row, says, cuda):
    if row.get("own") and "descr" in says:
        return  # NumPy itself has no descr for it.
    dtype = eval(row["dtype"])
    x = recorded(cuda, dtype, says)
    view = to_cai(x)
    for made in (view, to_cai(view), convert(x, "cai"), convert([x], "cai")[0]):
        assert made.dtype == dtype
        assert made.dtype.fields == dtype.fields
        assert "dtype" not in made.__cuda_array_interface__
    host = convert(x, "numpy")
    assert (host.dtype, host.dtype.names) == (dtype, dtype.names)
    if "dtype" in says:
        assert view.dtype.isalignedstruct == dtype.isalignedstruct


def test_a_descr_that_is_not_the_dtypes_is_refused(cuda):
    x = recorded(cuda, np.dtype([("a", "<i4"), ("b", "<f4")]), "descr")
    x.dtype = np.dtype([("a", "<f4"), ("b", "<i4")])
    with pytest.raises(
        ValueError, match=r"^dtype: got .* beside the typestr .*; allowed: one type"
    ):
        to_cai(x)


@pytest.mark.parametrize(
    ("typestr", "offset", "strides", "refused"),
    [
        *((one, 2, None, True) for one in ("<f4", ">f4", "<U2")),
        *((one, 4, None, True) for one in ("<f8", "<c8", "<M8[ns]")),
        ("<c16", 8, None, True),
        ("<i2", 1, None, True),
        *((one, 1, None, False) for one in ("|S3", "|V6", "|u1")),
        ("<f4", 4, None, False),
        ("<f4", 0, (6,), True),
        ("<M8[us]", 0, (12,), True),
        ("<i2", 6, (-3,), True),
        ("|S2", 6, (-3,), False),
    ],
)
def test_an_address_that_a_gpu_cannot_read_is_refused_and_numpy_gets_a_copy(
    typestr, offset, strides, refused, cuda
):
    host = np.arange(64, dtype=np.uint8)
    memory = cuda.array(host, speaks=())
    entries = {"typestr": typestr, "shape": (2,), "data": (memory.ptr + offset, False)}
    x = only_cai(memory, strides=strides, **entries)
    same = np.ndarray((2,), typestr, host.data, offset, strides)
    assert convert(x, "numpy").tobytes() == same.tobytes()
    for door in (to_cai, lambda x: convert(x, "cai"), lambda x: convert([x], "cai")[0]):
        if refused:
            with pytest.raises(ValueError, match=r"(data|strides\[0\]): got .* multiples of"):
                door(x)
        else:
            assert door(x).ptr == memory.ptr + offset


@pytest.mark.parametrize("offset", [1, 2])
def test_a_tensor_at_an_address_that_a_gpu_cannot_read_is_refused(offset, cuda):
    memory = cuda.array(shape=16, speaks=())
    capsule = capsules.HandMade(memory.ptr, owner=memory, byte_offset=offset).capsule()
    for door in (to_cai, to_dlpack, lambda x: convert(x, "cai")):
        with pytest.raises(ValueError, match=r"^data: got .* multiples of 4; allowed:"):
            door(capsule)
