"""``cai-bridge check``: judges libraries by the requirements of the protocols."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from . import output, page
from .exits import FAILED, OK, UsageError
from .gate import Earlier, junit_of
from .progress import Progress
from .subjects import adapters_named
from .text import escaped, line
from .theirs import own_stdout
from .upstream import write_pages

if TYPE_CHECKING:
    from cai_bridge.conformance import Report
    from cai_bridge.conformance.requirement import Role

Where = Literal["simulated", "gpu"] | None


@dataclass(frozen=True)
class Task:
    """A library in one role, and the requirements to judge it by."""

    role: Role
    adapter: Any
    names: tuple[str, ...]

    def label(self, name: str) -> str:
        """Return the label of a requirement for the progress bar."""
        return line(f"{self.adapter.name} as a {self.role}: {name}")


def tasks(subjects: Sequence[str], role: str, only: Sequence[str]) -> list[Task]:
    """List the tasks.

    Parameters
    ----------
    subjects : sequence of str
        Libraries, or ``module:factory``.
    role : str
        ``"producer"``, ``"consumer"`` or ``"both"``; empty for the roles that each subject has.
    only : sequence of str
        Names of requirements, or patterns of them such as ``"cai-*"``; empty for all.

    Raises
    ------
    UsageError
        There is no such subject, role or requirement.
    """
    names = _names(only)
    found = [
        Task("producer" if one == "producer" else "consumer", adapter, names[one])
        for subject in subjects
        for one, adapter in adapters_named(subject, role).items()
        if names[one]
    ]
    if not found:
        raise UsageError(f"--only {' '.join(only)} has no requirement of that role")
    return found


def _names(only: Sequence[str]) -> dict[str, tuple[str, ...]]:
    from cai_bridge.conformance import requirements
    from cai_bridge.conformance.requirement import did_you_mean

    every = {
        "producer": [one.name for one in requirements("producer")],
        "consumer": [one.name for one in requirements("consumer")],
    }
    for pattern in only:
        if not any(fnmatch.filter(names, pattern) for names in every.values()):
            known = [name for names in every.values() for name in names]
            close = did_you_mean(pattern, known)
            raise UsageError(
                f"--only: got {pattern!r}{close}; allowed: patterns of {', '.join(known)}"
            )
    return {
        role: tuple(n for n in names if not only or any(fnmatch.fnmatch(n, one) for one in only))
        for role, names in every.items()
    }


def judged(wanted: Sequence[Task], where: Where, *, thorough: bool = False) -> Iterator[Report]:
    """Judge each task, and show the progress. With `thorough` every case is judged.

    Raises
    ------
    UsageError
        There is no device to judge on.
    """
    place = _place(where)
    with Progress(sum(len(task.names) for task in wanted)) as progress:
        for task in wanted:
            try:
                if place:
                    report = _apart(task, place, progress, thorough=thorough)
                else:
                    report = _here(task, progress, thorough=thorough)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(f"interrupted at {progress.label}") from None
            yield report


def _place(where: Where) -> Where:
    """Return where child processes judge; None if this process must."""
    from cai_bridge.conformance import open_lab
    from cai_bridge.testing import SimulatedCuda

    if where != "gpu" and SimulatedCuda.current() is not None:
        # The caller's own device must be used, and a child process would not have it.
        return None
    try:
        with open_lab(where) as lab:
            return "gpu" if lab.timed else "simulated"
    except RuntimeError as error:
        raise UsageError(str(error)) from error


def _here(task: Task, progress: Progress, *, thorough: bool) -> Report:
    """Judge in this process."""
    from cai_bridge.conformance import Report, open_lab
    from cai_bridge.conformance.judging import judge
    from cai_bridge.conformance.place import judged_on
    from cai_bridge.conformance.requirement import chosen

    verdicts = []
    with own_stdout(), open_lab() as lab:
        lab.thorough = thorough
        place = judged_on(task.role, task.adapter, lab)
        for one in chosen(task.role, task.names):
            progress.step(task.label(one.name))
            verdicts.append(judge(one, task.adapter, place))
    return Report(task.adapter.name, task.role, place.name, tuple(verdicts))


def _apart(task: Task, place: Where, progress: Progress, *, thorough: bool) -> Report:
    """Judge in a child process, since some libraries crash or hang the process that tries them."""
    from cai_bridge.conformance.isolated import check_isolated

    try:
        return check_isolated(
            task.role,
            task.adapter.subject,
            only=task.names,
            where=place,
            thorough=thorough,
            progress=lambda name: progress.step(task.label(name)),
        )
    except (ValueError, RuntimeError) as error:
        raise UsageError(str(error)) from error


def _printable(report: Report) -> str:
    """Format a report with each name on one line, and without a terminal's control characters."""
    return escaped(str(replace(report, subject=line(report.subject))).rstrip())


def run(
    subjects: Sequence[str],
    *,
    role: str,
    only: Sequence[str],
    where: Where,
    thorough: bool,
    as_json: bool,
    path: str | None,
    html: str | None,
    against: str | None = None,
    junit: str | None = None,
    pages: str | None = None,
) -> int:
    """Report on each subject and role. Fail if a demanded requirement failed.

    With `against`, fail only if it did not fail in the earlier run.

    Raises
    ------
    UsageError
        Nothing was judged.
    """
    page.check_asked(html)
    output.check_asked(path)
    page.check_path("--junit", junit)
    earlier = Earlier.read(against) if against else None
    reports = list(judged(tasks(subjects, role, only), where, thorough=thorough))
    ok = all(report.ok for report in reports)
    if as_json:
        data = {"ok": ok, "reports": [one.to_dict() for one in reports]}
        text = output.as_json(data, to_file=path is not None)
    else:
        text = "\n\n".join(map(_printable, reports))
    if earlier is not None:
        found = earlier.compared(reports)
        ok = found.ok
        if as_json:
            data["against"] = found.to_dict()
            text = output.as_json({**data, "ok": ok}, to_file=path is not None)
        else:
            text += f"\n\n{escaped(str(found))}"
    more = {html: page.of_reports(reports)} if html else {}
    more |= {junit: junit_of(reports)} if junit else {}
    output.give(text, path, more)
    if pages:
        for written in write_pages(reports, pages):
            print(written, file=sys.stderr)
    if all(one.outcome == "skipped" for report in reports for one in report.verdicts):
        raise UsageError("nothing was judged: every requirement was skipped; the report says why")
    return OK if ok else FAILED
