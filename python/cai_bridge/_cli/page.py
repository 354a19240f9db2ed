"""Self-contained HTML pages: no script, no font, nothing fetched."""

from __future__ import annotations

import datetime
import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cai_bridge import __version__

from .exits import UsageError
from .machine import this_interpreter
from .marks import VERDICTS
from .text import escaped

if TYPE_CHECKING:
    from cai_bridge.conformance import Report, Verdict


def templates() -> Any:
    """Load the templates.

    Raises
    ------
    UsageError
        Jinja is not installed.
    """
    try:
        import jinja2
    except ImportError as missing:
        raise UsageError(
            "--html needs Jinja, which is not installed: pip install jinja2"
        ) from missing
    return jinja2.Environment(
        loader=jinja2.PackageLoader("cai_bridge._cli"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def write(path: str, text: str) -> None:
    """Write a file.

    Raises
    ------
    UsageError
        The file cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError) as error:  # ValueError if the path contains a NUL
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def check_asked(html: str | None) -> None:
    """Refuse a page that cannot be made, before a run of minutes starts.

    Raises
    ------
    UsageError
        The file cannot be written, or Jinja is not installed.
    """
    check_path("--html", html)
    if html:
        templates()


def check_path(option: str, path: str | None) -> None:
    """Refuse an unwritable file before a run of minutes starts; leave it as it is.

    Raises
    ------
    UsageError
        The path is empty, a folder, in a missing folder, or not writable.
    """
    if path is None:
        return
    if path == "":
        raise UsageError(f"{option}: got no path; allowed: one")
    folder = Path(path).parent
    written = path if Path(path).exists() else folder
    if Path(path).is_dir():
        reason = errno.EISDIR
    elif not folder.exists():
        reason = errno.ENOENT
    elif not folder.is_dir():
        reason = errno.ENOTDIR
    elif not os.access(written, os.W_OK):
        reason = errno.EACCES
    else:
        return
    raise UsageError(f"{path}: {os.strerror(reason)}")


@contextmanager
def written(files: Mapping[str, str]) -> Iterator[None]:
    """Write files after the block has printed its results.

    The results may have taken minutes. If a file cannot be written, they are still printed. If the
    output is closed early, the files are still written.

    Raises
    ------
    UsageError
        A file cannot be written. All other files are written.
    """
    refused: list[str] = []
    try:
        yield
        sys.stdout.flush()
    except UsageError as error:
        refused.append(str(error))
    finally:
        for path, text in files.items():
            try:
                write(path, text)
            except UsageError as error:
                refused.append(str(error))
        if refused:
            raise UsageError("; ".join(refused))


def rendered(
    template: str, title: str, lead: str, facts: dict[str, str], generated: str = "", **data: Any
) -> str:
    """Render a template.

    Parameters
    ----------
    template : str
        The template's name.
    title, lead : str
        The page's title, and its first sentence.
    facts : dict
        The device, the versions, and similar facts.
    generated : str
        When the data was made, in ISO 8601; by default now.
    data : object
        The template's variables.
    """
    generated = generated or now()
    head = {
        "title": title,
        "lead": lead,
        "facts": [(name, text) for name, text in facts.items() if text],
        "bridge": __version__,
        "generated": generated,
        "date": generated.replace("T", " ").replace("+00:00", " UTC"),
    }
    return escaped(str(templates().get_template(template).render(page=head, **data)))


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def of_reports(reports: Sequence[Report]) -> str:
    """Render the page of a check."""
    subjects = list(dict.fromkeys(report.subject for report in reports))
    met = sum(report.ok for report in reports)
    lead = f"{met} of {len(reports)} meet what the specifications demand of them."
    if len(reports) == 1:
        verb = "meets" if reports[0].ok else "does not meet"
        lead = f"{subjects[0]} {verb} what the specifications demand of a {reports[0].role}."
        if all(one.outcome == "skipped" for one in reports[0].verdicts):
            lead = f"Nothing that the specifications demand of a {reports[0].role} was judged."
    facts = {
        "Judged on": ", ".join(dict.fromkeys(report.place for report in reports)),
        "Python": str(this_interpreter()),
        "Libraries": ", ".join(_versions(subjects)),
    }
    return rendered(
        "report.html.jinja",
        f"Conformance of {', '.join(subjects)}",
        lead,
        facts,
        kinds=list(reversed(VERDICTS.values())),
        reports=[_report(report, index) for index, report in enumerate(reports, 1)],
    )


def _versions(subjects: Sequence[str]) -> list[str]:
    from .libraries import find_libraries

    return [
        f"{one.name} {one.version}"
        for one in find_libraries()
        if any(one.name in subject for subject in subjects)
    ]


def _report(report: Report, index: int) -> dict[str, Any]:
    verdicts = [
        _verdict(one, f"report-{index}-{number}") for number, one in enumerate(report.verdicts, 1)
    ]
    counts = [
        f"{sum(one['kind'] is mark for one in verdicts)} {mark.word}"
        for mark in reversed(VERDICTS.values())
    ]
    return {
        "id": f"report-{index}",
        "subject": report.subject,
        "role": report.role,
        "summary": ", ".join(counts) + ".",
        "failed": [one for one in verdicts if one["failed"]],
        "missing": [
            {"member": member, "place": place, "names": names}
            for (member, place), names in report.missing().items()
        ],
        "verdicts": verdicts,
    }


def _verdict(verdict: Verdict, identity: str) -> dict[str, Any]:
    rule = verdict.requirement
    failed = verdict.outcome == "failed"
    return {
        "id": identity,
        "name": rule.name,
        "kind": VERDICTS["advice" if failed and rule.level == "should" else verdict.outcome],
        "failed": failed,
        "rule": rule.rule,
        "why": rule.why,
        "specification": rule.specification.name,
        "url": rule.specification.url,
        "section": rule.section,
        "evidence": verdict.evidence,
        "traceback": verdict.traceback,
        "program": verdict.program.rstrip(),
    }
