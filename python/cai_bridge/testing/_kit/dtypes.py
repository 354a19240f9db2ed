"""Names of element types, from DLPack's numbers and from typestrs.

A type has the name that NumPy or ``ml_dtypes`` gives it, else DLPack's name.
"""

from __future__ import annotations

import re

from cai_bridge.testing._values import CODES, DTYPES

_COUNTED = {0: "int", 1: "uint", 2: "float", 3: "opaque_handle", 5: "complex", 6: "bool"}
_NAMED = {pair: name for name, pair in CODES.items()} | {
    (15, 6): "float6_e2m3fn",
    (16, 6): "float6_e3m2fn",
    (17, 4): "float4_e2m1fn",
}
_SIZES = {dtype.itemsize for dtype in DTYPES.values() if dtype.typestr[1] == "V"}
_EXACT = {dtype.typestr: name for name, dtype in DTYPES.items() if dtype.typestr[1] != "V"}
# The sizes in bytes that types of a letter may have, in NumPy or in C.
_NUMBERS = {
    "b": (1,),
    **dict.fromkeys("iu", (1, 2, 4, 8, 16)),
    "f": (1, 2, 4, 8, 12, 16),
    "c": (4, 8, 16, 24, 32),
    **dict.fromkeys("mM", (8,)),
}
# A size has no leading zeros.
_TYPESTR = re.compile(r"([<>|=])([biufcVSaUOmMt])(?:0+(?=[1-9]))?([0-9]{0,9})(\[.*\])?", re.ASCII)


def dlpack_name(code: int, bits: int) -> str | None:
    """Return the name of DLPack's type ``(code, bits)``; None if DLPack 1.3 has no such type."""
    counted = f"{_COUNTED[code]}{bits}" if code in _COUNTED and bits else None
    return _NAMED.get((code, bits), counted)


def typestr_of(name: str | None) -> str | None:
    """Return the typestr of a named type; None if CAI has no typestr for it."""
    return DTYPES[name].typestr if name in DTYPES else None


def typestr_size(typestr: str) -> int | None:
    """Return the size of an item in bytes; None if the text is no typestr."""
    found = _TYPESTR.fullmatch(typestr)
    if found is None:
        return None
    letter, digits = found[2], found[3]
    if letter == "O":
        return int(digits or 8)
    if not digits or int(digits) not in _NUMBERS.get(letter, (int(digits),)):
        return None
    return int(digits) * (4 if letter == "U" else 1)


def is_opaque(typestr: str) -> bool:
    """Return whether several types of the same size share this typestr."""
    found = _TYPESTR.fullmatch(typestr)
    if found is None or found[4]:
        return False
    order, letter, size = found[1], found[2], int(found[3] or 0)
    return (letter, size) == ("f", 1) or (
        letter == "V" and size in _SIZES and (size == 1 or order != ">")
    )


def typestr_name(typestr: str, dtype: object = None) -> str:
    """Name the type of a typestr.

    Parameters
    ----------
    typestr : str
        The dict's typestr.
    dtype : object
        The array's own ``dtype``, which names the type behind ``<V2`` and ``|V1``.

    Returns
    -------
    str
        The type's name, or the typestr itself if nothing names the type.
    """
    if is_opaque(typestr):
        named = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
        known = DTYPES.get(named)
        fits = known and known.typestr[1] == "V" and known.itemsize == typestr_size(typestr)
        return named if fits else typestr
    found = _TYPESTR.fullmatch(typestr)
    if found is None or found[4]:
        return typestr
    order, kind = found[1], found[2] + found[3]
    # A single byte has no byte order.
    order = "|" if kind in {"b1", "i1", "u1"} else order
    return _EXACT.get(order + kind, typestr)
