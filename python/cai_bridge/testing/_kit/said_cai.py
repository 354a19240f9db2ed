"""Reads a dict of the CUDA Array Interface, and finds what is wrong with it.

The rules are those of "CUDA Array Interface (Version 3)", section "Python Interface Specification".
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cai_bridge.testing._values import compact_strides

from .dlpack_structures import MAX_NDIM
from .dtypes import is_opaque, typestr_name, typestr_size
from .said import UNSAID, Said, malformed, shown, why

DOOR = "CAI"
DUNDER = "__cuda_array_interface__"
_ABSENT = object()


class _Entries:
    """The entries of a dict, and what was found wrong with them."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self._interface = interface
        self.problems: list[str] = []
        self.notes: list[str] = []

    def __getitem__(self, key: str) -> Any:
        # A subclass's own methods are not called: consumers in C do not call them either.
        return dict.get(self._interface, key, _ABSENT)

    def refuse(self, field: str, value: Any, allowed: str) -> None:
        got = "none" if value is _ABSENT else shown(value)
        self.problems.append(malformed(field, got, allowed))

    def integer(self, field: str, value: Any, allowed: str) -> int | None:
        """Read an integer. NumPy's integers are accepted; True is not."""
        try:
            number = int(operator.index(value))
        except Exception:  # the value may be of any class
            self.refuse(field, value, allowed)
            return None
        if isinstance(value, bool):
            self.refuse(field, value, allowed)
        return number

    def integers(self, field: str, value: Any) -> tuple[int, ...] | None:
        """Read a tuple of integers. A list is read as well, and reported."""
        if not isinstance(value, tuple):
            self.refuse(field, value, "a tuple of integers")
        # A subclass's own methods are not called.
        if isinstance(value, tuple):
            items = list(tuple.__iter__(value))
        elif isinstance(value, list):
            items = list(list.__iter__(value))
        else:
            return None
        if len(items) > MAX_NDIM:
            self.refuse(field, len(items), f"{MAX_NDIM} integers at most")
            return None
        read = [self.integer(f"{field}[{i}]", item, "an integer") for i, item in enumerate(items)]
        numbers = tuple(number for number in read if number is not None)
        return numbers if len(numbers) == len(read) else None


def _version(entries: _Entries) -> int | None:
    allowed = "an integer from 0 to 3"
    version = entries.integer("version", entries["version"], allowed)
    if version is not None and not 0 <= version <= 3:
        entries.refuse("version", version, allowed)
    return version


def _shape(entries: _Entries) -> tuple[int, ...] | None:
    shape = entries.integers("shape", entries["shape"])
    for axis, extent in enumerate(shape or ()):
        if not 0 <= extent < 2**63:
            entries.refuse(f"shape[{axis}]", extent, "0 and more, in 64 bits")
    return shape


def _data(entries: _Entries) -> tuple[int | None, bool | None]:
    data = entries["data"]
    if not isinstance(data, tuple) or len(data) != 2:
        entries.refuse("data", data, "a tuple of an address and a bool")
    if not isinstance(data, tuple | list) or len(data) != 2:
        return None, None
    address, readonly = data
    ptr = entries.integer("data[0]", address, "an address")
    if ptr is not None and not 0 <= ptr < 2**64:
        entries.refuse("data[0]", ptr, "an address of 64 bits")
    if isinstance(readonly, bool):
        return ptr, readonly
    entries.refuse("data[1]", readonly, "a bool: whether it is read-only")
    return ptr, bool(readonly) if isinstance(readonly, int) else None


