"""A DLPack capsule's fields, read by `ctypes` without consuming it, and stubs that expose exactly
one dunder.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


@dataclass(frozen=True)
class Capsule:
    """What a capsule says. `strides` are in elements, None where the pointer is NULL."""

    name: str
    version: tuple[int, int] | None
    readonly: bool
    ptr: int
    device: tuple[int, int]
    dtype: tuple[int, int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    byte_offset: int


def name_of(capsule: Any) -> str:
    """`dltensor`, `dltensor_versioned`, or their `used_` names."""
    get = ctypes.pythonapi.PyCapsule_GetName
    get.argtypes, get.restype = [ctypes.py_object], ctypes.c_char_p
    return (get(capsule) or b"").decode()


def read(capsule: Any) -> Capsule:
    name = name_of(capsule)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    address = get(capsule, name.encode())
    versioned = Versioned.from_address(address) if name.endswith("_versioned") else None
    tensor = versioned.tensor if versioned else Legacy.from_address(address).tensor
    return Capsule(
        name=name,
        version=(versioned.major, versioned.minor) if versioned else None,
        readonly=bool(versioned and versioned.flags & 1),
        ptr=tensor.data or 0,
        device=(tensor.device_type, tensor.device_id),
        dtype=(tensor.code, tensor.bits, tensor.lanes),
        shape=tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else (),
        strides=tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None,
        byte_offset=tensor.byte_offset,
    )


class OnlyCai:
    """Exposes `__cuda_array_interface__` and nothing else; keeps what owns the memory."""

    def __init__(self, interface: dict[str, Any], keep: object = None) -> None:
        self.__cuda_array_interface__ = interface
        self._keep = keep


class OnlyDlpack:
    """Exposes another object's `__dlpack__` pair and nothing else; notes what it was asked for."""

    def __init__(self, source: Any, refuses: tuple[int, ...] = ()) -> None:
        self._source = source
        self._refuses = refuses
        self.asked: list[dict[str, Any]] = []

    def __dlpack__(self, **wishes: Any) -> Any:
        self.asked.append(wishes)
        if wishes.get("stream") in self._refuses:
            raise RuntimeError(f"stream {wishes['stream']} is not supported here")
        return self._source.__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._source.__dlpack_device__()
        return int(kind), int(index)


def interface(
    ptr: int, shape: tuple[int, ...], typestr: str = "<f4", **fields: Any
) -> dict[str, Any]:
    """A v3 CAI dict with nothing pending, with `fields` added or replaced."""
    return {
        "shape": shape,
        "typestr": typestr,
        "data": (ptr, False),
        "version": 3,
        "strides": None,
        **fields,
    }
