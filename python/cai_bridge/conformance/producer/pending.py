"""Work that is pending on a producer's array, in every way, and what a consumer then sees."""

from __future__ import annotations

from typing import Any, Protocol

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import take
from cai_bridge.testing._region import Region

from ..adapter import ProducerAdapter
from ..cases import Axes, Case
from ..lab import Lab, Late, flat, handle_of
from ..layouts import LINES, of_line
from ..places import BEFORE, place_of_items
from ..requirement import NotApplicableError, expect, needs
from .arrays import cai_of, collect, export, is_int, table_of


class HandOver(Protocol):
    """Takes an array over on a stream of the kit's, as a protocol has it."""

    def __call__(self, lab: Lab, x: Any, mine: int, case: Case) -> tuple[Region, str, Any]:
        """Tell the region, what ordered the stream, and what has to be kept meanwhile."""


def by_dict(lab: Lab, x: Any, mine: int, case: Case) -> tuple[Region, str, Any]:
    """Read the dict, and wait for the stream that it names."""
    del case
    said = describe(cai_of(x))["CAI"]
    expect(said.stream != 0 and said.stream is not False, f"the dict names {said.stream!r}")
    if is_int(said.stream):
        lab.order(said.stream, mine)
    return lab.region(said), f"the dict names {lab.called(said.stream)}", None


BETWEEN = "between writes"


def writes(stream: tuple[str, ...], export: tuple[str, ...]) -> Axes:
    """Give the axes of what is ordered after the library's writes."""
    work = ("a write", "two writes", "a copy")
    return {"stream": stream, "work": work, "layout": LINES, "export": export}


ELSEWHERE = writes(("its own", "left"), ("first", "again", BETWEEN, "after an end"))
"""What is judged while another stream than that of the work is the current one."""

WISHES: dict[str, dict[str, Any]] = {
    "legacy": {"max_version": None},
    "max_version 1.0": {"max_version": (1, 0)},
    "copy=False": {"copy": False},
    "copy=True": {"copy": True},
}


def by_capsule(lab: Lab, x: Any, mine: int, case: Case) -> tuple[Region, str, Any]:
    """Ask for a capsule on the stream; where no stream is taken, on the default one."""
    wishes = dict(WISHES.get(case.export, {}))
    if case.export == "dl_device":
        wishes["dl_device"] = x.__dlpack_device__()
    asked = f"asked for {lab.called(mine)}"
    try:
        capsule = export(x, stream=mine, **wishes)
    except NotApplicableError:
        raise
    except Exception as refused:
        # Streams other than None are optional.
        try:
            capsule = export(x, stream=None, **wishes)
        except (BufferError, TypeError) as also:
            raise NotApplicableError(f"refused: {also}") from refused
        lab.order(1, mine)
        asked = f"asked for None, as {lab.called(mine)} is refused"
    return lab.region(describe(capsule)["capsule"]), asked, capsule


def by_table(lab: Lab, x: Any, mine: int, case: Case) -> tuple[Region, str, Any]:
    """Export by the table, and wait for the stream that it names."""
    del case
    table = table_of(x)
    taken = table.export(x)
    stream = table.work_stream(*taken.fields.device) or 1
    lab.order(stream, mine)
    return lab.tensor_region(taken.fields), f"the table names {lab.called(stream)}", taken


def end(held: Any) -> None:
    """Take a tensor over, if it is one, and call its deleter at once."""
    if held is not None:
        taken = held if hasattr(held, "delete") else take(held)
        taken.delete()
    collect()


def pending(p: ProducerAdapter, lab: Lab, case: Case, value: float) -> Late:
    """Make an array with the work of a case on it, and held back."""
    late = _on_default(p, lab, value) if case.stream == "default" else p.late(lab, value)
    if case.work == "two writes":
        _write_again(p, late, 0.5)
    if case.stream == "moved" and case.export != BETWEEN:
        _move(p, lab, late)
        _write_again(p, late, 0.25)
    if case.work == "a copy":
        with p.entered(late.stream):
            late.keep, late.array = (late.keep, late.array), p.copy(late.array)
    return late


def _move(p: ProducerAdapter, lab: Lab, late: Late) -> None:
    """Go on on another stream of the library's, which the user has made wait for the first.

    What comes there is held back in place of what went before: to wait for that does not do.
    """
    other = p.stream()
    needs(other is not None and late.stream is not None, "the library's streams have no names")
    lab.order(handle_of(late.stream), handle_of(other))
    late.keep, late.stream = (late.keep, late.stream), other
    late.hold.release()
    late.hold = lab.hold(handle_of(other))


