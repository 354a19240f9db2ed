"""The tables of DLPack's C exchange API that types have, called by `ctypes`."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int32, c_uint32, c_void_p
from typing import Any

from .dlpack_capsule import Taken, capsule_name, capsule_pointer
from .dlpack_fields import TensorFields, fields_of
from .dlpack_structures import DLManagedTensorVersioned, DLTensor

CAPSULE = "dlpack_exchange_api"

_OUT = ctypes.POINTER(c_void_p)
# Called with the lock held. `ctypes` raises the exceptions that the functions set.
_EXPORT = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, _OUT)
_BORROW = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
_STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, _OUT)
_SET_ERROR = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
_ALLOCATE = ctypes.PYFUNCTYPE(c_int, ctypes.POINTER(DLTensor), _OUT, c_void_p, _SET_ERROR)
_IMPORT = ctypes.PYFUNCTYPE(c_int, c_void_p, _OUT)
_let_go = ctypes.PYFUNCTYPE(None, c_void_p)(("Py_DecRef", ctypes.pythonapi))


class SilentError(ValueError):
    """A function of a table failed, and set no exception."""


class NullError(ValueError):
    """A function of a table returned NULL, and reported success."""


class DLPackExchangeAPI(ctypes.Structure):
    """The table. The fields of its header come first."""

    major: int
    minor: int
    prev_api: int | None
    managed_tensor_allocator: int | None
    managed_tensor_from_py_object_no_sync: int | None
    managed_tensor_to_py_object_no_sync: int | None
    dltensor_from_py_object_no_sync: int | None
    current_work_stream: int | None
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("prev_api", c_void_p),
        ("managed_tensor_allocator", c_void_p),
        ("managed_tensor_from_py_object_no_sync", c_void_p),
        ("managed_tensor_to_py_object_no_sync", c_void_p),
        ("dltensor_from_py_object_no_sync", c_void_p),
        ("current_work_stream", c_void_p),
    )


MANDATORY = (
    "managed_tensor_allocator",
    "managed_tensor_from_py_object_no_sync",
    "managed_tensor_to_py_object_no_sync",
    "current_work_stream",
)


class ExchangeTable:
    """The table of major version 1 that a type has.

    Methods raise what the table's functions raise.

    Attributes
    ----------
    kind : type
        The type that has the table. The table is for objects of this type.
    struct : DLPackExchangeAPI
        The table itself, which lives as long as the process.
    """

    def __init__(self, kind: type, struct: DLPackExchangeAPI) -> None:
        self.kind = kind
        self.struct = struct

    @property
    def version(self) -> tuple[int, int]:
        """``(major, minor)``."""
        return self.struct.major, self.struct.minor

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of entries that are NULL though they must not be."""
        return tuple(name for name in MANDATORY if not getattr(self.struct, name))

    @property
    def can_borrow(self) -> bool:
        """Whether the table can lend tensors; this is the only entry that may be NULL."""
        return bool(self.struct.dltensor_from_py_object_no_sync)

    def borrow(self, x: Any) -> TensorFields:
        """Read the tensor that ``dltensor_from_py_object_no_sync`` lends.

        The producer gives nothing away. A borrowed tensor has neither version nor flags.
        """
        return fields_of(self.lend(x))

    def lend(self, x: Any) -> DLTensor:
        """Have ``dltensor_from_py_object_no_sync`` lend a tensor, without reading it."""
        out = DLTensor()
        self._call("dltensor_from_py_object_no_sync", _BORROW, self._own(x), ctypes.byref(out))
        return out

    def export(self, x: Any) -> Taken:
        """Take the managed tensor that ``managed_tensor_from_py_object_no_sync`` gives away."""
        return self.export_any(self._own(x))

    def export_any(self, x: Any) -> Taken:
        """Export any object. Producers in C need not check its type."""
        entry, out = "managed_tensor_from_py_object_no_sync", c_void_p()
        self._call(entry, _EXPORT, x, ctypes.byref(out))
        if out.value is None:
            raise NullError(f"{entry}: got NULL and no failure; allowed: a managed tensor, or -1")
        return Taken(DLManagedTensorVersioned.from_address(out.value))

    def to_object(self, address: int) -> Any:
        """Pass a tensor to ``managed_tensor_to_py_object_no_sync``, and return the array."""
        entry, out = "managed_tensor_to_py_object_no_sync", c_void_p()
        self._call(entry, _IMPORT, address, ctypes.byref(out))
        if out.value is None:
            raise NullError(f"{entry}: got NULL and no failure; allowed: an object, or -1")
        made = ctypes.cast(out, ctypes.py_object).value
        # The function gave a reference away; `value` took another one.
        _let_go(out)
        return made

    def allocate(
        self, like: Taken, device: tuple[int, int] | None = None, code: int | None = None
    ) -> Taken:
        """Have ``managed_tensor_allocator`` make a tensor like another one, with a device or type.

        Raises
        ------
        RuntimeError
            The function failed, and gave this kind and text to ``SetError``.
        SilentError
            The function failed, and did not call ``SetError``.
        """
        entry, out, said = "managed_tensor_allocator", c_void_p(), []
        prototype = DLTensor.from_buffer_copy(like.struct.dl_tensor)
        if device is not None:
            prototype.device_type, prototype.device_id = device
        if code is not None:
            prototype.code = code
        note = _SET_ERROR(lambda _, kind, text: said.append((kind, text)))
        try:
            self._call(entry, _ALLOCATE, ctypes.byref(prototype), ctypes.byref(out), None, note)
        except SilentError:
            if not said:
                raise
            kind, text = ((part or b"").decode(errors="replace") for part in said[0])
            raise RuntimeError(f"{kind}: {text}") from None
        if out.value is None:
            raise NullError(f"{entry}: got NULL and no failure; allowed: a managed tensor, or -1")
        return Taken(DLManagedTensorVersioned.from_address(out.value))

    def work_stream(self, device_type: int, device_id: int) -> int:
        """Return the producer's current work stream, as ``current_work_stream`` gives it.

        The C API calls the default stream 0; the array API and CAI call it 1.
        """
        entry, out = "current_work_stream", c_void_p()
        # Start with an address that is no stream. If it is unchanged after the call, the function
        # wrote nothing.
        out.value = ctypes.addressof(out)
        self._call(entry, _STREAM, device_type, device_id, ctypes.byref(out))
        if out.value == ctypes.addressof(out):
            raise ValueError(f"{entry}: got no answer; allowed: a stream, or NULL")
        return out.value or 0

    def _own(self, x: Any) -> Any:
        # Producers need not check the type, and would read any object as one of their own.
        if not isinstance(x, self.kind):
            raise TypeError(f"x: got {type(x).__name__}; allowed: {self.kind.__name__}")
        return x

    def _call(self, entry: str, prototype: Any, *arguments: Any) -> None:
        address = getattr(self.struct, entry)
        if not address:
            raise ValueError(f"{entry}: got NULL; allowed: a function")
        code = prototype(address)(*arguments)
        if code != 0:
            raise SilentError(f"{entry}: got {code} without an exception; allowed: 0, or one")


def exchange_table(kind: type) -> ExchangeTable | None:
    """Find a type's table: the newest of major version 1 in its chain.

    Returns
    -------
    ExchangeTable or None
        None if the type has no ``__dlpack_c_exchange_api__``; if that is no capsule named
        ``dlpack_exchange_api`` (drafts had an integer); or if all tables are of other versions.
    """
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule_name(capsule) != CAPSULE:
        return None
    address: int | None = capsule_pointer(capsule, CAPSULE)
    passed: set[int] = set()
    while address and address not in passed:
        passed.add(address)
        # All versions have the same header, so it can be read; nothing else can.
        major, _minor = (c_uint32 * 2).from_address(address)
        if major == 1:
            return ExchangeTable(kind, DLPackExchangeAPI.from_address(address))
        address = c_void_p.from_address(address + DLPackExchangeAPI.prev_api.offset).value  # type: ignore[union-attr]
    return None
