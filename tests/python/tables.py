"""DLPack's exchange API by `ctypes`: tables made by hand, and calls of somebody else's table.

The structure is `DLPackExchangeAPI` of dlpack.h 1.3.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int32, c_void_p

import capsules
from capsules import DLTensor, HandMade, Taken

from cai_bridge.testing._kit.dlpack_abi import DLPackExchangeAPI, exchange_table

_OUT = ctypes.POINTER(c_void_p)
_SET_ERROR = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
# Called with the lock held, and `ctypes` raises what they set.
_ALLOCATE = ctypes.PYFUNCTYPE(c_int, ctypes.POINTER(DLTensor), _OUT, c_void_p, _SET_ERROR)
_FROM_OBJECT = ctypes.PYFUNCTYPE(c_int, c_void_p, _OUT)
_TO_OBJECT = ctypes.PYFUNCTYPE(c_int, c_void_p, _OUT)
_STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, _OUT)

ENTRIES = {
    "allocate": "managed_tensor_allocator",
    "from_object": "managed_tensor_from_py_object_no_sync",
    "to_object": "managed_tensor_to_py_object_no_sync",
    "borrow": "dltensor_from_py_object_no_sync",
    "stream": "current_work_stream",
}
"""What the tests call a table's entries."""

# A table lives as long as the process, and so do its functions.
_forever: list[object] = []


def table(make=None, *, work_on=0, version=(1, 3), prev=None, asked=None, **functions):
    """A table whose tensors are the `HandMade` that `make(x)` returns.

    `make` or `work_on` of None fails without an exception; `functions` replaces entries by
    addresses, 0 for NULL. The devices that the stream is asked for are added to `asked`.
    """

    @_FROM_OBJECT
    def from_object(x, out):
        if make is None:
            return -1
        tensor = make(ctypes.cast(x, ctypes.py_object).value)
        out[0] = tensor.hand_out() if isinstance(tensor, HandMade) else tensor
        return 0

    @_STREAM
    def current_work_stream(kind, index, out):
        if asked is not None:
            asked.append((kind, index))
        if work_on is None:
            return -1
        out[0] = work_on
        return 0

    entries = {
        "from_object": ctypes.cast(from_object, c_void_p).value,
        "stream": ctypes.cast(current_work_stream, c_void_p).value,
        **functions,
    }
    made = DLPackExchangeAPI(*version, None if prev is None else ctypes.addressof(prev))
    for name, address in entries.items():
        setattr(made, ENTRIES[name], address)
    _forever.extend((from_object, current_work_stream, made))
    return made


def speaker(table, *bases, **attributes):
    """A type whose only protocol attribute is a table's capsule, and what it is given."""
    capsule = capsules.capsule_of(ctypes.addressof(table), "dlpack_exchange_api")
    return type("Speaker", bases, {"__dlpack_c_exchange_api__": capsule, **attributes})


def of(kind):
    """The table of a type."""
    return exchange_table(kind).struct


def managed(x):
    """A managed tensor of `x` by its type's table, as a consumer gets it."""
    taken = exchange_table(type(x)).export(x)
    taken.give_away()
    return Taken(taken.struct)


def borrowed(x):
    """What `x` describes, by its type's table: read at once, as it is only lent."""
    return exchange_table(type(x)).borrow(x)


def work_stream(kind, device):
    """The handle of the stream that a type works on."""
    return exchange_table(kind).work_stream(*device)


def to_object(kind, tensor):
    """An object of a type that takes a tensor over: a hand-made one, or one that was taken."""
    out = c_void_p()
    address = tensor.hand_out() if isinstance(tensor, HandMade) else ctypes.addressof(tensor.struct)
    assert _TO_OBJECT(of(kind).managed_tensor_to_py_object_no_sync)(address, ctypes.byref(out)) == 0
    made = ctypes.cast(out, ctypes.py_object).value
    # The function gave a reference of its own away; `value` took another.
    ctypes.PYFUNCTYPE(None, c_void_p)(("Py_DecRef", ctypes.pythonapi))(out)
    return made


def allocate(kind, prototype):
    """What the allocator of a type says: its result, what it made, and the errors that it set."""
    said, out = [], c_void_p()
    note = _SET_ERROR(lambda context, kind, text: said.append((context, kind, text)))
    code = _ALLOCATE(of(kind).managed_tensor_allocator)(
        ctypes.byref(prototype), ctypes.byref(out), 42, note
    )
    return code, out.value, said
