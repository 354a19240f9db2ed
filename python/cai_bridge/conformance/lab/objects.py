"""What labs give: streams, holds, reads, and what they saw."""

from __future__ import annotations

from typing import Any, Protocol


class LabStream(Protocol):
    """A stream of a lab's own, ordered with no other; speaks CUDA's stream protocol."""

    @property
    def handle(self) -> int:
        """The driver's handle."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Tell version and handle."""


class Hold(Protocol):
    """Work that holds back what is queued on its stream behind it."""

    @property
    def pending(self) -> bool:
        """Whether it still does."""

    def release(self) -> None:
        """Let go of what is held back, where that can be said."""


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
