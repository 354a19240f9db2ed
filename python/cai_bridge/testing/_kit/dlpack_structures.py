"""DLPack 1.3's C structures: the layouts of ``dlpack.h``, by `ctypes` alone.

The small structures in them (version, device and element type) are flattened into their fields.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

READ_ONLY, IS_COPIED, IS_SUBBYTE_TYPE_PADDED = 1, 2, 4
MAX_NDIM = 64
"""The most dimensions that are read. A greater count than NumPy's limit is taken for garbage."""


class DLTensor(ctypes.Structure):
    """A tensor that is not owned: a pointer, a shape, strides and a type."""

    data: int | None
    device_type: int
    device_id: int
    ndim: int
    code: int
    bits: int
    lanes: int
    shape: Any
    strides: Any
    byte_offset: int
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    """An owned tensor, in the form that DLPack had before versions."""

    dl_tensor: DLTensor
    manager_ctx: int | None
    deleter: int | None
    _fields_ = (("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p))


class DLManagedTensorVersioned(ctypes.Structure):
    """An owned tensor, with a version and flags."""

    major: int
    minor: int
    manager_ctx: int | None
    deleter: int | None
    flags: int
    dl_tensor: DLTensor
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    )


Managed = DLManagedTensor | DLManagedTensorVersioned

# Called without the interpreter's lock, as a consumer may do: `ctypes` releases it for the call.
DELETER = ctypes.CFUNCTYPE(None, c_void_p)
