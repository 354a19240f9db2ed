"""DLPack's exchange API by `ctypes`: tables made by hand, and calls of somebody else's table.

The structure is `DLPackExchangeAPI` of dlpack.h 1.3.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int32, c_uint32, c_void_p

import capsules
from capsules import DLTensor, HandMade, Taken, Versioned

_OUT = ctypes.POINTER(c_void_p)
_SET_ERROR = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
# Called with the lock held, and `ctypes` raises what they set.
_ALLOCATE = ctypes.PYFUNCTYPE(c_int, ctypes.POINTER(DLTensor), _OUT, c_void_p, _SET_ERROR)
_FROM_OBJECT = ctypes.PYFUNCTYPE(c_int, c_void_p, _OUT)
_TO_OBJECT = ctypes.PYFUNCTYPE(c_int, c_void_p, _OUT)
_BORROW = ctypes.PYFUNCTYPE(c_int, c_void_p, ctypes.POINTER(DLTensor))
_STREAM = ctypes.PYFUNCTYPE(c_int, c_uint32, c_int32, _OUT)


class Table(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("prev", c_void_p),
        ("allocate", c_void_p),
        ("from_object", c_void_p),
        ("to_object", c_void_p),
        ("borrow", c_void_p),
        ("stream", c_void_p),
    ]


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
    made = Table(*version, None if prev is None else ctypes.addressof(prev), **entries)
    _forever.extend((from_object, current_work_stream, made))
    return made


def speaker(table, *bases, **attributes):
    """A type whose only protocol attribute is a table's capsule, and what it is given."""
    capsule = capsules.capsule_of(ctypes.addressof(table), "dlpack_exchange_api")
    return type("Speaker", bases, {"__dlpack_c_exchange_api__": capsule, **attributes})


def of(kind):
    """The table of a type."""
    capsule = kind.__dlpack_c_exchange_api__
    assert capsules.name_of(capsule) == "dlpack_exchange_api"
    get = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)
    address = get(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, b"dlpack_exchange_api")
    return Table.from_address(address)


def managed(x):
    """A managed tensor of `x` by its type's table, as a consumer gets it."""
    out = c_void_p()
    assert _FROM_OBJECT(of(type(x)).from_object)(id(x), ctypes.byref(out)) == 0
    return Taken(Versioned.from_address(out.value))


def borrowed(x):
    """What `x` describes, by its type's table: read at once, as it is only lent."""
    out = DLTensor()
    assert _BORROW(of(type(x)).borrow)(id(x), ctypes.byref(out)) == 0
    return capsules.look(out)


def work_stream(kind, device):
    """The handle of the stream that a type works on."""
    out = c_void_p(7)
    assert _STREAM(of(kind).stream)(*device, ctypes.byref(out)) == 0
    return out.value or 0


def to_object(kind, tensor):
    """An object of a type that takes a tensor over: a hand-made one, or one that was taken."""
    out = c_void_p()
    address = tensor.hand_out() if isinstance(tensor, HandMade) else ctypes.addressof(tensor.struct)
    assert _TO_OBJECT(of(kind).to_object)(address, ctypes.byref(out)) == 0
    made = ctypes.cast(out, ctypes.py_object).value
    # The function gave a reference of its own away; `value` took another.
    ctypes.PYFUNCTYPE(None, c_void_p)(("Py_DecRef", ctypes.pythonapi))(out)
    return made


def allocate(kind, prototype):
    """What the allocator of a type says: its result, what it made, and the errors that it set."""
    said, out = [], c_void_p()
    note = _SET_ERROR(lambda context, kind, text: said.append((context, kind, text)))
    code = _ALLOCATE(of(kind).allocate)(ctypes.byref(prototype), ctypes.byref(out), 42, note)
    return code, out.value, said
