"""``cai-bridge inspect``: what the protocols say about an object, and whether they agree."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from . import output
from .exits import FAILED, OK, UsageError
from .subjects import value_of
from .text import escaped
from .theirs import guarded


@dataclass(frozen=True)
class Inspection:
    """The result of inspecting one object."""

    description: Any
    """What each of its protocols says."""
    agree: bool | None
    """Whether the protocols agree; None if there is only one."""
    why: str
    """Where the protocols differ, or why there is nothing to compare."""

    def __str__(self) -> str:
        verdict = "The protocols agree." if self.agree else self.why
        return f"{self.description}\n\n{verdict}"

    @property
    def is_wrong(self) -> bool:
        """Whether the protocols contradict each other, or one is malformed or cannot be read."""
        return self.agree is False or any(one.problems or one.error for one in self.description)

    def to_dict(self) -> dict[str, Any]:
        """Return the inspection as data for JSON."""
        return {**self.description.to_dict(), "agree": self.agree, "why": self.why}


def inspect(subject: str) -> Inspection:
    """Evaluate ``module:expression``, and inspect the result.

    Raises
    ------
    UsageError
        There is no such object, or it speaks neither protocol.
    """
    from cai_bridge.testing import assert_equivalent, describe

    value = value_of(subject)
    with guarded(f"{subject!r} raised "):
        try:
            description = describe(value)
        except TypeError as error:
            such = f", such as {subject}()" if callable(value) else ""
            expression = subject.partition(":")[2]
            said = str(error).replace("x: got", f"{expression!r} gave", 1)
            raise UsageError(f"{said}{such}") from error
    if len(description.doors) < 2:
        why = f"It speaks only {', '.join(description.doors)}: nothing to compare."
        return Inspection(description, None, why)
    try:
        assert_equivalent(description)
    except AssertionError as difference:
        return Inspection(description, False, str(difference))
    return Inspection(description, True, "")


def run(subject: str, *, simulated: bool, as_json: bool, path: str | None) -> int:
    """Report the inspection. Fail if a protocol is malformed, unreadable or contradicted."""
    from cai_bridge.testing import simulated_cuda

    output.check_asked(path)
    # Ignore races: the code that made the array need not have waited.
    with simulated_cuda(check=False) if simulated else contextlib.nullcontext():
        found = inspect(subject)
    text = escaped(str(found))
    if as_json:
        text = output.as_json(found.to_dict(), to_file=path is not None)
    output.give(text, path)
    return FAILED if found.is_wrong else OK
