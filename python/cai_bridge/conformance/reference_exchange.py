"""The DLPack exchange API of the kit's own library: a table of functions in Python."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import c_char_p, c_int, c_int32, c_void_p
from typing import Any, Protocol

from cai_bridge.testing._kit.dlpack_abi import ManagedTensor, Taken
from cai_bridge.testing._kit.dlpack_capsule import NAMES, never_freed, new_capsule
from cai_bridge.testing._kit.dlpack_exchange import CAPSULE, DLPackExchangeAPI
from cai_bridge.testing._kit.dlpack_structures import DLManagedTensorVersioned, DLTensor

_OUT = ctypes.POINTER(c_void_p)
_SET_ERROR = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
_ALLOCATE = ctypes.PYFUNCTYPE(c_int, ctypes.POINTER(DLTensor), _OUT, c_void_p, _SET_ERROR)
_EXPORT = ctypes.PYFUNCTYPE(c_int, c_void_p, _OUT)
_IMPORT = ctypes.PYFUNCTYPE(c_int, c_void_p, _OUT)
_BORROW = ctypes.PYFUNCTYPE(c_int, c_void_p, ctypes.POINTER(DLTensor))
_STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, _OUT)
_keep_one = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
_lent: dict[int, ManagedTensor] = {}
FAILED = -1


class Exchanges(Protocol):
    """The methods that a library's table calls."""

    def current_handle(self) -> int:
        """Return the stream that work is queued on."""

    def allocated(self, like: DLTensor) -> ManagedTensor | None:
        """Make a tensor like another; None if there is no memory for it."""

    def imported(self, taken: Taken) -> Any:
        """Make an array of a tensor."""


def _object(address: int) -> Any:
    return ctypes.cast(address, ctypes.py_object).value


def table_capsule(library: Exchanges) -> Any:
    """Make a capsule with the table of a library; both live as long as the process."""

    def allocate(prototype: Any, out: Any, context: Any, set_error: Any) -> int:
        made = library.allocated(prototype[0])
        if made is None:
            set_error(context, b"BufferError", b"dtype or device: there is no such memory")
            return FAILED
        out[0] = made.hand_out()
        return 0

    def export(x: int, out: Any) -> int:
        exchanged = getattr(_object(x), "exchanged", None)
        if exchanged is None:
            return FAILED
        out[0] = exchanged().hand_out()
        return 0

    def take(address: int, out: Any) -> int:
        # A function in Python cannot fail with an exception set, so this one accepts every tensor.
        made = library.imported(Taken(DLManagedTensorVersioned.from_address(address)))
        _keep_one(made)
        out[0] = id(made)
        return 0

    def borrow(x: int, out: Any) -> int:
        array = _object(x)
        _lent[id(array)] = tensor = array.lent()
        weakref.finalize(array, _lent.pop, id(array), None)
        ctypes.memmove(out, ctypes.addressof(tensor.struct.dl_tensor), ctypes.sizeof(DLTensor))
        return 0

    def stream(kind: int, ordinal: int, out: Any) -> int:
        del kind, ordinal
        out[0] = library.current_handle()
        return 0

    functions = never_freed(
        (_ALLOCATE(allocate), _EXPORT(export), _IMPORT(take), _BORROW(borrow), _STREAM(stream))
    )
    addresses = [ctypes.cast(one, c_void_p).value for one in functions]
    table = never_freed(DLPackExchangeAPI(1, 3, None))
    table.managed_tensor_allocator, table.managed_tensor_from_py_object_no_sync = addresses[:2]
    table.managed_tensor_to_py_object_no_sync = addresses[2]
    table.dltensor_from_py_object_no_sync, table.current_work_stream = addresses[3:]
    return new_capsule(ctypes.addressof(table), NAMES[CAPSULE], None)
