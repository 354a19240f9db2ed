"""Pending work on a producer's array, in every way, and what a consumer then sees."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from cai_bridge.testing._region import Region

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab, Late, flat, handle_of
from ..layouts import LAYOUTS, view_of
from ..missing import missing
from ..places import BEFORE, expect_behind, place_of_items
from ..requirement import NotApplicableError, expect, needs
from ..surroundings import elsewhere
from .arrays import collect, refuse
from .hand_over import HandOver, by_bare_call, by_capsule, by_dict, by_table
from .values import end


def laid_pending(p: ProducerAdapter, lab: Lab, case: Case, value: float) -> Late:
    """Make an array of the case's layout with the case's work on it, held back.

    `Late.current` is the stream to make current at the hand-over.
    """
    own = case.stream in DEFAULTS and case.thread != "none"
    needs(not own, OWN_DEFAULT)
    if case.stream == "another thread's":
        needs(not lab.timed, "a GPU drops a thread's stream with the thread")
        needs(case.moment != "between writes", "nothing more is queued there")
        case = case.but(stream="per-thread", thread="the work", current="none")
    late = elsewhere(lab, case, "the work", lambda: _worked(p, lab, case, value))
    if case.current == "the work's":
        late.current = late.stream
    elif case.current == "another":
        needs(late.stream is not None, "the library's streams have no names")
        late.current = p.stream()
    return late


def _worked(p: ProducerAdapter, lab: Lab, case: Case, value: float) -> Late:
    late = _first_write(p, lab, case, value)
    if case.work == "two writes":
        _write_again(p, late, case, 0.5)
    if case.stream == "moved" and case.moment != "between writes":
        _move(p, lab, late)
        _write_again(p, late, case, 0.25)
    if case.work == "a copy":
        needs(late.stream is not None or case.stream == "default", "streams have no names")
        with p.entered(late.stream):
            late.keep, late.base = (late.keep, late.base), p.copy(late.base)
    with p.entered(late.stream):
        late.array = _at_hand(p, late, case)
    return late


def _first_write(p: ProducerAdapter, lab: Lab, case: Case, value: float) -> Late:
    ordinary = case.through == "its base"
    if case.stream in ("two", "three"):
        needs(len(LAYOUTS[case.layout][0]) == 1, "an array with work on two streams has one axis")
        late = p.late_on_two(lab, value) if case.stream == "two" else _on_three(p, lab, value)
    elif type(p).late is not ProducerAdapter.late and case.stream not in DEFAULTS:
        needs(len(LAYOUTS[case.layout][0]) == 1, "the adapter's late() has one axis")
        needs(ordinary, "the adapter's late() has no view of its array")
        late = p.late(lab, value)
    else:
        late = _write(p, lab, case, value)
    late.base = late.array
    return late


def _on_three(p: ProducerAdapter, lab: Lab, value: float) -> Late:
    try:
        return p.late_on_two(lab, value, 3)
    except TypeError as unknown:
        raise NotApplicableError(f"the adapter's late_on_two() has two: {unknown}") from unknown


def _write(p: ProducerAdapter, lab: Lab, case: Case, value: float) -> Late:
    """Queue a write on a stream; or on the default stream, with no stream made current."""
    stream = p.stream()
    if stream is None:
        raise missing(p, "stream()")
    if case.stream == "default":
        needs(case.around != "another stream", "another stream than the default one is current")
        stream = None
    if case.stream == "per-thread":
        stream = _per_thread(p, lab)
    shape = LAYOUTS[case.layout][0]
    array, words = p.make(shape, "float32"), math.prod(shape)
    if lab.timed:
        # This compiles the fill, which may take longer than the hold lasts.
        p.fill(array, BEFORE)
    early = None
    if case.through == "its base, later":
        needs(case.work != "a copy", "a copy is new")
        early = _view(p, array, case)
        _needs_sharing(early, array, words)
    written = _through(p, array, case)
    if written is not array:
        _needs_sharing(written, array, 1)
    lab.synchronize()
    with p.entered(stream):
        place = place_of_items(array) if lab.timed or stream is not None else 0
        hold = lab.hold(handle_of(stream or 1))
        _fill(p, written, value, case)
    if stream is not None:
        expect_behind(lab, stream, hold, place, words, value)
    elif place:
        behind = lab.is_behind(1, hold, lab.words(place, words), BEFORE)
        needs(behind, "what fill() writes outside of on() is on no default stream")
    return Late(array, stream, value, hold, early=early)


def _fill(p: ProducerAdapter, x: Any, value: float, case: Case) -> None:
    """Write to an array, unless a read-only view of it has made it read-only, too."""
    try:
        p.fill(x, value)
    except Exception as error:
        frozen = case.flag == "read-only"
        needs(not frozen, f"what a read-only array was made of is not written: {error}")
        raise


def _through(p: ProducerAdapter, base: Any, case: Case) -> Any:
    """Return the array that work is queued through: the base, or a view of it."""
    if case.through != "another view":
        return base
    return _slice_of(p, base, len(LAYOUTS[case.layout][0]))


def _slice_of(p: ProducerAdapter, x: Any, axes: int) -> Any:
    needs(axes, "an array without axes has no slice")
    return p.index(x, (slice(None),) * axes)


def _needs_sharing(view: Any, base: Any, words: int) -> None:
    begin, place = place_of_items(base), place_of_items(view)
    needs(begin <= place < begin + 4 * words, "slices of the arrays are copies")


def _at_hand(p: ProducerAdapter, late: Late, case: Case) -> Any:
    """Return the array to hand over now."""
    if late.early is not None:
        return p.renewed(late.early)
    return _view(p, p.renewed(late.base) if case.work != "a write" else late.base, case)


DEFAULTS = ("default", "per-thread")
"""The values of `stream` that are default streams."""


def _per_thread(p: ProducerAdapter, lab: Lab) -> Any:
    """Return the per-thread default stream, if the library can work on it by a stream object."""
    stream, x = lab.per_thread(), p.make((1,), "float32")
    try:
        with p.on(stream):
            p.fill(x, BEFORE)
    except Exception as error:
        raise NotApplicableError(f"on() takes the library's own streams: {error}") from error
    lab.synchronize()
    return stream


def _view(p: ProducerAdapter, x: Any, case: Case) -> Any:
    """Take the case's layout of an array, read-only if the case says so."""
    if case.flag == "read-only":
        x = p.readonly(x)
    for step in LAYOUTS[case.layout][1]:
        x = p.taken(x, step)
    return x


