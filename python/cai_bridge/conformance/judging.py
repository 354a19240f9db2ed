"""Judging one requirement, in each of its cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .cases import Case, cases_of, shared
from .missing import MissingMemberError
from .report import Outcome, Verdict
from .requirement import NotApplicableError, Requirement, UnmetError, needs
from .tracebacks import traceback_of


def text_of(error: BaseException) -> str:
    """Read an exception's text, which may raise in its turn."""
    try:
        return str(error)
    except Exception as another:
        return f"its text raised {type(another).__name__}"


@dataclass(frozen=True)
class _Seen:
    """What came of one case."""

    case: Case
    outcome: Outcome
    evidence: str
    traceback: str = ""
    raised: str = ""
    missing: tuple[str, str] = ("", "")


def judge(requirement: Requirement, adapter: Any, lab: Any) -> Verdict:
    """Run one requirement's check, in each of its cases.

    What the library raises by itself is a failure, too: the check did nothing but what the
    specification allows.
    """
    dtypes = getattr(adapter, "dtypes", ())
    cases = cases_of(requirement.over, dtypes, thorough=lab.thorough)
    seen = []
    for number, case in enumerate(cases):
        with _rounds(lab, 1 if number else lab.rounds):
            seen.append(_judge_in(requirement, case, adapter, lab))
    failed = [one for one in seen if one.outcome == "failed"]
    judged = [one for one in seen if one.outcome != "skipped"]
    if failed:
        return _failure(requirement, failed, judged, adapter, lab)
    if judged:
        text = judged[0].evidence
        many = "" if len(seen) == 1 else f" ({_count(judged, seen)})"
        return Verdict(requirement, "passed", text + many)
    member, place = seen[0].missing
    return Verdict(requirement, "skipped", seen[0].evidence, missing=member, missing_in=place)


def _failure(
    requirement: Requirement, failed: list[_Seen], judged: list[_Seen], adapter: Any, lab: Any
) -> Verdict:
    first = failed[0]
    evidence = first.evidence
    if len(judged) > 1:
        by = shared([one.case for one in failed], [one.case for one in judged])
        what = f"{len(failed)} of {len(judged)} cases" + (f", by {by}" if by else "")
        evidence += f" ({what}; here {first.case})"
    program = requirement.program(adapter.subject, lab.where, first.case)
    cases = tuple(one.case for one in failed)
    return Verdict(
        *(requirement, "failed", evidence, program, first.traceback),
        cases=cases,
        raised=first.raised,
    )


def _count(judged: list[_Seen], seen: list[_Seen]) -> str:
    left = [one for one in seen if one.outcome == "skipped"]
    told = f"{len(judged)} cases"
    if left:
        told += f"; {len(left)} more not judged, such as {left[0].case}: {left[0].evidence}"
    return told


@contextmanager
def _rounds(lab: Any, rounds: int) -> Iterator[None]:
    """Try what depends on timing so often; the plain case stands for the others."""
    before, lab.rounds = lab.rounds, rounds
    try:
        yield
    finally:
        lab.rounds = before


def _judge_in(requirement: Requirement, case: Case, adapter: Any, lab: Any) -> _Seen:
    """Run the check in one case."""
    arguments = (case,) if requirement.over else ()
    try:
        with lab.fresh():
            door = requirement.door
            taken = requirement.role == "producer" or door in adapter.doors
            needs(taken, f"{adapter.name} takes no arrays by {door}")
            evidence = requirement.check(adapter, lab, *arguments, **requirement.given) or ""
    except MissingMemberError as needed:
        return _Seen(case, "skipped", str(needed), missing=(needed.member, needed.place))
    except NotApplicableError as reason:
        return _Seen(case, "skipped", str(reason))
    except UnmetError as unmet:
        return _Seen(case, "failed", str(unmet))
    except (Exception, SystemExit) as error:
        raised = f"{type(error).__name__}: {text_of(error)}"
        return _Seen(case, "failed", f"raised {raised}", traceback_of(error), raised)
    return _Seen(case, "passed", evidence)
