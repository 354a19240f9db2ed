"""Work that is pending on the kit's own arrays, and what a consumer that takes them then sees."""

from __future__ import annotations

from typing import Any

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, DLPackArray, Lab, flat, handle_of
from ..requirement import expect, needs
from .arrays import (
    Refusal,
    asked_with,
    attempt,
    expect_copied,
    stream_of,
)

Handed = CaiArray | DLPackArray

WAITS = {
    "export": ("first", "after another array", "again", "on another stream before"),
    "work": ("a write", "two writes"),
}
"""The axes of what a consumer waits for, import by import."""


def expect_waits(
    c: ConsumerAdapter,
    lab: Lab,
    case: Case,
    x: Handed,
    value: float,
    *,
    theirs: Any,
    mine: Any,
) -> str:
    """Have the consumer take and copy an array with work pending on it, as a case says, and judge.

    Parameters
    ----------
    c, lab, case
        The consumer, the lab and the case.
    x : CaiArray or DLPackArray
        The array.
    value : float
        What it has to hold.
    theirs : object
        The stream of the work.
    mine : object
        The consumer's stream; None for its default one.

    Raises
    ------
    UnmetError
        The copy did not see the work, or nothing orders the two.
    """
    kept = []
    if case.export != "first":
        other = type(x)(lab, (lab.items,)) if case.export == "after another array" else x
        other.write_late(theirs, value + 0.5)
        before = c.stream() if case.export == "on another stream before" else mine
        with c.entered(before):
            kept.append(c.take(other))
        lab.synchronize()
    late, asked = x.write_late(theirs, value), len(getattr(x, "asked", ()))
    if case.work == "two writes":
        late.value = value + 0.25
        lab.write(handle_of(theirs), x.region, late.value)
    with c.entered(mine):
        y = c.take(x)
        copied = c.copy(y)
    return expect_copied(c, lab, copied, late, told_by(lab, x, theirs, asked))


def expect_each_waits(  # noqa: PLR0917
    c: ConsumerAdapter,
    lab: Lab,
    case: Case,
    kind: type[Handed],
    mine: Any,
    theirs: Any = None,
) -> str:
    """Do so with arrays of each of the lab's values; by default each has work on a new stream."""
    seen = ""
    for value in lab.values():
        x, stream = kind(lab, (lab.items,)), theirs or lab.stream()
        seen = expect_waits(c, lab, case, x, value, theirs=stream, mine=mine)
    return seen


def told_by(lab: Lab, x: Handed, theirs: Any, since: int = 0) -> str:
    """Tell by what a consumer had to know of the order; `since` how many times it had asked."""
    if isinstance(x, DLPackArray):
        return asked_with(lab, x.asked[since:])
    return f"the dict names {lab.called(handle_of(theirs))}"


def expect_other_stream_waits(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> str:
    """Have the consumer take an array on one stream, and copy it on another.

    Raises
    ------
    UnmetError
        The copy did not see the work, or nothing orders the two.
    """
    seen, mine, other = "", stream_of(c), stream_of(c)
    for value in lab.values():
        x, theirs = kind(lab, (lab.items,)), lab.stream()
        late = x.write_late(theirs, value)
        with c.entered(mine):
            y = c.take(x)
        with c.entered(other):
            copied = c.copy(y)
        seen = expect_copied(c, lab, copied, late, told_by(lab, x, theirs))
        del y
    return seen


def expect_read_kept(c: ConsumerAdapter, lab: Lab, kind: type[Handed], mine: Any) -> str:
    """Have the consumer take and fill an array that its producer still reads.

    Raises
    ------
    UnmetError
        The producer read what was written behind it, or nothing orders the two.
    """
    for value in lab.values():
        theirs = lab.stream()
        more: dict[str, Any] = {"stream": theirs} if kind is CaiArray else {}
        x = kind(lab, (lab.items,), value=value, **more)
        if isinstance(x, DLPackArray):
            x.pending_on(theirs)
        hold = lab.hold(theirs.handle)
        read = lab.read(theirs.handle, x.region, "the producer's read")
        with c.entered(mine):
            y = c.take(x)
            refused = attempt(c.fill, y, -value)
        needs(not isinstance(refused, Refusal), f"the write was {refused}")
        shown = lab.overtakes(None if mine is None else handle_of(mine), hold) is not None
        hold.release()
        lab.synchronize()
        found, told = lab.reports(), told_by(lab, x, theirs)
        expect(not found, f"{told}, and the producer still reads: {'; '.join(found)}")
        seen = {*flat(read.value)}
        expect(seen == {value}, f"{told}, and the producer read {seen} instead of {value}")
        lab.count(shown)
        del y
    return "the write came after the producer's read"


def needs_sharing(c: ConsumerAdapter, lab: Lab, kind: type[Handed]) -> None:
    """Leave a check without a verdict where the consumer writes to a copy of its own.

    Raises
    ------
    NotApplicableError
        It does; to share the memory is a recommendation.
    """
    x = kind(lab, (4,), value=1.0)
    y = c.take(x)
    c.fill(y, 2.0)
    lab.synchronize()
    shared = {*flat(lab.get(x.region))} == {2.0}
    needs(shared, "the consumer has a copy, and what it writes is its own")
