"""Managed tensors made by hand, with any value in any field."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable, Iterable, Sequence
from ctypes import c_char_p, c_int, c_int64, c_void_p
from typing import Any
from weakref import WeakValueDictionary

from cai_bridge.testing._values import compact_strides

from .dlpack_capsule import NAMES, never_freed, new_capsule, python_call
from .dlpack_structures import DELETER, DLManagedTensor, DLManagedTensorVersioned, Managed

strays: list[int] = []
"""Addresses for which a deleter was called while no tensor was there."""

_given: dict[int, ManagedTensor] = {}
"""The structures that consumers must delete, by address. Their memory stays until then."""
_known: WeakValueDictionary[int, ManagedTensor] = WeakValueDictionary()
"""All living tensors: a second call of a deleter is counted while its tensor is alive."""


def _callbacks() -> tuple[Any, Any]:
    """Make the deleter and the capsules' destructor.

    Both may be called when the names of this module are gone, so they use none of them.
    """
    given, known, lost = _given, _known, strays
    # A dying capsule has no references left, and `py_object` would count them up and down.
    is_valid = python_call("PyCapsule_IsValid", c_int, c_void_p, c_char_p)
    pointer = python_call("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)

    def delete(address: int) -> None:
        tensor = given.pop(address, None) or known.get(address)
        if tensor is None:
            lost.append(address)
        else:
            tensor.deleted += 1
            tensor._owner = None

    def destroy(capsule: int) -> None:
        for name in (b"dltensor", b"dltensor_versioned"):
            if is_valid(capsule, name):
                delete(pointer(capsule, name))

    return never_freed(DELETER(delete)), never_freed(DELETER(destroy))


_delete, _destroy = _callbacks()


def _address_of(function: Callable[..., Any]) -> int:
    return ctypes.cast(function, c_void_p).value or 0  # type: ignore[arg-type]


@atexit.register
def _leak() -> None:
    """Leak each tensor that is not deleted by the end of the interpreter.

    No Python code may be called once Python is gone. A consumer may have a tensor for longer, so
    the tensor keeps its memory. Its deleter becomes a function that does nothing and needs neither
    the interpreter nor its lock.
    """
    nothing = _address_of(ctypes.pythonapi.Py_IsInitialized)
    for tensor in list(_given.values()):
        never_freed(tensor)
        if tensor.struct.deleter:
            tensor.struct.deleter = nothing


class ManagedTensor:
    """A managed tensor made by hand, with any value in any field.

    Once handed out, the tensor and its `owner` live until its deleter is called, from any thread
    and perhaps without the interpreter's lock. A tensor that is not deleted by the end of the
    interpreter is leaked.

    Parameters
    ----------
    ptr : int
        The data pointer.
    form : str
        ``"versioned"`` (1.3), ``"legacy"``, or a version such as ``"1.1"``.
    null : iterable of str
        Which of ``data``, ``shape``, ``strides`` and ``deleter`` are NULL.
    shape : sequence of int
        The extents.
    strides : sequence of int, optional
        The strides in elements; by default those of a C-contiguous array.
    dtype : tuple of int
        ``(code, bits, lanes)``.
    device : tuple of int
        ``(device_type, device_id)``.
    byte_offset : int
        The bytes from `ptr` to the first item.
    flags : int
        The flags. A legacy tensor has no place for them.
    owner : object
        An object to keep alive until the deleter is called.
    **fields : int
        Further fields of `DLTensor`, such as ``ndim``.

    Attributes
    ----------
    struct : ctypes.Structure
        The structure itself.
    deleted : int
        How often the deleter was called.
    handed_out : bool
        Whether a consumer must delete the tensor, or has done so.
    """

    def __init__(
        self,
        ptr: int,
        *,
        form: str = "versioned",
        null: Iterable[str] = (),
        shape: Sequence[int] = (4,),
        strides: Sequence[int] | None = None,
        dtype: tuple[int, int, int] = (2, 32, 1),
        device: tuple[int, int] = (2, 0),
        byte_offset: int = 0,
        flags: int = 0,
        owner: object = None,
        **fields: int,
    ) -> None:
        self.deleted = 0
        self.handed_out = False
        self._owner = owner
        self.struct = _struct(form, flags)
        tensor, null = self.struct.dl_tensor, set(null)
        tensor.data = None if "data" in null else ptr
        tensor.device_type, tensor.device_id = device
        tensor.code, tensor.bits, tensor.lanes = dtype
        tensor.ndim, tensor.byte_offset = len(shape), byte_offset
        strides = compact_strides(tuple(shape), 1) if strides is None else strides
        for name, values in (("shape", shape), ("strides", strides)):
            if name not in null and values:
                setattr(tensor, name, (c_int64 * len(values))(*values))
        for name, value in fields.items():
            if not hasattr(tensor, name):
                raise TypeError(f"{name}: got a field that DLTensor does not have")
            setattr(tensor, name, value)
        self.struct.deleter = None if "deleter" in null else _address_of(_delete)
        _known[self.address] = self

    @property
    def legacy(self) -> bool:
        """Whether the tensor is of the form without a version."""
        return isinstance(self.struct, DLManagedTensor)

    @property
    def address(self) -> int:
        """The address of the structure."""
        return ctypes.addressof(self.struct)

    def hand_out(self) -> int:
        """Return the structure away, and return its address. The caller must delete the tensor."""
        if self.handed_out:
            raise ValueError("tensor: got one that was handed out; allowed: one owner each")
        self.handed_out = True
        _given[self.address] = self
        return self.address

    def capsule(self, *, destructor: bool = True) -> Any:
        """Hand the tensor out in a capsule, which deletes the tensor unless it is consumed.

        A destructor in Python loses an exception that is pending. Without a destructor the caller
        must delete the tensor when the capsule is gone.
        """
        name = NAMES["dltensor" if self.legacy else "dltensor_versioned"]
        wanted = destructor and self.struct.deleter
        destroy = ctypes.cast(_destroy, c_void_p) if wanted else None
        return new_capsule(self.hand_out(), name, destroy)


def _struct(form: str, flags: int) -> Managed:
    if form == "legacy":
        if flags:
            raise ValueError(f"flags: got {flags}; allowed: 0: a legacy tensor has no flags")
        return DLManagedTensor()
    major, minor = map(int, ("1.3" if form == "versioned" else form).split("."))
    return DLManagedTensorVersioned(major=major, minor=minor, flags=flags)