def _move(p: ProducerAdapter, lab: Lab, late: Late) -> None:
    """Continue on another stream of the library, which the user has made wait for the first.

    The hold moves to the new stream's work, so waiting for the first stream is not enough.
    """
    other = p.stream()
    needs(other is not None and late.stream is not None, "the library's streams have no names")
    lab.order(handle_of(late.stream), handle_of(other))
    late.keep, late.stream = (late.keep, late.stream), other
    late.hold.release()
    late.hold = lab.hold(handle_of(other))


def _write_again(p: ProducerAdapter, late: Late, case: Case, more: float) -> None:
    named = late.stream is not None or case.stream == "default"
    needs(named, "the library's streams have no names")
    late.value += more
    with p.entered(late.stream):
        _fill(p, _through(p, late.base, case), late.value, case)
        late.base = p.renewed(late.base)


def _write_on_each(p: ProducerAdapter, lab: Lab, late: Late, case: Case, more: float) -> None:
    """Write to each part of an array again on its stream, with one stream held back."""
    late.value += more
    words, held = lab.items // 2, lab.turn(len(late.keep))
    late.hold.release()
    for number, stream in enumerate(late.keep):
        part = p.index(late.base, (slice(number * words, (number + 1) * words),))
        with p.on(stream):
            if number == held or not lab.timed:
                late.hold = lab.hold(handle_of(stream))
            _fill(p, part, late.value, case)


OWN_DEFAULT = "the default stream of a library may be each thread's own"
STREAMS = {"None": 1, "1": 1, "2": 2}
"""The requested streams that are not handles, by the value of `asked`."""


def _asked_stream(lab: Lab, late: Late, case: Case) -> tuple[int, Any]:
    """Return the handle of the requested stream, and an object that keeps it alive."""
    own = case.asked == "2" and case.thread == "the hand-over"
    needs(not own, "each thread has a per-thread default stream of its own")
    if case.asked in STREAMS:
        return STREAMS[case.asked], None
    stream = late.stream if case.asked == "the work's" else lab.stream()
    return handle_of(stream or 1), stream


def expect_ordered(p: ProducerAdapter, lab: Lab, case: Case, hand_over: HandOver) -> str:
    """Take an array while work is pending on it, read it, and judge.

    Raises
    ------
    UnmetError
        The read did not see the work, or nothing orders the two.
    """
    seen = ""
    for value in lab.values():
        late = laid_pending(p, lab, case, value)
        mine, named = _asked_stream(lab, late, case)
        kept = _before(p, lab, late, case, hand_over, mine)
        if case.moment == "between writes":
            _between(p, lab, late, case, kept[0].ptr)

        def taken(late: Late = late, mine: int = mine) -> tuple[Region, str, Any]:
            with p.entered(late.current):
                return hand_over(lab, late.array, mine, case)

        region, told, keep = elsewhere(lab, case, "the hand-over", taken)
        seen = lab.expect_read(mine, region, late, told)
        del keep, kept, late, named, taken  # freeing them later may wait for the next round's work
    return seen


