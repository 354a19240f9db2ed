"""Element types, and values in strided memory, from Python or from NumPy's arrays."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cai_bridge import _core

from . import _checks


@dataclass(frozen=True)
class SimulatedDtype:
    """An element type.

    Attributes
    ----------
    name : str
        NumPy's or ``ml_dtypes``' name, such as ``"bfloat16"``.
    typestr : str
        The typestr of NumPy's array interface; ``<V2`` for bfloat16 and ``|V1`` for 8-bit floats.
    itemsize : int
        The size of an item, in bytes.
    """

    name: str
    typestr: str
    itemsize: int

    def __str__(self) -> str:
        return self.name


_TABLE = _core._dtypes()
DTYPES = {name: SimulatedDtype(name, typestr, bits // 8) for name, _, bits, typestr in _TABLE}
"""Every element type that the bridge has, by name."""

CODES = {name: (code, bits) for name, code, bits, _ in _TABLE}
"""DLPack's code and bits of each type."""

# Letters of `struct` for a number of this many bytes; an unsigned letter stands for the bits.
_UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}
_FLOATS = {2: "e", 4: "f", 8: "d"}


def _letters(code: int, size: int) -> str:
    """Return the letter of `struct`, doubled for complex types; 8-bit floats go as bits."""
    match code:
        case 0:
            return _UNSIGNED[size].lower()
        case 2:
            return _FLOATS[size]
        case 5:
            return 2 * _FLOATS[size // 2]
        case 6:
            return "?"
    return _UNSIGNED[size]


_FORMATS = {name: struct.Struct("<" + _letters(code, bits // 8)) for name, code, bits, _ in _TABLE}
_EXACT = {one.typestr: name for name, one in DTYPES.items() if one.typestr[1] != "V"}
_OPAQUE = {
    one.typestr: f"uint{8 * one.itemsize}" for one in DTYPES.values() if one.typestr[1] == "V"
}


def dtype_named(name: str) -> SimulatedDtype:
    """Find an element type by its name."""
    return DTYPES[_checks.choice("dtype", name, DTYPES)]


def name_behind(typestr: str, dtype: object = None) -> str:
    """Name the element type of a typestr; `dtype` names it if the typestr does not."""
    known = _EXACT.get(typestr)
    if known is not None:
        return known
    named = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
    if named in DTYPES and DTYPES[named].typestr == typestr:
        return named
    raw = _OPAQUE.get(typestr)
    if raw is None:
        allowed = ", ".join([*_EXACT, *_OPAQUE])
        raise ValueError(f"typestr: got {typestr!r}; allowed: {allowed}")
    return raw


def name_of_type(typestr: object, dtype: object, itemsize: int) -> str:
    """Name the element type of an array with a typestr, or with a ``dtype`` of any form.

    A ``dtype`` may be NumPy's, the simulated device's own, a name such as ``"float32"``, or a
    typestr.
    """
    if typestr is None:
        named = str(getattr(dtype, "name", getattr(dtype, "__name__", dtype))).rpartition(".")[2]
        if named in DTYPES:
            return named
        typestr = getattr(dtype, "str", dtype if isinstance(dtype, str) else f"|V{itemsize}")
    return name_behind(str(typestr), dtype)


def _to_bfloat16(value: float) -> int:
    """Round to the nearest bfloat16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if math.isnan(value):
        return int(bits >> 16) | 0x40
    return int((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


def _from_bfloat16(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    return float(value)


def _integer(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else int(value.__index__())


def packer(name: str) -> Callable[[Any], bytes]:
    """Make a function that turns a Python value into an item's bytes."""
    pack = _packer(name)

    def checked(value: Any) -> bytes:
        try:
            return pack(value)
        except (AttributeError, TypeError, ValueError, OverflowError, struct.error):
            _checks.refuse(ValueError, "data", value, f"{_range(name)}, for {name}")

    return checked


def _range(name: str) -> str:
    letters = _FORMATS[name].format[1:]
    if name == "bfloat16" or letters not in set("bBhHiIqQ"):
        return "numbers in its range"
    bits = 8 * struct.calcsize(letters)
    low, high = (0, 2**bits - 1) if letters.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return f"integers from {low} to {high}"


def _packer(name: str) -> Callable[[Any], bytes]:
    pack = _FORMATS[name].pack
    if name == "bool":
        return lambda value: pack(bool(value))
    if name == "bfloat16":
        return lambda value: pack(_to_bfloat16(float(value)))
    if name.startswith("complex"):
        return lambda value: pack(complex(value).real, complex(value).imag)
    if name in {"float16", "float32", "float64"}:
        return lambda value: pack(float(value))
    return lambda value: pack(_integer(value))


def unpacker(name: str) -> Callable[[bytes, int], Any]:
    """Make a function that turns an item's bytes, at an offset, into a Python value."""
    unpack = _FORMATS[name].unpack_from
    if name == "bfloat16":
        return lambda data, offset: _from_bfloat16(unpack(data, offset)[0])
    if name.startswith("complex"):
        return lambda data, offset: complex(*unpack(data, offset))
    return lambda data, offset: unpack(data, offset)[0]


def shape_of(data: Any) -> tuple[int, ...]:
    """Return the shape of nested sequences; () for a plain value."""
    if not isinstance(data, Sequence) or isinstance(data, str | bytes):
        return ()
    if not data:
        return (0,)
    shapes = {shape_of(item) for item in data}
    if len(shapes) != 1:
        raise ValueError("data: got rows of different lengths; allowed: nested lists of one shape")
    return (len(data), *shapes.pop())


def flat(data: Any) -> Iterator[Any]:
    """Walk the values of nested sequences, with the last index changing fastest."""
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        for item in data:
            yield from flat(item)
    else:
        yield data


def nested(values: Iterator[Any], shape: tuple[int, ...]) -> Any:
    """Make nested lists of this shape."""
    if not shape:
        return next(values)
    return [nested(values, shape[1:]) for _ in range(shape[0])]


def compact_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array, in bytes."""
    strides: list[int] = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(reversed(strides))


def values_and_shape(
    data: Any, shape: int | Sequence[int] | None, fill: Any
) -> tuple[str | None, Any, tuple[int, ...]]:
    """Return a NumPy array's element type, the values, and the extents of the array to make."""
    if data is not None and fill is not None:
        raise ValueError("fill: got a value beside data; allowed: one of the two")
    if data is None:
        if shape is None:
            raise ValueError("shape: got None without data; allowed: the extents")
        return None, fill, _extents(shape)
    dtype = None
    taken = _core._simulated_values(data)
    if taken is not None:
        dtype, own, data = taken
        dtype_named(dtype)
        shape = own if shape is None else shape
    own = shape_of(data)
    if shape is None:
        return dtype, data, own
    wanted = _extents(shape)
    if own != wanted:
        values = list(flat(data))
        if len(own) != 1 or len(values) != math.prod(wanted):
            raise ValueError(
                f"data: got the shape {own}; allowed: the shape {wanted}, or a flat list of as "
                "many values"
            )
        data = nested(iter(values), wanted)
    return dtype, data, wanted


def _extents(shape: Any) -> tuple[int, ...]:
    shape = (shape,) if hasattr(shape, "__index__") else shape
    return _checks.extents("shape", shape, "an integer, or a sequence of integers")


def strides_named(
    strides: str | Sequence[int], shape: tuple[int, ...], itemsize: int
) -> list[int] | None:
    """Return the strides in bytes; None for a C-contiguous array."""
    if strides == "C":
        return None
    if strides == "F":
        return list(reversed(compact_strides(shape[::-1], itemsize)))
    allowed = "'C', 'F', or bytes, one a dimension"
    if isinstance(strides, str):
        _checks.refuse(ValueError, "strides", strides, allowed)
    return list(_checks.extents("strides", strides, allowed))
