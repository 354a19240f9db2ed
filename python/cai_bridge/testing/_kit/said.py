"""What one protocol says about an array, in one form for all protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

UNSAID = "unsaid"
"""The `stream` of a door that does not say whether work is pending."""


@dataclass(frozen=True)
class Said:
    """What an array says through one door. A field is None if the door cannot say it, or did not.

    Attributes
    ----------
    door : str
        ``"CAI"``, ``"exchange API"``, ``"__dlpack__"``, or ``"capsule"`` for a bare one.
    version : str or None
        The version of the protocol: ``"3"`` for CAI, ``"1.3"`` or ``"legacy"`` for DLPack.
    ptr : int or None
        The address of the first item, with DLPack's ``byte_offset`` added. For an array without
        items, the address that the door gives.
    shape : tuple of int or None
        The extents, in items. DLPack's lanes are a trailing dimension.
    strides : tuple of int or None
        The strides in bytes; those of a C-contiguous array if the door leaves them out. None if
        items do not begin at whole bytes.
    dtype : str or None
        The type's name, such as ``"bfloat16"``; the typestr itself if a dict does not say which
        type it means, and the array has no ``dtype`` that says it.
    typestr : str or None
        The dict's typestr, or the typestr that CAI has for a type of DLPack.
    itemsize : int or None
        The size of an item in bytes.
    device : tuple of int or None
        DLPack's ``(device_type, device_id)``. CAI cannot say it.
    readonly : bool or None
        Whether consumers must not write. A legacy capsule cannot say it.
    stream : int, str or None
        The stream on which the array is ready, an integer as in CAI: 1 is the legacy default
        stream. None if nothing is pending; also for a capsule, which is ready on the stream that it
        was asked for. ``"unsaid"`` if the door does not say it, as CAI before version 3. For the
        exchange API, the producer's current work stream.
    masked : bool
        Whether CAI's mask marks some items as invalid.
    error : str or None
        Why the door could not be read at all: the type and the message of the exception.
    problems : tuple of str
        The malformed fields, each with the value found and the values allowed.
    notes : tuple of str
        Further remarks, such as how a producer was asked.
    """

    door: str
    version: str | None = None
    ptr: int | None = None
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    dtype: str | None = None
    typestr: str | None = None
    itemsize: int | None = None
    device: tuple[int, int] | None = None
    readonly: bool | None = None
    stream: int | str | None = None
    masked: bool = False
    error: str | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int | None:
        """The number of items; None where the shape is not known."""
        if self.shape is None:
            return None
        items = 1
        for extent in self.shape:
            items *= extent
        return items


def malformed(field: str, got: str, allowed: str) -> str:
    """Describe a malformed field in the words of the package's exceptions."""
    return f"{field}: got {got}; allowed: {allowed}"


def why(error: Exception) -> str:
    """Return an exception's type and text. The exception would keep frames, and so the array."""
    try:
        text = str(error)
    except Exception:  # a producer's own class may raise anything
        text = "(its message cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_PLAIN = (int, float, str, bytes, bool, type(None))


def shown(value: Any) -> str:
    """Show a plain value in few words. An array is not shown: its `repr` may read its memory."""
    plain = type(value) in _PLAIN or (
        type(value) in {tuple, list} and len(value) <= 8 and all(type(v) in _PLAIN for v in value)
    )
    try:
        text = repr(value) if plain else type(value).__name__
    except ValueError:  # an integer of more digits than Python writes
        text = "a huge integer"
    return text if len(text) <= 60 else f"{text[:57]}..."
