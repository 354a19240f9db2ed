"""Judging one requirement, in each of its cases."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .cases import AXES, PLAIN, Case, combined_cases, shared, single_cases, with_dtypes
from .lab import CaiArray, DLPackArray
from .place import expect_judged
from .reference import Consumer, Producer, reference_of
from .refusals import NotTakenError, noted
from .requirement import (
    NoMemoryError,
    NotApplicableError,
    Requirement,
    UnmetError,
    needs,
    requirements,
)
from .surroundings import surrounded
from .tracebacks import traceback_of
from .verdict import Outcome, Verdict


def text_of(error: BaseException) -> str:
    """Return an exception's text. Making the text may raise an exception, too."""
    try:
        return str(error)
    except Exception as another:
        return f"its text raised {type(another).__name__}"


@dataclass(frozen=True)
class _Seen:
    """The outcome of one case."""

    case: Case
    outcome: Outcome
    evidence: str
    traceback: str = ""
    raised: str = ""
    missing: tuple[str, str] = ("", "")


@contextmanager
def _collecting_little(lab: Any) -> Iterator[None]:
    """Let garbage collections look at new objects only; a lab that is timed does this itself."""
    if lab.timed:
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def judge(requirement: Requirement, adapter: Any, lab: Any) -> Verdict:
    """Run one requirement's check in each of its cases.

    An exception of the library is a failure, too: a check only does what the specification allows.
    """
    with _collecting_little(lab):
        seen = _seen_of(requirement, adapter, lab)
    failed = [one for one in seen if one.outcome == "failed"]
    judged = [one for one in seen if one.outcome != "skipped"]
    if failed:
        return _failure(requirement, failed, judged, adapter, lab)
    if judged:
        text = judged[0].evidence
        many = "" if len(seen) == 1 else f" ({_count(judged, seen)})"
        member, place = seen[0].missing
        text += many
        return Verdict(requirement, "passed", text, missing=member, missing_in=place)
    member, place = seen[0].missing
    return Verdict(requirement, "skipped", seen[0].evidence, missing=member, missing_in=place)


def _seen_of(requirement: Requirement, adapter: Any, lab: Any) -> list[_Seen]:
    """Run the check with each value alone, then with combinations of the values that passed."""
    over = with_dtypes(requirement.over, getattr(adapter, "dtypes", ()))
    seen = []
    for number, case in enumerate(single_cases(over)):
        with _rounds(lab, 1 if number else lab.rounds):
            seen.append(_trusted(requirement, case, adapter, lab))
    if seen[0].outcome != "passed":
        return seen
    # A value that failed or was skipped alone tells no more in combination.
    for case in combined_cases(_passing(over, seen), thorough=lab.thorough):
        with _rounds(lab, 1):
            seen.append(_trusted(requirement, case, adapter, lab))
    for case in _left_out(over, seen):
        with _rounds(lab, 1):
            seen.append(_trusted(requirement, case, adapter, lab))
    return seen


def _left_out(over: dict[str, tuple[str, ...]], seen: list[_Seen]) -> list[Case]:
    """List a case for each pair of values that occurs only in skipped cases."""
    plain = seen[0].case
    told = {pair for one in seen if one.outcome != "skipped" for pair in _pairs(plain, one.case)}
    alone = {one.case for one in seen}
    left = {
        pair: None for one in seen if one.outcome == "skipped" for pair in _pairs(plain, one.case)
    }
    cases = (plain.but(**dict(pair)) for pair in left if pair not in told)
    return [one for one in cases if one not in alone and {*one.odd} & {*over}]


def _pairs(plain: Case, case: Case) -> list[tuple[tuple[str, str], ...]]:
    odd = [(axis, case.at(axis)) for axis in AXES if case.at(axis) != plain.at(axis)]
    return list(itertools.combinations(odd, 2))


def _trusted(requirement: Requirement, case: Case, adapter: Any, lab: Any) -> _Seen:
    """Judge one case; a failure that the kit's own library shares is the lab's fault."""
    seen = _judge_in(requirement, case, adapter, lab)
    if seen.outcome != "failed":
        return seen
    for _ in range(TRIES - 1 if lab.timed and requirement.of_cuda else 0):
        again = _judge_in(requirement, case, adapter, lab)
        if again.outcome != "failed":
            return _Seen(case, "skipped", f"{SOMETIMES}: {seen.evidence}")
    own = _of_the_kits_own(requirement, case, adapter, lab)
    if own is None or own.outcome != "failed":
        return seen
    return _Seen(case, "skipped", f"{LAB_FAILS}: {own.evidence}")


TRIES = 3
"""How often a case fails, on a device that is timed, before it counts."""

SOMETIMES = "not judged: it failed, and did not at another try"
LAB_FAILS = "not judged: the lab itself fails here, by the kit's own library"


