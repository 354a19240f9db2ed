"""Work that is pending on the kit's own arrays, and what a consumer that takes them then sees."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, DLPackArray, Lab, Late, flat, handle_of
from ..producer.arrays import collect
from ..refusals import Refusal, attempt
from ..requirement import expect, needs
from ..surroundings import elsewhere
from .arrays import asked_with, expect_copied, refuse, stream_of, taken
from .layouts import Handed, handed


@dataclass
class Sides:
    """The two sides' streams; `mine` is None for the consumer's default one."""

    mine: Any
    theirs: Any


def sides(c: ConsumerAdapter, lab: Lab, case: Case) -> Sides:
    """Make the streams that a case has."""
    mine = stream_of(c) if case.mine == "its own" else None
    if case.theirs == "the consumer's":
        return Sides(mine, mine or 1)
    return Sides(mine, lab.stream() if case.theirs == "a stream" else int(case.theirs))


def imported(c: ConsumerAdapter, lab: Lab, x: Any, case: Case, mine: Any) -> Any:
    """Have the consumer take an array on a stream, in the thread that a case says.

    Raises
    ------
    NotApplicableError
        The stream would be the current one of this thread, which another has not.
    """
    needs(not _is_of_the_thread(case), "each thread has a per-thread default stream of its own")
    return elsewhere(lab, case, "the import", _taking(c, x, case, mine))


def _is_of_the_thread(case: Case) -> bool:
    """Tell whether the producer's stream is the per-thread default one of a thread that imports."""
    return (case.theirs, case.thread) == ("2", "the import")


def _taking(c: ConsumerAdapter, x: Any, case: Case, mine: Any) -> Callable[[], Any]:
    others = mine is None and (case.thread, case.around) == ("the import", "another stream")
    needs(not others, "each thread has a current stream of its own")

    def take() -> Any:
        with c.entered(mine):
            return taken(c, x, case)

    return take


def written_and_imported(  # noqa: PLR0917
    c: ConsumerAdapter, lab: Lab, x: Any, case: Case, streams: Sides, value: float
) -> tuple[Late, Any]:
    """Write an array late, and have the consumer take it."""

    def write() -> Late:
        late: Late = x.write_late(streams.theirs, value)
        if case.work == "two writes":
            late.value = value + 0.25
            lab.write(handle_of(streams.theirs), x.region, late.value)
        return late

    if _is_of_the_thread(case):
        needs(not lab.timed, "a GPU drops a thread's stream with the thread")
        take = _taking(c, x, case, streams.mine)
        return elsewhere(lab, case, "the import", lambda: (write(), take()))
    return write(), imported(c, lab, x, case, streams.mine)


BEFORE = (
    "after another array", "again", "on another stream before", "on another of theirs before",
)  # fmt: skip
"""The moments that have an import before."""


def took_before(c: ConsumerAdapter, lab: Lab, x: Any, case: Case, streams: Sides) -> Any:
    """Do what comes before, as a case's moment says; return what has to be kept."""
    kept = None
    if case.moment in BEFORE:
        other = handed(type(x), lab, case) if case.moment == "after another array" else x
        changed = case.moment == "on another of theirs before"
        other.write_late(lab.stream() if changed else streams.theirs, -0.5)
        first = stream_of(c) if case.moment == "on another stream before" else streams.mine
        with c.entered(first):
            kept = taken(c, other, case)
        if changed:
            x._pending_on(streams.theirs)
    if case.moment == "after a refusal":
        with c.entered(streams.mine):
            refuse(c, type(x), lab)
    lab.synchronize()
    lab.reports()
    return kept


def expect_waits(
    c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed], *, on_another: bool = False
) -> str:
    """Have the consumer take and copy arrays with work pending on them, as a case says, and judge.

    With `on_another` it copies on another stream than the one that it took the array on.

    Raises
    ------
    UnmetError
        A copy did not see the work, or nothing orders the two.
    """
    seen = ""
    for value in lab.values():
        also = None
        streams, x = sides(c, lab, case), handed(kind, lab, case)
        kept = took_before(c, lab, x, case, streams)
        asked = len(getattr(x, "asked", ()))
        late, y = written_and_imported(c, lab, x, case, streams, value)
        if on_another and case.use == "on two streams":
            # What the first one has waited for, the next one has not.
            with c.entered(streams.mine):
                also = c.copy(y)
        with c.entered(stream_of(c) if on_another else streams.mine):
            copied = c.copy(y)
        seen = expect_copied(c, lab, copied, late, told_by(lab, x, streams.theirs, asked))
        del y, kept, also
    return seen


