"""Programs of the simulated device in the making.

A step whose accesses nothing orders yet gets the program's own waits or syncs put in front.
"""

from __future__ import annotations

import random

from .. import steps as s
from ..making import Making
from .bridge import Bridge
from .order import Unordered


class Trying(Making):
    """A program in the making, by the model of the device."""

    def __init__(self, seed: int, model: Bridge) -> None:
        super().__init__(seed)
        # Of its own: what strangers do does not change what else is drawn.
        self.strange = random.Random(f"strangers {seed}")
        self.model = model

    def take(self, step: s.Step) -> None:
        tried = self.model.copy()
        tried.take(step)
        self.model = tried

    def mend(self, lacking: Unordered, step: s.Step) -> bool:
        """Order one of the accesses that a step has to come after."""
        del step
        if self.model.capture is not None:
            return False
        number = (lacking.missing & -lacking.missing).bit_length() - 1
        if number >= len(self.model.places):
            # An access of the step itself.
            return False
        first, then = self.model.places[number], lacking.place
        usable = {name for name in (first, then) if s.is_default(name) or name in self.model.named}
        if self.random.random() < 0.1 or first not in usable:
            return self.push(s.Sync(None))
        if then not in usable or self.random.random() < 0.3:
            return self.push(s.Sync(first))
        return self.push(s.Wait(then, first))
