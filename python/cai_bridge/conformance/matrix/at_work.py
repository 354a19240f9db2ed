"""Judges a hand-over with work pending, on the producer's or the consumer's side."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from cai_bridge.testing._region import Region

from ..lab import flat, handle_of
from .pair import Pair, place_of
from .result import Aspect


@dataclass
class Round:
    """One try."""

    wrong: str
    """What was wrong; empty if nothing was."""
    shown: bool
    """Whether the work was held back long enough, on a device that could overtake the hold."""
    waited: bool
    """Whether the host waited."""
    ms: float
    """How long the host was blocked."""
    reused: bool = False
    """Whether the memory was handed out again."""


def judge_handover(pair: Pair) -> tuple[Aspect, Aspect]:
    """Judge whether the consumer reads after a pending write, and whether the host waits."""
    mine = pair.consumer.stream()
    _handover(pair, mine, next(pair.lab.values()))  # the first round loads code
    rounds = [_handover(pair, mine, value) for value in pair.lab.values()]
    fastest = min(rounds, key=lambda one: one.ms)
    ms = round(fastest.ms, 4)
    held = f"the host is held for {ms:.3f} ms" if pair.lab.timed else ""
    if fastest.waited:
        host = Aspect("waits", held or "the host waits", ms=ms)
    else:
        host = Aspect("right", held or "the host does not wait", ms=ms)
    return _summary(rounds, "saw what was there before the write"), host


def _handover(pair: Pair, mine: Any, value: float) -> Round:
    lab = pair.lab
    lab.synchronize()
    lab.reports()
    late = pair.producer.late(lab, value, pair.words)
    with lab.watched() as watch:
        handed = pair.hand(late.array, late.stream, mine)
        with pair.on(None if pair.route.bridged else late.stream, mine):
            taken = pair.take(handed)
            copied = pair.consumer.copy(taken)
    pending = late.hold.pending
    early = lab.overtakes(None if mine is None else handle_of(mine), late.hold)
    late.hold.release()
    seen = pair.consumer.values(copied)
    lab.synchronize()
    wrong = "the read was done while the write was held back" if early else ""
    return Round(
        _wrong(pair, seen, late.value) or wrong,
        pending and not watch.waited and early is not None,
        watch.waited,
        watch.ms,
    )


def judge_release(pair: Pair) -> Aspect:
    """Judge whether the memory's next use runs after the consumer's pending read."""
    mine, theirs = pair.consumer.stream(), pair.producer.stream()
    values = iter(_endless(pair))
    _release(pair, mine, theirs, next(values))
    rounds = [_release(pair, mine, theirs, value) for value in islice(values, pair.lab.rounds)]
    result = _summary(rounds, "saw what the producer wrote next")
    again = sum(one.reused for one in rounds)
    detail = f"{result.detail}; the memory was handed out again in {again} of {len(rounds)} rounds"
    return Aspect(result.outcome, detail, result.wrong, result.rounds, result.ms)


def _endless(pair: Pair) -> Any:
    while True:
        yield from pair.lab.values()


def _release(pair: Pair, mine: Any, theirs: Any, value: float) -> Round:
    lab, shape = pair.lab, (pair.words,)
    lab.synchronize()
    lab.reports()
    with pair.on(theirs, None):
        array = pair.producer.full(shape, pair.dtype, value)
    lab.synchronize()
    place = place_of(array, pair.dtype)
    written = _first(pair, place)
    handed = pair.hand(array, theirs, mine)
    with pair.on(None if pair.route.bridged else theirs, mine):
        taken = pair.take(handed)
    with pair.on(None, mine):
        # Queueing this may take longer than a hand-over: JAX's hold is many kernels.
        hold = pair.consumer.hold(lab, mine)
    with lab.watched() as watch:
        with pair.on(None, mine):
            copied = pair.consumer.copy(taken)
        pair.route.end(handed, mine)
        del array, handed, taken
        with pair.on(theirs, None):
            late = pair.producer.full(shape, pair.dtype, 0.0)
    pending = hold.pending
    # Give the next write time to run too early.
    told = lab.overtakes(None if theirs is None else handle_of(theirs), hold)
    hold.release()
    seen = pair.consumer.values(copied)
    lab.synchronize()
    wrong = _wrong(pair, seen, written)
    reused = place_of(late, pair.dtype).ptr == place.ptr
    shown = pending and not watch.waited and told is not None
    return Round(wrong, shown, watch.waited, watch.ms, reused)


def _first(pair: Pair, place: Region) -> Any:
    """Read one item: the value as the library represents it."""
    one = Region(place.ptr, (1,), (place.itemsize,), place.dtype, place.itemsize)
    return next(flat(pair.lab.get(one)))


def _wrong(pair: Pair, seen: Any, value: Any) -> str:
    """Describe what is wrong with the value read, and forget the lab's reports."""
    found = pair.lab.reports()
    items = list(flat(seen))
    others = [item for item in items if item != value]
    if found:
        return found[0]
    if others:
        return f"{len(others)} of {len(items)} items were {others[0]} instead of {value}"
    return ""


def _summary(rounds: list[Round], what: str) -> Aspect:
    count, wrong = len(rounds), [one for one in rounds if one.wrong]
    ms = round(min(one.ms for one in rounds), 4)
    if wrong:
        detail = f"{len(wrong)} of {count} reads {what}: {wrong[0].wrong}"
        return Aspect("wrong", detail, len(wrong), count, ms)
    if all(one.waited for one in rounds):
        return Aspect("waits", f"right in {count} rounds, but the host waits", 0, count, ms)
    shown = sum(one.shown for one in rounds)
    if not shown:
        return Aspect("none", "what was held back was done before anything was shown", 0, count, ms)
    return Aspect("right", f"right in {count} rounds", 0, count, ms)
