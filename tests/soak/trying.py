"""A program in the making: the try whether the model takes a step.

A step whose accesses nothing orders yet gets the program's own waits or syncs put in front; what is
refused for another reason is not added.
"""

from __future__ import annotations

import random

from . import steps as s
from .bridge import Bridge
from .order import Refused, Unordered


class Trying:
    """A program in the making."""

    def __init__(self, seed: int, model: Bridge) -> None:
        self.random = random.Random(seed)
        # Of its own: what strangers do does not change what else is drawn.
        self.strange = random.Random(f"strangers {seed}")
        self.model = model
        self.program: list[s.Step] = []
        self.made = 0
        self.pick = self.random.choice

    def push(self, step: s.Step | None) -> bool:
        """Add a step, with what it needs before it; False where the model refuses it."""
        if step is None:
            return False
        for _ in range(4):
            tried = self.model.copy()
            try:
                tried.take(step)
            except Unordered as unordered:
                if not self._order(unordered):
                    return False
            except Refused:
                return False
            else:
                self.model = tried
                self.program.append(step)
                return True
        return False

    def _order(self, unordered: Unordered) -> bool:
        """Order one of the accesses that a step has to come after."""
        if self.model.capture is not None:
            return False
        number = (unordered.missing & -unordered.missing).bit_length() - 1
        if number >= len(self.model.places):
            # An access of the step itself.
            return False
        first, then = self.model.places[number], unordered.place
        usable = {name for name in (first, then) if s.is_default(name) or name in self.model.named}
        if self.random.random() < 0.1 or first not in usable:
            return self.push(s.Sync(None))
        if then not in usable or self.random.random() < 0.3:
            return self.push(s.Sync(first))
        return self.push(s.Wait(then, first))

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"