def _of_the_kits_own(requirement: Requirement, case: Case, adapter: Any, lab: Any) -> _Seen | None:
    """Judge the kit's own library in a case, once; None if it lacks that kind of memory."""
    is_its_own = isinstance(adapter, Producer | Consumer)
    if lab.where == "host" or is_its_own or requirement.name == "exchange-errors":
        # A function in Python cannot return an error with no exception set, as C code can.
        return None
    own = reference_of(requirement.role, adapter, lab)
    key = requirement.name, case, own
    if key not in lab.own:
        lab.own[key] = _judge_in(requirement, case, own, lab)
    seen: _Seen = lab.own[key]
    return seen


def _passing(over: dict[str, tuple[str, ...]], seen: list[_Seen]) -> dict[str, tuple[str, ...]]:
    """Keep the values that passed with plain values on all other axes."""
    passed = {one.case for one in seen if one.outcome == "passed"}
    plain = seen[0].case
    return {
        axis: tuple(one for one in some if plain.but(**{axis: one}) in passed)
        for axis, some in over.items()
    }


def _failure(
    requirement: Requirement, failed: list[_Seen], judged: list[_Seen], adapter: Any, lab: Any
) -> Verdict:
    first = failed[0]
    evidence = first.evidence
    if len(judged) > len(failed):
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
    left.sort(key=lambda one: not one.evidence.startswith((LAB_FAILS, SOMETIMES)))
    told = f"{len(judged)} cases"
    if left:
        told += f"; {len(left)} more not judged, such as {left[0].case}: {left[0].evidence}"
    return told


@contextmanager
def _rounds(lab: Any, rounds: int) -> Iterator[None]:
    """Use this many rounds for checks that depend on timing."""
    before, lab.rounds = lab.rounds, rounds
    try:
        yield
    finally:
        lab.rounds = before


def _judge_in(requirement: Requirement, case: Case, adapter: Any, lab: Any) -> _Seen:
    """Run the check in one case."""

    def check() -> str:
        return requirement.check(adapter, lab, case, **requirement.given) or ""

    try:
        with lab.fresh(), noted() as refused:
            door = requirement.door
            taken = requirement.role == "producer" or door in adapter.doors
            needs(taken, f"{adapter.name} takes no arrays by {door}")
            expect_judged(requirement, lab)
            evidence = surrounded(adapter, lab, case, check)
        if refused and requirement.role == "consumer":
            _expect_plain(requirement, adapter, lab, str(refused[0]))
    except NotTakenError as refused:
        teller = _told_by(requirement, refused)
        told = _Seen(case, "skipped", f"not taken, of which {teller} tells: {refused}")
        return told if teller else _raised(case, refused.error)
    except NotApplicableError as reason:
        missing = getattr(reason, "member", ""), getattr(reason, "place", "")
        return _Seen(case, "skipped", str(reason), missing=missing)
    except UnmetError as unmet:
        # A failure of one of these classes has the same cause in every requirement.
        kind = "" if type(unmet) is UnmetError else type(unmet).__name__
        return _Seen(case, "failed", str(unmet), raised=kind)
    except (Exception, SystemExit) as error:
        return _raised(case, error)
    return _Seen(case, "passed", evidence)


def _raised(case: Case, error: BaseException) -> _Seen:
    told = f"{type(error).__name__}: {text_of(error)}"
    # The driver's name for the error that the lab finds by itself as well.
    raised = NoMemoryError.__name__ if "ILLEGAL_ADDRESS" in told else told
    return _Seen(case, "failed", f"raised {told}", traceback_of(error), raised)


_OF_AN_ARRAY = ("form", "asking", "dtype", "layout", "memory", "flag")


def _told_by(requirement: Requirement, refused: NotTakenError) -> str:
    """Name the requirement that reports this refusal; empty if it is `requirement` itself.

    It is the first requirement that is about one of the array's unusual values and has cases with
    all the others. If there is none, every requirement about one of the values reports it.
    """
    case = refused.case
    values = {axis: case.at(axis) for axis in _OF_AN_ARRAY}
    found = [one for one in requirements("consumer") if one.door == requirement.door]
    tellers = [one for one in found if refused.named and "theirs" in one.tells]
    for axis, value in values.items():
        if value != PLAIN[axis]:
            tellers += [one for one in found if value in one.tells.get(axis, ())]
            if axis == "dtype":
                tellers += [one for one in found if one.about == axis]
    able = [one for one in tellers if _has_cases(one, values)]
    names = [one.name for one in able[:1] or tellers]
    return "" if not names or requirement.name in names else names[0]


def _has_cases(one: Requirement, values: dict[str, str]) -> bool:
    return all(
        axis == "dtype" or value in (*one.over.get(axis, (value,)), *one.tells.get(axis, ()))
        for axis, value in values.items()
    )


def _expect_plain(requirement: Requirement, adapter: Any, lab: Any, refused: str) -> None:
    """Skip the requirement if the library refuses the plain array as well."""
    kind = requirement.given.get("kind") or (CaiArray if requirement.door == "cai" else DLPackArray)
    try:
        with lab.fresh():
            x = kind(lab)
            right = x.holds(adapter.values(adapter.copy(adapter.take(x))))
    except Exception as error:
        raise NotApplicableError(
            f"{refused}; and so is the plain array: {type(error).__name__}: {text_of(error)}"
        ) from None
    needs(right, f"{refused}; and the plain array is read wrong")
