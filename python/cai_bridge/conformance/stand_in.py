"""Stand-ins for an array that speak one protocol only, for consumers that prefer another."""

from __future__ import annotations

import inspect
from typing import Any

CAI, DLPACK = "__cuda_array_interface__", "__dlpack__"
EXCHANGE = "__dlpack_c_exchange_api__"


def speaks(array: Any, name: str) -> bool:
    """Tell whether an object has an attribute, without reading it: some raise anything."""
    return inspect.getattr_static(array, name, None) is not None


class _OnlyCai:
    """Speaks the CUDA Array Interface; keeps the array, and so the stream of its dict."""

    def __init__(self, array: Any) -> None:
        self._array = array
        if hasattr(array, "dtype"):
            # Some types' typestrs do not say which they are.
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
    """Stand in for an array by one protocol; return an array that speaks no other unchanged.

    Parameters
    ----------
    door : str
        ``"cai"`` or ``"dlpack"``.
    array : object
        An array that speaks it.
    """
    if door == "cai":
        return _OnlyCai(array) if speaks(array, DLPACK) else array
    return _OnlyDlpack(array) if speaks(array, CAI) else array
