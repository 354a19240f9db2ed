"""DLPack structures made by hand with `ctypes`, so that every field can be hostile, and read back.

A `HandMade` tensor counts how often its deleter runs. `conftest.py` asserts after each test that no
deleter ran twice, and that whatever was handed out was deleted.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass

READ_ONLY, IS_COPIED, IS_SUBBYTE_TYPE_PADDED = 1, 2, 4


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_uint32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", c_void_p), ("deleter", c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", DLTensor),
    ]


assert (ctypes.sizeof(DLTensor), ctypes.sizeof(Versioned)) == (48, 80)


def _python(name, result, *arguments):
    """A function of Python's C API with a prototype of its own; the lock is held meanwhile."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _python("PyCapsule_New", ctypes.py_object, c_void_p, c_char_p, c_void_p)
_name = _python("PyCapsule_GetName", c_char_p, ctypes.py_object)
_pointer = _python("PyCapsule_GetPointer", c_void_p, ctypes.py_object, c_char_p)
_rename = _python("PyCapsule_SetName", c_int, ctypes.py_object, c_char_p)
# A destructor is given a capsule without references, which `py_object` would count up and down.
_is_valid_dying = _python("PyCapsule_IsValid", c_int, c_void_p, c_char_p)
_pointer_dying = _python("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)

# Names that capsules have are borrowed by them, so they live here.
NAMES = {
    name: c_char_p(name.encode())
    for name in (
        "dltensor",
        "dltensor_versioned",
        "used_dltensor",
        "used_dltensor_versioned",
        "dlpack_exchange_api",
        "something else",
    )
}
# Called without the lock, as consumers may; `ctypes` lets go of it for the length of the call.
_DELETER = ctypes.CFUNCTYPE(None, c_void_p)
_DESTRUCTOR = ctypes.CFUNCTYPE(None, c_void_p)

made: dict[int, HandMade] = {}
"""The tensors that were made in this test, by the address of their structure."""
leaked: dict[int, HandMade] = {}
"""Those of tests before that somebody may still hold: the frames of one that failed, for one."""
ghosts: list[int] = []
"""Addresses that a deleter was called for and that are of no tensor, or of one deleted before."""


@_DELETER
def _delete(address):
    tensor = made.get(address) or leaked.get(address)
    if tensor is None or tensor.deleted:
        ghosts.append(address)
    if tensor is not None:
        tensor.deleted += 1


@_DESTRUCTOR
def _destroy(capsule):
    for form in (b"dltensor", b"dltensor_versioned"):
        if _is_valid_dying(capsule, form):
            _delete(_pointer_dying(capsule, form))


def forget():
    """Begin anew, for the next test."""
    leaked.update((at, tensor) for at, tensor in made.items() if tensor.handed_out)
    for at in [at for at, tensor in leaked.items() if tensor.deleted]:
        del leaked[at]
    made.clear()
    ghosts.clear()


class HandMade:
    """A managed tensor, float32 of shape (4,) on (2, 0) but for the `fields` that are given.

    Parameters
    ----------
    ptr : int
        The data pointer.
    form : str
        ``"versioned"`` (1.3), ``"legacy"``, or a version such as ``"1.1"``.
    null : iterable of str
        Which of ``data``, ``shape``, ``strides`` and ``deleter`` are NULL.
    """

    def __init__(self, ptr, *, form="versioned", null=(), shape=(4,), strides=None, **fields):
        self.deleted = 0
        self.handed_out = False
        self.legacy = form == "legacy"
        self.struct = Legacy() if self.legacy else Versioned()
        if not self.legacy:
            version = "1.3" if form == "versioned" else form
            self.struct.major, self.struct.minor = map(int, version.split("."))
            self.struct.flags = fields.pop("flags", 0)
        if strides is None:
            strides = [1] * len(shape)
            for axis in range(len(shape) - 1, 0, -1):
                strides[axis - 1] = strides[axis] * max(shape[axis], 1)
        tensor = self.struct.tensor
        tensor.data = 0 if "data" in null else ptr
        tensor.device_type, tensor.device_id = 2, 0
        tensor.code, tensor.bits, tensor.lanes = 2, 32, 1
        tensor.ndim = len(shape)
        for name, values in (("shape", shape), ("strides", strides)):
            if name not in null and values:
                setattr(tensor, name, (c_int64 * len(values))(*values))
        for name, value in fields.items():
            setattr(tensor, name, value)
        self.struct.deleter = 0 if "deleter" in null else ctypes.cast(_delete, c_void_p).value
        self.has_deleter = "deleter" not in null
        made[self.address] = self

    @property
    def address(self):
        return ctypes.addressof(self.struct)

    def hand_out(self):
        """Give the structure away: from here on somebody else has to delete it."""
        assert not self.handed_out, "a managed tensor has one owner"
        self.handed_out = True
        return self.address

    def capsule(self):
        """A capsule that deletes the tensor unless it is consumed."""
        name = NAMES["dltensor" if self.legacy else "dltensor_versioned"]
        destroy = ctypes.cast(_destroy, c_void_p) if self.has_deleter else None
        return _new(self.hand_out(), name, destroy)


def capsule_of(address, name):
    """A capsule of any name or none, without a destructor."""
    return _new(address, NAMES[name] if name else None, None)


def name_of(capsule):
    return _name(capsule).decode()


@dataclass(frozen=True)
class Seen:
    """What a structure says. `strides` are in elements, None where the pointer is NULL."""

    version: tuple[int, int] | None
    flags: int | None
    ptr: int
    device: tuple[int, int]
    dtype: tuple[int, int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    byte_offset: int


def look(struct):
    """What a structure says."""
    versioned = isinstance(struct, Versioned)
    tensor = struct if isinstance(struct, DLTensor) else struct.tensor
    ndim = tensor.ndim
    return Seen(
        version=(struct.major, struct.minor) if versioned else None,
        flags=struct.flags if versioned else None,
        ptr=tensor.data or 0,
        device=(tensor.device_type, tensor.device_id),
        dtype=(tensor.code, tensor.bits, tensor.lanes),
        shape=tuple(tensor.shape[:ndim]) if ndim else (),
        strides=() if not ndim else tuple(tensor.strides[:ndim]) if tensor.strides else None,
        byte_offset=tensor.byte_offset,
    )


def _struct(capsule):
    name = name_of(capsule)
    kind = Versioned if name.endswith("_versioned") else Legacy
    return kind.from_address(_pointer(capsule, name.encode()))


def read(capsule):
    """What a capsule says, used or not, which stays as it is."""
    return look(_struct(capsule))


class Taken:
    """A managed tensor that somebody gave away, as a consumer has it."""

    def __init__(self, struct):
        self.struct = struct

    @property
    def seen(self):
        return look(self.struct)

    def delete(self):
        """Call the deleter, without the lock."""
        if self.struct.deleter:
            _DELETER(self.struct.deleter)(ctypes.addressof(self.struct))


def take(capsule):
    """Consume a capsule, as a good consumer does."""
    struct, name = _struct(capsule), name_of(capsule)
    assert name in ("dltensor", "dltensor_versioned"), name
    assert _rename(capsule, NAMES[f"used_{name}"]) == 0
    return Taken(struct)
