"""What labs give: streams, holds, late arrays, reads, and what they saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

LEGACY = 1


class LabStream(Protocol):
    """A stream of a lab's own, ordered with no other; speaks CUDA's stream protocol."""

    @property
    def handle(self) -> int:
        """The driver's handle."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Tell version and handle."""


@dataclass(frozen=True)
class DefaultStream:
    """One of the default streams, as an object."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def handle_of(stream: Any) -> int:
    """Tell a stream's handle, with the legacy default stream as 1.

    Parameters
    ----------
    stream : int or object with ``__cuda_stream__``
        Where the handle is 0, the legacy default stream is meant.
    """
    if isinstance(stream, int):
        return stream or LEGACY
    return int(stream.__cuda_stream__()[1]) or LEGACY


class Hold(Protocol):
    """Work that holds back what is queued on its stream behind it."""

    @property
    def pending(self) -> bool:
        """Whether it still does."""

    def release(self) -> None:
        """Let go of what is held back, where that can be said."""


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
        An object that must live as long.
    base : object
        The array that is written, where `array` is a view of it.
    current : object
        The stream that is the library's current one at the hand-over; None for none.
    early : object
        The view of `base` that is handed over, where it was taken before the write.
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
    """What `Lab.watched` saw.

    Attributes
    ----------
    ms : float
        How long it took, in milliseconds.
    waited : bool
        Whether the host waited for the device.
    """

    ms = 0.0
    waited = False


class Reading(Protocol):
    """A read that is queued."""

    @property
    def value(self) -> Any:
        """What it saw, as nested lists, once it has run."""
