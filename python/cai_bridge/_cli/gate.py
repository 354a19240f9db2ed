"""Results for a library's own CI: changes since an earlier run, and JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from xml.etree import ElementTree

from .exits import UsageError

if TYPE_CHECKING:
    from cai_bridge.conformance import Report

Key = tuple[str, str, str]
"""A library, its role, and a requirement."""


@dataclass(frozen=True)
class Compared:
    """The changes since an earlier run.

    Attributes
    ----------
    broken : tuple
        Requirements that fail now and did not before.
    mended : tuple
        Requirements that failed before and pass now.
    unjudged : tuple
        Requirements that passed before and are not judged any more. They may be broken.
    still : int
        How many requirements fail as before.
    demanded : frozenset
        The requirements that a specification demands.
    """

    broken: tuple[Key, ...]
    mended: tuple[Key, ...]
    unjudged: tuple[Key, ...]
    still: int
    demanded: frozenset[Key]

    @property
    def ok(self) -> bool:
        """Whether no demanded requirement is newly broken or not judged any more."""
        return not self.demanded & {*self.broken, *self.unjudged}

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as data for JSON."""
        told = {"broken": self.broken, "mended": self.mended, "unjudged": self.unjudged}
        return {"ok": self.ok, "still": self.still, **{k: [*map(list, v)] for k, v in told.items()}}

    def __str__(self) -> str:
        told = {
            "new failure": self.broken,
            "not judged any more": self.unjudged,
            "mended": self.mended,
        }
        lines = [
            f"  {what}: {subject} as a {role}, {name}"
            + ("" if (subject, role, name) in self.demanded else " (advice)")
            for what, keys in told.items()
            for subject, role, name in keys
        ]
        counts = ", ".join(f"{len(keys)} {what}" for what, keys in told.items())
        return "\n".join(
            [f"against the earlier run: {counts}; {self.still} fail as before", *lines]
        )


@dataclass(frozen=True)
class Earlier:
    """The outcomes of an earlier run."""

    outcomes: dict[Key, str]

    @classmethod
    def read(cls, path: str) -> Self:
        """Read a file that ``check --json --output`` wrote.

        Raises
        ------
        UsageError
            The file cannot be read, or has other content.
        """
        try:
            reports = json.loads(Path(path).read_text(encoding="utf-8"))["reports"]
            found = {
                (one["subject"], one["role"], verdict["requirement"]): str(verdict["outcome"])
                for one in reports
                for verdict in one["verdicts"]
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"--against: got {path!r}: {type(error).__name__}: {error}; allowed: a file that "
                "`check --json --output` wrote"
            ) from error
        return cls(found)

    def compared(self, reports: Iterable[Report]) -> Compared:
        """Compare with the outcomes of another run. A requirement new to it counts if it fails."""
        broken, mended, unjudged, still, demanded = [], [], [], 0, set()
        for report in reports:
            for one in report.verdicts:
                key = report.subject, report.role, one.name
                before = self.outcomes.get(key)
                if one.requirement.level == "must":
                    demanded.add(key)
                if one.outcome == "failed" and before == "failed":
                    still += 1
                elif one.outcome == "failed":
                    broken.append(key)
                elif one.outcome == "passed" and before == "failed":
                    mended.append(key)
                elif one.outcome == "skipped" and before == "passed":
                    unjudged.append(key)
        kept = frozenset(demanded)
        return Compared(tuple(broken), tuple(mended), tuple(unjudged), still, kept)


def junit_of(reports: Sequence[Report]) -> str:
    """Format verdicts as JUnit XML: a suite per report. Unmet advice is a skipped test."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        kinds = [one.called for one in report.verdicts]
        skipped = kinds.count("skipped") + kinds.count("advice")
        counts = {"tests": len(kinds), "failures": kinds.count("failed"), "skipped": skipped}
        name = f"{report.subject} as a {report.role}"
        attributes = {"name": _plain(name), **{key: str(one) for key, one in counts.items()}}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for one in report.verdicts:
            case = {"classname": _plain(name), "name": one.name}
            element = ElementTree.SubElement(suite, "testcase", case)
            if one.called != "passed":
                tag = "failure" if one.called == "failed" else "skipped"
                message = _plain(f"{one.requirement.rule}; seen: {one.evidence}")
                inner = ElementTree.SubElement(element, tag, {"message": message})
                inner.text = _plain(one.program) if tag == "failure" else None
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _plain(text: str) -> str:
    """Remove characters that XML does not allow."""
    return "".join(one for one in text if one in "\t\n" or one.isprintable())
