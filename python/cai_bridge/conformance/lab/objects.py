"""The objects of labs: streams, holds, late arrays, reads, and what they saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

LEGACY = 1


class LabStream(Protocol):
    """A lab's own stream, with no implicit order; speaks CUDA's stream protocol."""

    @property
    def handle(self) -> int:
        """The driver's handle."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and the handle."""


@dataclass(frozen=True)
class DefaultStream:
    """A default stream, as an object."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def handle_of(stream: Any) -> int:
    """Return a stream's handle; the legacy default stream's is 1.

    Parameters
    ----------
    stream : int or object with ``__cuda_stream__``
        An object with the handle 0 means the legacy default stream.
    """
    if isinstance(stream, int):
        return stream or LEGACY
    return int(stream.__cuda_stream__()[1]) or LEGACY


class Hold(Protocol):
    """Work that holds back later work on its stream."""

    @property
    def pending(self) -> bool:
        """Whether it still holds work back."""

    def release(self) -> None:
        """Release the held-back work, if the hold can be released."""


@dataclass
class Late:
    """An array whose last write is queued and held back.

    Attributes
    ----------
    array : object
        The array.
    stream : object
        The stream of the write; None if it has no name.
    value : float
        The value that all items will have.
    hold : Hold
        What holds the write back.
    keep : object
        An object that must stay alive meanwhile.
    base : object
        The array that is written, if `array` is a view of it.
    current : object
        The stream that is current in the library at the hand-over; None for none.
    early : object
        The view of `base` that is handed over, if it was taken before the write.
    """

    array: Any
    stream: Any
    value: float
    hold: Hold
    keep: Any = None
    base: Any = None
    current: Any = None
    early: Any = None


class Watch:
    """The result of `Lab.watched`.

    Attributes
    ----------
    ms : float
        How long the block took, in milliseconds.
    waited : bool
        Whether the host waited for the device.
    """

    ms = 0.0
    waited = False


class Reading(Protocol):
    """A queued read."""

    @property
    def value(self) -> Any:
        """The values that it saw, as nested lists, once it has run."""
