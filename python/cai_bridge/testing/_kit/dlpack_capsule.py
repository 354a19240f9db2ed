"""Capsules of DLPack's structures: to read them, and to take them over.

Everything is read by `ctypes` alone, so the results do not depend on the code under test.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_void_p
from typing import Any

from .dlpack_fields import TensorFields, fields_of
from .dlpack_structures import (
    DELETER,
    DLManagedTensor,
    DLManagedTensorVersioned,
    Managed,
)


def python_call(name: str, result: Any, *arguments: Any) -> Any:
    """Make a function of Python's C API callable, with the lock held and its exceptions raised."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


new_capsule = python_call("PyCapsule_New", ctypes.py_object, c_void_p, c_char_p, c_void_p)
_name = python_call("PyCapsule_GetName", c_char_p, ctypes.py_object)
_pointer = python_call("PyCapsule_GetPointer", c_void_p, ctypes.py_object, c_char_p)
_rename = python_call("PyCapsule_SetName", c_int, ctypes.py_object, c_char_p)
_keep = python_call("Py_IncRef", None, ctypes.py_object)


def never_freed(kept: Any) -> Any:
    """Keep an object alive beyond the end of the interpreter, for C code that has its address."""
    _keep(kept)
    return kept


# A capsule borrows its name, and may outlive this module. So the names are never freed.
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
    """Return a capsule's name; None for a capsule without a name, and for any other object."""
    if not isinstance(capsule, Capsule):
        return None
    name: bytes | None = _name(capsule)
    return None if name is None else name.decode(errors="replace")


def capsule_pointer(capsule: object, name: str) -> int:
    """Return the address in a capsule of that name."""
    address: int = _pointer(capsule, name.encode())
    return address


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

    The consumer of a used capsule has its tensor, which must still be alive.

    Raises
    ------
    ValueError
        The object is no capsule, or the capsule has another name.
    BufferError
        The tensor is of another major version of DLPack.
    """
    name, struct = _struct_in(capsule)
    return fields_of(struct, name)


class Taken:
    """A managed tensor that its consumer owns.

    `delete` deletes the tensor; else it is deleted when this object is destroyed.

    Attributes
    ----------
    struct : ctypes.Structure
        The structure itself. It no longer exists once it was deleted.
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
        """The structure's fields, with the name of its capsule.

        Raises
        ------
        BufferError
            The tensor is of another major version of DLPack.
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
    """Consume a capsule as a good consumer does: rename it, and take its tensor.

    Raises
    ------
    ValueError
        The object is no capsule of DLPack, or the capsule was used already.
    """
    name, struct = _struct_in(capsule)
    if name.startswith("used_"):
        raise ValueError(f"capsule: got {name!r}; allowed: one that nobody has used")
    _rename(capsule, NAMES[f"used_{name}"])
    return Taken(struct, name)
