"""Stand-ins for an array that speak only one protocol, for consumers that prefer another."""

from __future__ import annotations

import inspect
from typing import Any

CAI, DLPACK = "__cuda_array_interface__", "__dlpack__"
EXCHANGE = "__dlpack_c_exchange_api__"


def speaks(array: Any, name: str) -> bool:
    """Return whether an object has an attribute, without reading it: reading may raise anything."""
    return inspect.getattr_static(array, name, None) is not None


class _OnlyCai:
    """Speaks the CUDA Array Interface. Keeps the array, which keeps the stream of its dict."""

    def __init__(self, array: Any) -> None:
        self._array = array
        if hasattr(array, "dtype"):
            # Some types' typestrs do not name the type.
            self.dtype = array.dtype

    @property
    def __cuda_array_interface__(self) -> Any:
        return self._array.__cuda_array_interface__


class _OnlyDlpack:
    """Speaks the array API's DLPack, without the C exchange API."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def speaking_only(door: str, array: Any) -> Any:
    """Return a stand-in that speaks only one protocol, or the array if it speaks no other.

    Parameters
    ----------
    door : str
        ``"cai"`` or ``"dlpack"``.
    array : object
        An array that speaks the protocol.
    """
    if door == "cai":
        return _OnlyCai(array) if speaks(array, DLPACK) else array
    return _OnlyDlpack(array) if speaks(array, CAI) else array
