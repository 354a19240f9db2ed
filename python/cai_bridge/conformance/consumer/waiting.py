"""Pending work on the kit's own arrays, and what a consumer of them sees."""

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
    """The streams of both sides; `mine` is None for the consumer's default stream."""

    mine: Any
    theirs: Any


def sides(c: ConsumerAdapter, lab: Lab, case: Case) -> Sides:
    """Make the streams of a case."""
    mine = stream_of(c) if case.mine == "its own" else None
    if case.theirs == "the consumer's":
        return Sides(mine, mine or 1)
    return Sides(mine, lab.stream() if case.theirs == "a stream" else int(case.theirs))


def imported(c: ConsumerAdapter, lab: Lab, x: Any, case: Case, mine: Any) -> Any:
    """Have the consumer take an array on a stream, in the thread of the case.

    Raises
    ------
    NotApplicableError
        The stream would have to be current in this thread, and another thread imports.
    """
    needs(not _is_of_the_thread(case), "each thread has a per-thread default stream of its own")
    return elsewhere(lab, case, "the import", _taking(c, x, case, mine))


def _is_of_the_thread(case: Case) -> bool:
    """Return whether the producer's stream is the importing thread's per-thread default stream."""
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
    """Queue a held-back write to an array, and have the consumer take the array."""

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
    """Do what the case's moment puts before the import; return objects to keep alive."""
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
    """Have the consumer take and copy arrays with the case's pending work, and judge the copies.

    With `on_another` the consumer copies on another stream than the import's.

    Raises
    ------
    UnmetError
        A copy did not see the work, or nothing orders the copy after the work.
    """
    seen = ""
    for value in lab.values():
        also = None
        streams, x = sides(c, lab, case), handed(kind, lab, case)
        kept = took_before(c, lab, x, case, streams)
        asked = len(getattr(x, "asked", ()))
        late, y = written_and_imported(c, lab, x, case, streams, value)
        if on_another and case.use == "on two streams":
            # The wait for the first array's stream says nothing about the next array's.
            with c.entered(streams.mine):
                also = c.copy(y)
        with c.entered(stream_of(c) if on_another else streams.mine):
            copied = c.copy(y)
        seen = expect_copied(c, lab, copied, late, told_by(lab, x, streams.theirs, asked))
        del y, kept, also
    return seen


def told_by(lab: Lab, x: Handed, theirs: Any, since: int = 0) -> str:
    """Describe how a consumer could know the order; `since` counts its earlier requests."""
    if isinstance(x, DLPackArray):
        return asked_with(lab, x.asked[since:])
    return f"the dict names {lab.called(handle_of(theirs))}"


def expect_read_kept(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    """Have the consumer take and fill an array that its producer still reads.

    Raises
    ------
    UnmetError
        The producer read the consumer's values, or nothing orders the read and the fill.
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
    """Skip the check if the consumer writes to a copy of its own.

    Raises
    ------
    NotApplicableError
        The consumer copies. Sharing the memory is only a recommendation.
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
    """Return the streams that the consumer uses an array on, each after the import's stream.

    The consumer's user must order the consumer's own streams.
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
    """Hold back the consumer's later work on a stream; None is the default stream."""
    return lab.hold(1) if stream is None else c.hold(lab, stream)


def expect_given_back(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    """Have the producer write after the consumer's last use, and judge what the consumer read.

    With DLPack the producer writes when the deleter is called.

    Raises
    ------
    UnmetError
        The consumer read the producer's new values, or nothing orders the read and the write.
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
            # The producer may write as soon as the deleter is called.
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