def _before(  # noqa: PLR0917
    p: ProducerAdapter, lab: Lab, late: Late, case: Case, hand_over: HandOver, mine: int
) -> Any:
    """Do what the case's moment puts before the hand-over."""
    plain, other = case.but(asked="a foreign one"), lab.stream()
    if case.route == "copy=True":
        # Freeing a copy may make the host wait for the device.
        plain = plain.but(route="max_version 1.3")
    with p.entered(late.current):
        if case.moment == "again":
            return hand_over(lab, late.array, other.handle, plain), other
        if case.moment == "after an end":
            end(hand_over(lab, late.array, other.handle, plain)[2])
        if case.moment == "between writes":
            needs(case.route != "copy=True", "a copy that is read is the user's to wait for")
            return hand_over(lab, late.array, mine, case)
        if case.moment == "after a refusal":
            needs(hasattr(late.array, "__dlpack__"), "a protocol without arguments refuses nothing")
            refuse(late.array)
        if case.moment == "by another door":
            _hand_over_otherwise(lab, late.array, other.handle, hand_over)
    if case.moment == "its stream is gone":
        needs(lab.expendable, "judged only in a process that may crash")
        needs(case.asked != "the work's", "it is asked for")
        needs(case.work != "a copy", "what is copied is kept beside the stream")
        late.stream = late.current = late.keep = None
        collect()
    return None


def _hand_over_otherwise(lab: Lab, x: Any, stream: int, own: HandOver) -> None:
    """Hand an array over by the other doors, and ignore the outcome."""
    done = 0
    for door in {by_dict, by_capsule, by_table} - {by_capsule if own is by_bare_call else own}:
        with contextlib.suppress(Exception):
            end(door(lab, x, stream, Case())[2])
            done += 1
    needs(done, "there is one door")


def _between(p: ProducerAdapter, lab: Lab, late: Late, case: Case, ptr: int) -> None:
    """Keep writing after an array was handed over."""
    begin, words = place_of_items(late.base), max(lab.items * 3, 64)
    shared = begin <= ptr < begin + 4 * words
    needs(shared, "slices of the arrays are copies, which later writes do not reach")
    if case.stream == "moved":
        _move(p, lab, late)
        if case.current == "the work's":
            late.current = late.stream
    if case.stream in ("two", "three"):
        _write_on_each(p, lab, late, case, 0.125)
    else:
        _write_again(p, late, case, 0.125)
    with p.entered(late.stream):
        if late.base is not None:
            late.array = _at_hand(p, late, case.but(work="two writes"))


def _read_through(p: ProducerAdapter, x: Any, case: Case) -> Any:
    """Return the array to read: the array that is handed over, or a view of it."""
    return x if case.through == "its base" else _slice_of(p, x, len(view_of(case.layout).shape))


def expect_read_first(p: ProducerAdapter, lab: Lab, case: Case, hand_over: HandOver) -> str:
    """Take an array while the library still reads it, write to it, and judge the read.

    Raises
    ------
    UnmetError
        Nothing orders the two, or the library read the consumer's values.
    """
    needs(not p.immutable, "the library's arrays are never written, by consumers neither")
    own = case.stream == "default" and case.thread != "none"
    needs(not own, OWN_DEFAULT)
    elsewhere_now = case.stream == "default" and case.around == "another stream"
    needs(not elsewhere_now, "another stream than the default one is current")
    told = ""
    for value in lab.values():
        plain = case.but(stream="its own", work="a write", through="its base")
        late = laid_pending(p, lab, plain, value)
        lab.synchronize()
        late.stream = stream = None if case.stream == "default" else late.stream
        if case.current == "the work's":
            late.current = stream
        hold = late.hold = lab.hold(handle_of(stream or 1))

        def read(late: Late = late) -> Any:
            with p.entered(late.stream):
                # Keep a slice that is a copy: its user may have to wait before freeing it.
                source = _read_through(p, late.array, case)
                late.keep, copied = (late.keep, source), p.copy(source)
                late.array = p.renewed(late.array)
            return copied

        copied = elsewhere(lab, case, "the work", read)
        mine, named = _asked_stream(lab, late, case)
        kept = _before(p, lab, late, case, hand_over, mine)

        def taken(late: Late = late, mine: int = mine) -> tuple[Region, str, Any]:
            with p.entered(late.current):
                return hand_over(lab, late.array, mine, case)

        region, told, keep = elsewhere(lab, case, "the hand-over", taken)
        lab.write(mine, region, -value, name="the consumer's write")
        early = lab.overtakes(mine, hold)
        hold.release()
        lab.synchronize()
        found = lab.reports()
        expect(not found, f"{told}, and the library still reads: {'; '.join(found)}")
        seen = set(flat(lab.get(hand_over(lab, copied, mine, Case())[0])))
        expect(seen == {value}, f"{told}, and the library read {seen} instead of {value}")
        lab.count(early is not None)
        del keep, kept, copied, late, named, taken, read
    return f"{told}, and the write came after the library's read"
