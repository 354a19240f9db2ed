"""Markdown pages about requirements that a library fails, for its issue tracker."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .exits import UsageError

if TYPE_CHECKING:
    from cai_bridge.conformance import Report, Verdict

LINES = 25
"""The most lines of a program on a page."""


def write_pages(reports: Sequence[Report], folder: str) -> Iterator[str]:
    """Write a page for each failed demand that has a cause of its own. Yields the paths.

    Raises
    ------
    UsageError
        The folder cannot be written.
    """
    for report in reports:
        for one in report.causes:
            if one.requirement.level != "must":
                continue
            name = re.sub(r"[^\w.-]+", "-", f"{report.subject}-{one.name}").strip("-")
            path = Path(folder) / f"{name}.md"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(page_of(report, one), encoding="utf-8")
            except OSError as error:
                raise UsageError(f"--report: got {folder!r}: {error}") from error
            yield str(path)


def page_of(report: Report, one: Verdict) -> str:
    """Make the page of a failed demand."""
    rule = one.requirement
    after = [name for name, cause in report.follows.items() if cause == one.name]
    versions = f"{report.place}, Python {platform.python_version()}"
    lines = [
        f"# {report.subject}: {rule.rule}",
        "",
        f"[{rule.specification.name}]({rule.specification.url}), {rule.section}:",
        "",
        f"> {rule.quote or rule.rule}",
        "",
        "```python",
        *one.program.splitlines(),
        "```",
        "",
        f"**What happens** ({versions}): {one.evidence}",
        "",
        f"**What should happen**: {rule.rule}. Otherwise {rule.why}.",
    ]
    if after:
        lines += ["", f"The same cause is likely behind {', '.join(after)}."]
    return "\n".join(lines) + "\n"
