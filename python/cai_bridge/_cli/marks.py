"""The letters of outcomes, which can be told apart without colour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """How an outcome is shown."""

    letter: str
    """The outcome's letter."""
    word: str
    """The outcome's name."""
    meaning: str
    """The outcome's meaning, for a legend."""
    style: str
    """The class in the style sheet, which also gives the colour on a terminal."""


DASH = "\u2013"

OUTCOMES: dict[str, Mark] = {
    "crashed": Mark("!", "crashed", "the process ended", "crashed"),
    "wrong": Mark("W", "wrong", "values or flags differ from the producer's, silently", "wrong"),
    "ignored": Mark(
        "I", "ignored", "the consumer ignored the read-only flag, and wrote", "ignored"
    ),
    "waits": Mark("B", "blocks", "right, but the host waits", "waits"),
    "refused": Mark("X", "refused", "an exception; nothing is lost", "refused"),
    "right": Mark("R", "right", "as the protocols say; the host does not wait", "right"),
    "none": Mark(DASH, "none", "no such route, or nothing to test", "none"),
}
"""The outcomes of a matrix, gravest first."""

VERDICTS: dict[str, Mark] = {
    "failed": Mark("F", "failed", "a requirement that a specification demands is not met", "wrong"),
    "advice": Mark(
        "A", "advice", "a requirement that a specification recommends is not met", "waits"
    ),
    "skipped": Mark(DASH, "skipped", "it does not apply, or cannot be tested here", "none"),
    "passed": Mark("P", "passed", "as the specification says", "right"),
}
"""The verdicts of a report, gravest first."""

COLOURS = {
    "right": "green",
    "wrong": "bold red",
    "refused": "default",
    "waits": "yellow",
    "ignored": "magenta",
    "crashed": "bold magenta",
    "none": "bright_black",
}
"""The style of each class on a terminal."""


def worst(outcomes: list[str]) -> str:
    """Return the gravest of the outcomes; ``"none"`` if there are none."""
    return min(outcomes, key=list(OUTCOMES).index, default="none")
