"""What one protocol says of an array, in the form that all of them are brought to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

UNSAID = "unsaid"
"""The stream of a door that leaves open whether work is pending."""


@dataclass(frozen=True)
class Said:
    """What an array says through one door. A field that the door cannot say, or did not, is None.

    Attributes
    ----------
    door : str
        ``"CAI"``, ``"exchange API"``, ``"__dlpack__"``, or ``"capsule"`` for a bare one.
    version : str or None
        Of the form that it came in: ``"3"`` for CAI, ``"1.3"`` or ``"legacy"`` for DLPack.
    ptr : int or None
        The address of the first item, DLPack's ``byte_offset`` added; as it is said for an array
        without items.
    shape : tuple of int or None
        The extents, in items. DLPack's lanes are a trailing dimension.
    strides : tuple of int or None
        The strides in bytes; those of a C-contiguous array where the door leaves them out. None for
        items that do not begin at a byte.
    dtype : str or None
        The type's name, such as ``"bfloat16"``; the typestr itself where a dict does not say which
        type it is and the array has no ``dtype`` that does.
    typestr : str or None
        The typestr: as the dict says it, or CAI's for a type of DLPack.
    itemsize : int or None
        The size of an item in bytes.
    device : tuple of int or None
        DLPack's ``(device_type, device_id)``. CAI does not say.
    readonly : bool or None
        Whether consumers must not write. A legacy capsule cannot say.
    stream : int, str or None
        The stream that the array is ready on: an integer as in CAI (1 the legacy default stream);
        None where nothing is pending, and for a capsule, which is ready on the stream that it was
        asked for; ``"unsaid"`` where nothing is said, as in CAI before version 3. From the exchange
        API it is the producer's current work stream.
    masked : bool
        Whether a mask of CAI says that some items are not valid.
    error : str or None
        Why the door could not be read at all: an exception's type and message.
    problems : tuple of str
        What of it is malformed: field, what it is, and what is allowed.
    notes : tuple of str
        What else is worth knowing, such as how a producer was asked.
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
    """Say what is wrong with a field, in the words of the package's exceptions."""
    return f"{field}: got {got}; allowed: {allowed}"


def why(error: Exception) -> str:
    """Say which exception it was; the exception itself would keep frames, and so the array."""
    try:
        text = str(error)
    except Exception:  # a producer's own class may raise anything
        text = "(its message cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_PLAIN = (int, float, str, bytes, bool, type(None))


def shown(value: Any) -> str:
    """Show a value in few words. Only plain ones are: an array's own words may read its memory."""
    plain = type(value) in _PLAIN or (
        type(value) in {tuple, list} and len(value) <= 8 and all(type(v) in _PLAIN for v in value)
    )
    try:
        text = repr(value) if plain else type(value).__name__
    except ValueError:  # an integer of more digits than Python writes
        text = "a huge integer"
    return text if len(text) <= 60 else f"{text[:57]}..."
