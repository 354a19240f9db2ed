"""``cai-bridge check``: libraries judged by what the protocols require of them."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import page
from .exits import FAILED, OK, UsageError
from .progress import Progress
from .subjects import adapters_named

if TYPE_CHECKING:
    from cai_bridge.conformance import Lab, Report


@dataclass(frozen=True)
class Task:
    """A library in one role, and the requirements that it is judged by."""

    role: str
    adapter: Any
    names: tuple[str, ...]


def tasks(subjects: Sequence[str], role: str, only: Sequence[str]) -> list[Task]:
    """List what is to be judged.

    Parameters
    ----------
    subjects : sequence of str
        Libraries, or ``module:factory``.
    role : str
        ``"producer"``, ``"consumer"`` or ``"both"``; empty for those that each has.
    only : sequence of str
        Names of requirements, or patterns of them such as ``"cai-*"``; none for all.

    Raises
    ------
    UsageError
        There is no such subject, role or requirement.
    """
    names = _names(only)
    found = [
        Task(one, adapter, names[one])
        for subject in subjects
        for one, adapter in adapters_named(subject, role).items()
        if names[one]
    ]
    if not found:
        raise UsageError(f"--only {' '.join(only)} has no requirement of that role")
    return found


def _names(only: Sequence[str]) -> dict[str, tuple[str, ...]]:
    from cai_bridge.conformance import requirements

    every = {
        "producer": [one.name for one in requirements("producer")],
        "consumer": [one.name for one in requirements("consumer")],
    }
    for pattern in only:
        if not any(fnmatch.filter(names, pattern) for names in every.values()):
            known = ", ".join(name for names in every.values() for name in names)
            raise UsageError(f"--only: got {pattern!r}; allowed: patterns of {known}")
    return {
        role: tuple(n for n in names if not only or any(fnmatch.fnmatch(n, one) for one in only))
        for role, names in every.items()
    }


def judged(wanted: Sequence[Task], where: str | None) -> Iterator[Report]:
    """Judge each task, and show how far it is.

    Raises
    ------
    UsageError
        There is no place to judge.
    """
    from cai_bridge.conformance import open_lab

    with Progress(sum(len(task.names) for task in wanted)) as progress:
        for task in wanted:
            with ExitStack() as stack:
                try:
                    lab = stack.enter_context(open_lab(where))  # type: ignore[arg-type]
                except RuntimeError as error:
                    raise UsageError(str(error)) from error
                if not lab.timed:
                    yield _here(task, lab, progress)
                    continue
            yield _apart(task, progress)


def _here(task: Task, lab: Lab, progress: Progress) -> Report:
    """Judge in this process."""
    from cai_bridge.conformance import Report, check_consumer, check_producer

    check = {"producer": check_producer, "consumer": check_consumer}
    verdicts: list[Any] = []
    for name in task.names:
        progress.step(f"{task.adapter.name} as a {task.role}: {name}")
        verdicts += check[task.role](task.adapter, only=name, lab=lab).verdicts
    return Report(task.adapter.name, task.role, lab.name, tuple(verdicts))


def _apart(task: Task, progress: Progress) -> Report:
    """Judge in processes of their own, on a GPU: some libraries end the process that tries them."""
    from cai_bridge.conformance.isolated import check_isolated

    def told(name: str) -> None:
        progress.step(f"{task.adapter.name} as a {task.role}: {name}")

    return check_isolated(
        "producer" if task.role == "producer" else "consumer",
        task.adapter.subject,
        only=task.names,
        where="gpu",
        progress=told,
    )


def run(
    subjects: Sequence[str],
    *,
    role: str,
    only: Sequence[str],
    where: str | None,
    as_json: bool,
    html: str | None,
) -> int:
    """Print a report for each subject and role; fail where something that is demanded failed."""
    if html:
        # Asked for first, so that nobody waits for minutes to be told what to install.
        page.templates()
    reports = list(judged(tasks(subjects, role, only), where))
    ok = all(report.ok for report in reports)
    if html:
        # Before anything is printed: whoever reads that may have enough of it.
        page.write(html, page.of_reports(reports))
    if as_json:
        print(json.dumps({"ok": ok, "reports": [one.to_dict() for one in reports]}, indent=2))
    else:
        print("\n\n".join(str(report).rstrip() for report in reports))
    return OK if ok else FAILED
