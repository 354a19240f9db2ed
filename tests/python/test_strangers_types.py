"""Types that only one protocol has: they go from it to itself as they came."""

from __future__ import annotations

import ctypes
from typing import Any

import capsules
import numpy as np
import pytest
import tvm_ffi
from fakes import each

from cai_bridge import convert, to_cai, to_dlpack

TEN = (1, 0)


def tensor(cuda: Any, row: Any, **fields: Any) -> tuple[Any, Any]:
    """A tensor of the row's type, over bytes that count up."""
    memory = cuda.array(np.arange(64, dtype=np.uint8) + 1)
    named = {key: row[key] for key in ("code", "bits", "lanes", "shape", "strides") if key in row}
    flags = capsules.IS_SUBBYTE_TYPE_PADDED if row.get("padded") else 0
    return memory, capsules.HandMade(memory.ptr, owner=memory, flags=flags, **named, **fields)


def described(capsule: Any) -> tuple[Any, ...]:
    found = capsules.read(capsule)
    padded = bool(found.flags & capsules.IS_SUBBYTE_TYPE_PADDED)
    return found.dtype, found.shape, found.strides, padded


@each("strangers", "dlpacks_alone")
def test_a_type_that_dlpack_alone_has_goes_on_as_it_came(row: Any, cuda: Any) -> None:
    _, x = tensor(cuda, row)
    capsule = x.capsule()
    said = described(capsule)
    view = to_dlpack(capsule)
    assert view.nbytes == row["bytes"]
    assert described(view.__dlpack__(max_version=TEN)) == said
    assert described(convert(view, "dlpack").__dlpack__(max_version=TEN)) == said
    assert f"bits={row['bits']}" in repr(view)
    assert view.shape == tuple(row["shape"])


@each("strangers", "dlpacks_alone")
def test_a_type_that_dlpack_alone_has_is_refused_where_the_other_protocol_comes_in(
    row: Any, cuda: Any
) -> None:
    _, x = tensor(cuda, row)
    capsule = x.capsule()
    message = rf"dtype: got DLDataType\(code={row['code']}, bits={row['bits']}, lanes="
    for refused in (
        lambda: to_cai(capsule),
        lambda: convert(capsule, "cai"),
        lambda: convert(capsule, "numpy"),
    ):
        with pytest.raises(BufferError, match=message):
            refused()
        assert (capsules.name_of(capsule), x.deleted) == ("dltensor_versioned", 0)
    view = to_dlpack(capsule)
    for name in ("typestr", "dtype"):
        with pytest.raises(BufferError, match=message):
            getattr(view, name)
    with pytest.raises(BufferError, match=message):
        to_cai(view)
    packed = not row.get("padded") and row["bits"] * row["lanes"] % 8
    for name in ("strides", "itemsize"):
        if packed:
            with pytest.raises(BufferError, match=message):
                getattr(view, name)
        else:
            assert getattr(view, name)


@each("strangers", "dlpacks_alone")
def test_a_type_that_dlpack_alone_has_is_copied_by_its_bytes(row: Any, cuda: Any) -> None:
    _, x = tensor(cuda, row)
    view = to_dlpack(x.capsule())
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


@each("strangers", "dlpacks_alone")
def test_tvm_ffi_gets_a_type_that_dlpack_alone_has(row: Any, cuda: Any) -> None:
    if "name" not in row:
        pytest.skip("tvm-ffi has no word for it")
    _, x = tensor(cuda, row)
    made = convert(x.capsule(), "tvm_ffi")
    assert isinstance(made, tvm_ffi.Tensor)
    assert str(made.dtype) == row["name"]
    assert tuple(made.shape) == tuple(row["shape"])


def test_padded_elements_are_not_handed_out_without_their_flag(cuda: Any) -> None:
    row = {"code": 17, "bits": 4, "lanes": 1, "shape": [4], "padded": True}
    view = to_dlpack(tensor(cuda, row)[1].capsule())
    with pytest.raises(BufferError, match="padded, and a consumer that asks for a legacy capsule"):
        view.__dlpack__()
    with pytest.raises(BufferError, match="padded, and a consumer that asks for a legacy capsule"):
        view.__dlpack__(copy=True)
    assert view.__dlpack__(max_version=TEN)
