"""The verdict on one requirement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .cases import Case
from .requirement import Requirement

Outcome = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Verdict:
    """The verdict on one requirement.

    Attributes
    ----------
    requirement : Requirement
        The requirement, with its section.
    outcome : str
        ``"passed"``, ``"failed"``, or ``"skipped"``: it does not apply, or cannot be tested here.
    evidence : str
        The library's behaviour; for a skipped requirement, the reason.
    program : str
        The smallest program that shows a failure; otherwise empty.
    traceback : str
        Where the library or its adapter raised an exception or crashed; otherwise empty.
    missing : str
        The member that the adapter needs for this requirement, such as ``"stream()"``.
    missing_in : str
        The adapter's class or function, with file and line.
    cases : tuple of Case
        The cases in which the requirement failed.
    raised : str
        The exception that the library or its adapter raised, by its class and text; empty if none.
    """

    requirement: Requirement
    outcome: Outcome
    evidence: str
    program: str = ""
    traceback: str = ""
    missing: str = ""
    missing_in: str = ""
    cases: tuple[Case, ...] = ()
    raised: str = ""

    @property
    def name(self) -> str:
        """The requirement's name."""
        return self.requirement.name

    @property
    def called(self) -> str:
        """The outcome's name in a report: a failed recommendation is called advice."""
        is_advice = self.outcome == "failed" and self.requirement.level == "should"
        return "advice" if is_advice else self.outcome

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as data for JSON."""
        one = self.requirement
        return {
            "requirement": one.name,
            "level": one.level,
            "specification": one.specification.name,
            "section": one.section,
            "rule": one.rule,
            "outcome": self.outcome,
            "evidence": self.evidence,
            "program": self.program,
            "traceback": self.traceback,
            "missing": self.missing,
            "missing_in": self.missing_in,
            "cases": [one.to_dict() for one in self.cases],
            "raised": self.raised,
        }
