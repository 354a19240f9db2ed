"""DLPack 1.3's C structures, and capsules of them: what they say, and taking them over.

The layouts are those of ``dlpack.h`` 1.3, with the small structures within them (version, device
and element type) written out. Everything is read by `ctypes` alone, so that what is found does not
depend on the code under test.
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
from typing import Any

READ_ONLY, IS_COPIED, IS_SUBBYTE_TYPE_PADDED = 1, 2, 4
MAX_NDIM = 64
"""The most dimensions that are read: a count beyond NumPy's limit is taken for garbage."""


class DLTensor(ctypes.Structure):
    """Memory, and the array in it; owns nothing."""

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
    """A tensor that is owned, in the form before versions."""

    dl_tensor: DLTensor
    manager_ctx: int | None
    deleter: int | None
    _fields_ = (("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p))


class DLManagedTensorVersioned(ctypes.Structure):
    """A tensor that is owned, with a version and flags."""

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

# Called without the interpreter's lock, as consumers may: `ctypes` lets go of it for the call.
DELETER = ctypes.CFUNCTYPE(None, c_void_p)


def python_call(name: str, result: Any, *arguments: Any) -> Any:
    """Make a function of Python's C API callable, with the lock held and its exceptions raised."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


new_capsule = python_call("PyCapsule_New", ctypes.py_object, c_void_p, c_char_p, c_void_p)
_name = python_call("PyCapsule_GetName", c_char_p, ctypes.py_object)
_pointer = python_call("PyCapsule_GetPointer", c_void_p, ctypes.py_object, c_char_p)
_rename = python_call("PyCapsule_SetName", c_int, ctypes.py_object, c_char_p)
_keep = python_call("Py_IncRef", None, ctypes.py_object)


def never_freed(kept: Any) -> Any:
    """Keep an object beyond the end of the interpreter, for those who have its address."""
    _keep(kept)
    return kept


# A capsule borrows its name, and may outlive this module.
NAMES = {
    name: never_freed(c_char_p(never_freed(name.encode())))
    for name in (
        "dltensor",
        "dltensor_versioned",
        "used_dltensor",
        "used_dltensor_versioned",
        "dlpack_exchange_api",
    )
}

Capsule: type = type(new_capsule(1, None, None))
"""The type of capsules, which has a name only since Python 3.13."""


def capsule_name(capsule: object) -> str | None:
    """Tell a capsule's name; None for a capsule without one, and for what is no capsule."""
    if not isinstance(capsule, Capsule):
        return None
    name: bytes | None = _name(capsule)
    return None if name is None else name.decode(errors="replace")


def capsule_pointer(capsule: object, name: str) -> int:
    """Tell the address in a capsule of that name."""
    address: int = _pointer(capsule, name.encode())
    return address


@dataclass(frozen=True)
class TensorFields:
    """What a DLPack structure says, field by field.

    Attributes
    ----------
    name : str or None
        The name of the capsule that it was in; None for a tensor without one.
    version : tuple of int or None
        ``(major, minor)``; None where the form has no version.
    flags : int or None
        The bits of `READ_ONLY`, `IS_COPIED` and `IS_SUBBYTE_TYPE_PADDED`; None where the form has
        no flags.
    data : int
        The address in ``data``; 0 for NULL. The first item is at `ptr`.
    device : tuple of int
        ``(device_type, device_id)``.
    dtype : tuple of int
        ``(code, bits, lanes)``.
    ndim : int
        The number of dimensions, as it is said.
    shape : tuple of int or None
        The extents; None where they are NULL, or `ndim` is negative or beyond 64.
    strides : tuple of int or None
        The strides in elements; None where they are NULL, as shape.
    byte_offset : int
        The bytes from `data` to the first item.
    has_deleter : bool
        Whether there is a deleter: a managed tensor may have none.
    """

    name: str | None
    version: tuple[int, int] | None
    flags: int | None
    data: int
    device: tuple[int, int]
    dtype: tuple[int, int, int]
    ndim: int
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    byte_offset: int
    has_deleter: bool

    @property
    def ptr(self) -> int:
        """The address of the first item."""
        return self.data + self.byte_offset

    @property
    def readonly(self) -> bool | None:
        """Whether the memory is read-only; None where the form cannot say."""
        return None if self.flags is None else bool(self.flags & READ_ONLY)


def _integers(pointer: Any, ndim: int) -> tuple[int, ...] | None:
    if ndim == 0:
        return ()
    if not pointer or not 0 < ndim <= MAX_NDIM:
        return None
    return tuple(pointer[:ndim])


def fields_of(struct: DLTensor | Managed, name: str | None = None) -> TensorFields:
    """Read a structure, which must be alive.

    Raises
    ------
    BufferError
        The structure is of another major version, which may have laid the tensor out in another
        way: only its version and its deleter may be touched.
    """
    versioned = struct if isinstance(struct, DLManagedTensorVersioned) else None
    if versioned and versioned.major != 1:
        raise BufferError(f"version: got {versioned.major}.{versioned.minor}; allowed: 1.x")
    tensor = struct if isinstance(struct, DLTensor) else struct.dl_tensor
    return TensorFields(
        name=name,
        version=(versioned.major, versioned.minor) if versioned else None,
        flags=versioned.flags if versioned else None,
        data=tensor.data or 0,
        device=(tensor.device_type, tensor.device_id),
        dtype=(tensor.code, tensor.bits, tensor.lanes),
        ndim=tensor.ndim,
        shape=_integers(tensor.shape, tensor.ndim),
        strides=_integers(tensor.strides, tensor.ndim),
        byte_offset=tensor.byte_offset,
        has_deleter=not isinstance(struct, DLTensor) and bool(struct.deleter),
    )


def _struct_in(capsule: object) -> tuple[str, Managed]:
    """Find the structure in a capsule of one of DLPack's four names."""
    name = capsule_name(capsule)
    if name is None or name.removeprefix("used_") not in {"dltensor", "dltensor_versioned"}:
        what = type(capsule).__name__ if name is None else repr(name)
        raise ValueError(f"capsule: got {what}; allowed: one of dltensor or dltensor_versioned")
    kind = DLManagedTensorVersioned if name.endswith("_versioned") else DLManagedTensor
    return name, kind.from_address(capsule_pointer(capsule, name))


def read_capsule(capsule: object) -> TensorFields:
    """Read a capsule, used or not, without consuming it.

    The tensor of a used one belongs to its consumer, and has to be alive still.

    Raises
    ------
    ValueError
        It is no capsule, or has another name.
    BufferError
        The tensor is of another major version of DLPack.
    """
    name, struct = _struct_in(capsule)
    return fields_of(struct, name)


class Taken:
    """A managed tensor that a producer gave away, as its consumer has it.

    It is deleted by `delete`, or at the latest when this object goes.

    Attributes
    ----------
    struct : ctypes.Structure
        The structure itself, which is gone once it was deleted.
    """

    def __init__(self, struct: Managed, name: str | None = None) -> None:
        self.struct = struct
        self._address = ctypes.addressof(struct)
        self._delete = DELETER(struct.deleter) if struct.deleter else None
        self._refused: str | None = None
        try:
            self._fields = fields_of(struct, name)
        except BufferError as other_version:
            self._refused = str(other_version)

    @property
    def fields(self) -> TensorFields:
        """What it says; the name is the one that its capsule had.

        Raises
        ------
        BufferError
            It is of another major version of DLPack.
        """
        if self._refused is not None:
            raise BufferError(self._refused)
        return self._fields

    def delete(self) -> None:
        """Call the deleter, without the interpreter's lock; a second time does nothing."""
        delete, self._delete = self._delete, None
        if delete is not None:
            delete(self._address)

    def give_away(self) -> int:
        """Return the structure's address: the caller must delete it from now on."""
        self._delete = None
        return self._address

    def __del__(self) -> None:
        self.delete()


def take(capsule: object) -> Taken:
    """Consume a capsule, as a good consumer does: it is renamed, and its tensor is the caller's.

    Raises
    ------
    ValueError
        It is no capsule of DLPack, or used already.
    """
    name, struct = _struct_in(capsule)
    if name.startswith("used_"):
        raise ValueError(f"capsule: got {name!r}; allowed: one that nobody has used")
    _rename(capsule, NAMES[f"used_{name}"])
    return Taken(struct, name)