def _typestr(
    entries: _Entries, dtype: Callable[[], object]
) -> tuple[str | None, str | None, int | None]:
    typestr = entries["typestr"]
    if not isinstance(typestr, str):
        entries.refuse("typestr", typestr, "a str")
        return None, None, None
    typestr = str.__str__(typestr)
    itemsize = typestr_size(typestr)
    if itemsize is None:
        entries.refuse("typestr", typestr, "a byte order, a letter and a size, such as '<f4'")
        return typestr, None, None
    if not is_opaque(typestr):
        return typestr, typestr_name(typestr), itemsize
    try:
        return typestr, typestr_name(typestr, dtype()), itemsize
    except Exception as error:  # the array may raise anything
        entries.notes.append(f"dtype: {why(error)}")
        return typestr, typestr, itemsize


def _strides(
    entries: _Entries, shape: tuple[int, ...] | None, itemsize: int | None
) -> tuple[int, ...] | None:
    said = entries["strides"]
    if said is None or said is _ABSENT:
        if shape is None or itemsize is None or min(shape, default=0) < 0:
            return None
        return compact_strides(shape, itemsize)
    strides = entries.integers("strides", said)
    if strides is not None and shape is not None and len(strides) != len(shape):
        entries.refuse("strides", strides, f"{len(shape)}, one a dimension")
    for axis, stride in enumerate(strides or ()):
        if not -(2**63) <= stride < 2**63:
            entries.refuse(f"strides[{axis}]", stride, "bytes, in 64 bits")
    return strides


def _mask(entries: _Entries) -> bool:
    mask = entries["mask"]
    if mask is None or mask is _ABSENT:
        return False
    # No code of the mask is run.
    if inspect.getattr_static(mask, DUNDER, None) is None:
        entries.refuse("mask", mask, f"None, or an object with {DUNDER}")
    return True


def _descr(entries: _Entries) -> None:
    descr = entries["descr"]
    if not (descr is None or descr is _ABSENT or isinstance(descr, list)):
        entries.refuse("descr", descr, "a list of tuples, as of NumPy's array interface")


def _stream(entries: _Entries, version: int | None) -> int | str | None:
    said = entries["stream"]
    if version is not None and version < 3:
        if said is not _ABSENT and said is not None:
            entries.notes.append(f"stream: {shown(said)} is said, which version {version} has not")
        return UNSAID
    if said is None or said is _ABSENT:
        return None
    allowed = "None, 1, 2 or the handle of a stream"
    stream = entries.integer("stream", said, allowed)
    if stream is not None and not (isinstance(said, bool) or 0 < stream < 2**64):
        entries.refuse("stream", stream, allowed)
    return UNSAID if stream is None else stream


def said_by_dict(interface: object, dtype: Callable[[], object] = lambda: None) -> Said:
    """Read a dict. No content of the dict makes this raise.

    Parameters
    ----------
    interface : object
        The dict, or another object in its place.
    dtype : callable
        Returns the array's own ``dtype``; called if the typestr does not say which type it means.
    """
    if not isinstance(interface, dict):
        return Said(DOOR, error=malformed(DUNDER, shown(interface), "a dict"))
    try:
        return _said(_Entries(interface), dtype)
    except Exception as error:  # keys and values may be of any class
        return Said(DOOR, error=why(error))


def _said(entries: _Entries, dtype: Callable[[], object]) -> Said:
    version, shape, (ptr, readonly) = _version(entries), _shape(entries), _data(entries)
    typestr, name, itemsize = _typestr(entries, dtype)
    strides = _strides(entries, shape, itemsize)
    stream = _stream(entries, version)
    masked = _mask(entries)
    _descr(entries)
    made = Said(
        DOOR,
        version=None if version is None else str(version),
        ptr=ptr,
        shape=shape,
        strides=strides,
        dtype=name,
        typestr=typestr,
        itemsize=itemsize,
        readonly=readonly,
        stream=stream,
        masked=masked,
    )
    if made.size and ptr == 0:
        entries.refuse("data[0]", 0, "the address of the first item")
    if made.size == 0 and ptr:
        entries.notes.append("ptr: the specification asks for 0 where there are no items")
    return replace(made, problems=tuple(entries.problems), notes=tuple(entries.notes))
