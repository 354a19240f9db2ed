"""Finds which failures likely follow from another one, so that a report names each cause once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .cases import PLAIN, Case, explains
from .layouts import traits_of

if TYPE_CHECKING:
    from .verdict import Verdict

OF_THE_ARRAY = ("layout", "dtype", "flag", "memory", "route", "form", "asking")
"""The axes that say which array is handed over, and how: a fault that one value of them shows is
the same fault wherever that value shows it."""


def follows(failed: Sequence[Verdict]) -> dict[str, str]:
    """Map each failure that another failure explains to the name of its likely cause.

    A failure follows a requirement that it rests on, if that requirement failed in cases that
    explain each of the failure's cases (see `conformance.cases.explains`). Otherwise it follows a
    failure with the same exception. If it failed only for unusual arrays, it may also follow a
    failure for the same unusual values. Among several, the cause is the first one that failed in
    its plain case or for its own axis.
    """
    found: dict[str, str] = {}
    by_name = {one.name: one for one in failed}
    for one in failed:
        causes = [by_name[name] for name in one.requirement.rests_on if name in by_name]
        for cause in causes:
            if _explains(cause, one) and not _is_more_at_home(one, cause):
                found[one.name] = cause.name
                break
    ranked = sorted(failed, key=lambda one: not _is_at_home(one))
    first: dict[str, Verdict] = {}
    for one in ranked:
        if one.raised:
            cause = first.setdefault(one.raised, one)
            if one.name not in found and _root(cause.name, found) != one.name:
                found[one.name] = cause.name
    for at, one in enumerate(ranked):
        if one.cases and one.name not in found and not _is_at_home(one):
            for cause in ranked[:at]:
                if _root(cause.name, found) != one.name and _explains(cause, one, same=True):
                    found[one.name] = cause.name
                    break
    return {name: _root(name, found) for name in found}


def _root(name: str, found: dict[str, str]) -> str:
    """Follow the causes from `name` to the first cause."""
    while name in found:
        name = found[name]
    return name


def _plain(one: Verdict, axis: str) -> str:
    return PLAIN[axis] if axis == "dtype" else one.requirement.over[axis][0]


def _is_plain(one: Verdict, case: Case) -> bool:
    return all(case.at(axis) == _plain(one, axis) for axis in one.requirement.over)


def _in_its_axis(one: Verdict) -> bool:
    """Whether the requirement failed only for unusual values of the axis that it is about."""
    axis = one.requirement.about
    return bool(axis and one.cases) and all(
        case.at(axis) != _plain(one, axis) for case in one.cases
    )


def _is_at_home(one: Verdict) -> bool:
    """Whether the requirement failed in its plain case, or for the axis that it is about."""
    return _in_its_axis(one) or any(_is_plain(one, case) for case in one.cases)


def _is_more_at_home(one: Verdict, cause: Verdict) -> bool:
    """Whether a failure explains its likely cause as well, and names the fault better."""
    return _is_at_home(one) and not _is_at_home(cause) and _explains(one, cause, same=True)


def _explains(cause: Verdict, one: Verdict, *, same: bool = False) -> bool:
    """Whether each failed case is explained by a case of `cause`; `same`: by a shared value."""
    over = cause.requirement.over
    odd = _oddness(cause)
    return all(
        any(
            explains(seen, over, case) and (not same or _shared(odd, seen, one, case))
            for seen in cause.cases
        )
        for case in one.cases
    )


def _oddness(cause: Verdict) -> tuple[str, ...]:
    """List the axes whose values may cause a failure; for a failed plain case, only its own."""
    over = [axis for axis in OF_THE_ARRAY if axis in cause.requirement.over]
    if any(_is_plain(cause, case) for case in cause.cases):
        over = [axis for axis in over if _plain(cause, axis) != PLAIN[axis]]
    return tuple(over)


def _shared(odd: tuple[str, ...], seen: Case, one: Verdict, case: Case) -> bool:
    """Whether two cases share an unusual value that the second requirement's plain case lacks."""
    for axis in odd:
        mine, other = seen.at(axis), case.at(axis)
        if axis not in one.requirement.over or other == _plain(one, axis):
            continue
        if mine == other != PLAIN[axis]:
            return True
        if axis == "layout" and traits_of(mine) and traits_of(mine) <= traits_of(other):
            return True
    return False