def _write_again(p: ProducerAdapter, late: Late, more: float) -> None:
    late.value += more
    with p.entered(late.stream):
        p.fill(late.array, late.value)
        late.array = p.renewed(late.array)


def _on_default(p: ProducerAdapter, lab: Lab, value: float) -> Late:
    """Queue a write without a stream being made the current one."""
    needs(p.stream() is not None, "the library's streams have no names")
    array = p.make((lab.items,), "float32")
    if lab.timed:
        p.fill(array, BEFORE)
    lab.synchronize()
    place = place_of_items(array) if lab.timed else 0
    hold = lab.hold(1)
    p.fill(array, value)
    behind = not place or lab.is_behind(1, hold, lab.words(place, lab.items), BEFORE)
    needs(behind, "what fill() writes outside of on() is on no default stream")
    return Late(p.renewed(array), None, value, hold)


def part_of(p: ProducerAdapter, x: Any, case: Case) -> Any:
    """Take a case's layout of an array of one axis."""
    for one in of_line(case.layout):
        x = p.taken(x, ("index", (one,)))
    return x


def expect_ordered(
    p: ProducerAdapter, lab: Lab, case: Case, hand_over: HandOver, *, elsewhere: bool = False
) -> str:
    """Take an array over while work is pending on it, read it, and judge.

    With `elsewhere` another stream of the library's is the current one meanwhile, or none.

    Raises
    ------
    UnmetError
        The read did not see the work, or nothing orders the two.
    """
    seen = ""
    for value in lab.values():
        late, mine, before = pending(p, lab, case, value), lab.stream(), lab.stream()
        with p.entered(late.stream):
            x, kept = part_of(p, late.array, case), []
        current = _other(p, late, case) if elsewhere else late.stream
        with p.entered(current):
            if case.export == "again":
                kept.append(hand_over(lab, x, before.handle, case))
            elif case.export == "after an end":
                end(hand_over(lab, x, before.handle, case)[2])
            elif case.export == BETWEEN:
                kept.append(hand_over(lab, x, mine.handle, case))
        if case.export == BETWEEN:
            begin, place = place_of_items(late.array), kept[0][0].ptr
            shared = begin <= place < begin + 4 * lab.items
            needs(shared, "slices of the arrays are copies, which later writes do not reach")
            if case.stream == "moved":
                _move(p, lab, late)
            _write_again(p, late, 0.125)
            with p.entered(late.stream):
                x = p.renewed(x)
        with p.entered(current if elsewhere else late.stream):
            region, named, keep = hand_over(lab, x, mine.handle, case)
        seen = lab.expect_read(mine.handle, region, late, named)
        del keep, kept, x, late  # to free them may wait for what the next round holds back
    return seen


def _other(p: ProducerAdapter, late: Late, case: Case) -> Any:
    needs(late.stream is not None, "the library's streams have no names")
    return None if case.stream == "left" else p.stream()


def expect_read_first(
    p: ProducerAdapter, lab: Lab, case: Case, hand_over: HandOver, *, elsewhere: bool = False
) -> str:
    """Take an array over while the library still reads it, write it, and judge what was read.

    Raises
    ------
    UnmetError
        Nothing orders the two, or the library read what was written behind it.
    """
    needs(not p.immutable, "the library's arrays are never written, by consumers neither")
    named = ""
    for value in lab.values():
        late = p.late(lab, value)
        lab.synchronize()
        stream = None if case.stream == "default" else late.stream
        hold, mine, before = lab.hold(handle_of(stream or 1)), lab.stream(), lab.stream()
        with p.entered(stream):
            copied = p.copy(late.array)
            late.array = p.renewed(late.array)
        with p.entered(p.stream() if elsewhere else stream):
            if case.export == "again":
                hand_over(lab, late.array, before.handle, case)
            region, named, keep = hand_over(lab, late.array, mine.handle, case)
        lab.write(mine.handle, region, -value, name="the consumer's write")
        told = lab.overtakes(mine.handle, hold)
        hold.release()
        lab.synchronize()
        found = lab.reports()
        expect(not found, f"{named}, and the library still reads: {'; '.join(found)}")
        seen = set(flat(lab.get(hand_over(lab, copied, mine.handle, Case())[0])))
        expect(seen == {value}, f"{named}, and the library read {seen} instead of {value}")
        lab.count(told is not None)
        del keep, copied, late
    return f"{named}, and the write came after the library's read"