def told_by(lab: Lab, x: Handed, theirs: Any, since: int = 0) -> str:
    """Tell by what a consumer had to know of the order; `since` how many times it had asked."""
    if isinstance(x, DLPackArray):
        return asked_with(lab, x.asked[since:])
    return f"the dict names {lab.called(handle_of(theirs))}"


def expect_read_kept(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    """Have the consumer take and fill an array that its producer still reads.

    Raises
    ------
    UnmetError
        The producer read what was written behind it, or nothing orders the two.
    """
    for value in lab.values():
        streams, x = sides(c, lab, case), handed(kind, lab, case, value=0.0)
        kept = took_before(c, lab, x, case, streams)
        lab.put(x.region, value)
        x._pending_on(streams.theirs)
        hold = lab.hold(handle_of(streams.theirs))
        read = lab.read(handle_of(streams.theirs), x.region, "the producer's read")
        y = imported(c, lab, x, case, streams.mine)
        with c.entered(streams.mine):
            refused = attempt(c.fill, y, -value)
        needs(not isinstance(refused, Refusal), f"the write was {refused}")
        mine = streams.mine
        shown = lab.overtakes(None if mine is None else handle_of(mine), hold) is not None
        hold.release()
        lab.synchronize()
        found, told = lab.reports(), told_by(lab, x, streams.theirs)
        expect(not found, f"{told}, and the producer still reads: {'; '.join(found)}")
        seen = {*flat(read.value)}
        expect(seen == {value}, f"{told}, and the producer read {seen} instead of {value}")
        lab.count(shown)
        del y, kept
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


OTHERS = {
    "where it was taken": 0,
    "on another stream": 1,
    "on two streams": 1,
    "on three streams": 2,
}
"""On how many more streams the consumer uses what it took, by the value of `use`."""


def uses(c: ConsumerAdapter, lab: Lab, case: Case, streams: Sides) -> list[Any]:
    """Tell the streams that the consumer uses an array on, each behind the one of the import.

    To order the consumer's own streams is its user's part.
    """
    mine, found = streams.mine, []
    if case.use != "on another stream":
        found.append(mine)
    for _ in range(OTHERS[case.use]):
        other = stream_of(c)
        lab.order(handle_of(mine or 1), handle_of(other))
        found.append(other)
    return found


def held(c: ConsumerAdapter, lab: Lab, stream: Any) -> Any:
    """Hold back the consumer's later work on a stream; None is its default one."""
    return lab.hold(1) if stream is None else c.hold(lab, stream)


def expect_given_back(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    """Have the producer write again once the consumer has used an array, and judge what it read.

    By DLPack the producer does so when the deleter is called.

    Raises
    ------
    UnmetError
        The consumer read what was written behind it, or nothing orders the two.
    """
    seen = ""
    for value in lab.values():
        streams = sides(c, lab, case)
        more: dict[str, Any] = {"stream": streams.theirs} if kind is CaiArray else {}
        x = handed(kind, lab, case, value=value, **more)
        kept = took_before(c, lab, x, case, streams)
        lab.put(x.region, value)
        y = imported(c, lab, x, case, streams.mine)
        if case.work == "two writes":
            with c.entered(streams.mine):
                c.values(c.copy(y))
        copies, holds = [], []
        for stream in uses(c, lab, case, streams):
            holds.append(held(c, lab, stream))
            with c.entered(stream):
                copies.append(c.copy(y))
        held_by, again = [y], handle_of(streams.theirs)
        if isinstance(x, DLPackArray):
            # The producer may be quick.
            x.at_end = functools.partial(lab.write, again, x.region, -value)
        del kept, y
        elsewhere(lab, case, "the end", held_by.clear)
        collect()
        if isinstance(x, DLPackArray):
            x.at_end = None
            if not all(x.deleted):
                return "it is not called yet"
        lab.write(again, x.region, -value)
        shown = not holds[-1].pending or lab.overtakes(again, holds[-1]) is not None
        lab.wait(again)
        late = Late(x, streams.mine, value, holds[-1])
        what = "the deleter was called, and the producer" if kind is DLPackArray else "the producer"
        for copied in copies:
            told = f"{what} has written again"
            seen = expect_copied(c, lab, copied, late, told, shown=shown)
    return seen
