"""A program in the making: what is drawn is tried, and added with what it lacks.

What is refused for another reason than that something has to come first is not added.
"""

from __future__ import annotations

import random

from .refusing import Lacking, Refused
from .step import Step


class Making:
    """A program in the making, of the steps that its model takes."""

    tries = 4
    """So often is a step tried, with one more thing before it each time."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice
        self.steps: list[Step] = []
        self.made = 0

    def take(self, step: Step) -> None:
        """Have the model take a step, or refuse it, and stay as it was."""
        raise NotImplementedError

    def mend(self, lacking: Lacking, step: Step) -> bool:
        """Add what has to come before a step; False where nothing does."""
        raise NotImplementedError

    def push(self, step: Step | None) -> bool:
        """Add a step, with what it needs before it; False where the model refuses it."""
        if step is None:
            return False
        for _ in range(self.tries):
            try:
                self.take(step)
            except Lacking as lacking:
                if not self.mend(lacking, step):
                    return False
            except Refused:
                return False
            else:
                self.steps.append(step)
                return True
        return False

    def pushed(self, step: Step | None) -> str | None:
        """Add a step, and name what it makes."""
        return step.makes() if step is not None and self.push(step) else None

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def value(self) -> int:
        """Make a value that no other write of the program has."""
        self.made += 1
        return self.made
