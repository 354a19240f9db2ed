"""The report of a check: all verdicts on one library."""

from __future__ import annotations

import functools
import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import Any

from .causes import follows
from .verdict import Verdict


class ConformanceError(AssertionError):
    """A library does not meet the protocols' requirements.

    Attributes
    ----------
    report : Report
        All verdicts.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(str(report))


@dataclass(frozen=True)
class Report:
    """The verdicts on one library.

    Attributes
    ----------
    subject : str
        The library.
    role : str
        ``"producer"`` or ``"consumer"``.
    place : str
        The device of the lab.
    verdicts : tuple of Verdict
        The verdicts, in the order of `requirements`.
    """

    subject: str
    role: str
    place: str
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Whether there are verdicts, and no "must" requirement failed."""
        demanded = any(one.requirement.level == "must" for one in self.failed)
        return not demanded and any(one.outcome != "skipped" for one in self.verdicts)

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The failed requirements, recommendations included."""
        return tuple(one for one in self.verdicts if one.outcome == "failed")

    @functools.cached_property
    def follows(self) -> dict[str, str]:
        """Map each failure that another failure explains to its likely cause.

        See `conformance.causes.follows`.
        """
        return follows(self.failed)

    @property
    def causes(self) -> tuple[Verdict, ...]:
        """The failures that follow from no other failure, "must" requirements first."""
        first = [one for one in self.failed if one.name not in self.follows]
        return tuple(sorted(first, key=lambda one: one.requirement.level != "must"))

    def __getitem__(self, name: str) -> Verdict:
        """Find a requirement's verdict by its name."""
        for one in self.verdicts:
            if one.name == name:
                return one
        raise KeyError(name)

    def raise_for_failures(self) -> None:
        """Raise if a "must" requirement failed, or if every requirement was skipped.

        Raises
        ------
        ConformanceError
            A requirement failed. The message is the report.
        """
        if not self.ok:
            raise ConformanceError(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {
            "subject": self.subject,
            "role": self.role,
            "place": self.place,
            "ok": self.ok,
            "follows": dict(self.follows),
            "verdicts": [one.to_dict() for one in self.verdicts],
        }

    def summary(self) -> str:
        """Return the numbers of verdicts, in one line."""
        counts = Counter(one.called for one in self.verdicts)
        kinds = ["passed", "failed", *(["advice"] if counts["advice"] else []), "skipped"]
        said = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
        nothing = "" if counts.total() > counts["skipped"] else ": nothing was judged"
        if self.follows:
            count = len(self.causes)
            said += f" ({count} cause{'s' if count != 1 else ''})"
        return f"{self.subject} as a {self.role} on {self.place}: {said}{nothing}"

    def __str__(self) -> str:
        return self.told()

    def told(self, *, whole: bool = False) -> str:
        """Return the report: one line per requirement, then each cause with its program.

        Parameters
        ----------
        whole : bool, optional
            Whether failures that follow from a cause are described in full, too.
        """
        width = max((len(one.name) for one in self.verdicts), default=0)
        lines = [self.summary()]
        for one in self.verdicts:
            told = one.evidence
            if one.name in self.follows and not whole:
                told = f"likely follows from {self.follows[one.name]}"
            lines.append(f"  {one.called:8}{one.name:{width}}  {_line(told)}")
        for one in self.failed if whole else self.causes:
            lines += self._told(one)
        return "\n".join([*lines, *self._missing()])

    def _told(self, one: Verdict) -> list[str]:
        """Describe a failure: the rule and its sentence, the evidence, and the program."""
        rule = one.requirement
        lines = ["", f"{one.name}: {rule.rule}", f"  {rule.citation}"]
        lines += [f'  "{rule.quote}"'] if rule.quote else []
        lines += [f"  otherwise: {rule.why}", f"  seen: {one.evidence}"]
        after = [name for name, cause in self.follows.items() if cause == one.name]
        if after:
            lines.append(f"  likely from the same cause: {', '.join(after)}")
        lines.append("")
        if one.traceback:
            lines += [textwrap.indent(one.traceback, "    "), ""]
        return [*lines, textwrap.indent(one.program, "    ")]

    @property
    def skipped(self) -> dict[str, tuple[str, ...]]:
        """The names of the skipped requirements by reason, the commonest reason first."""
        found: dict[str, tuple[str, ...]] = {}
        for one in self.verdicts:
            if one.outcome == "skipped":
                found[one.evidence] = (*found.get(one.evidence, ()), one.name)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def missing(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """List the members that the adapter needs for more verdicts.

        Returns
        -------
        dict
            The names of requirements, by the member, such as ``"stream()"``, and by the class or
            function that lacks it, with file and line.
        """
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for one in self.verdicts:
            if one.missing:
                key = one.missing, one.missing_in
                found[key] = (*found.get(key, ()), one.name)
        return found

    def _missing(self) -> list[str]:
        lines = []
        for (member, place), names in self.missing().items():
            at = f" in {place}" if place else ""
            what = names[0] if len(names) == 1 else f"{len(names)} requirements"
            lines.append(f"  def {member}{at}: {what}")
        return ["", "The adapter can add more:", *lines] if lines else []


def _line(text: str, width: int = 100) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 1] + "…"
