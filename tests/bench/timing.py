"""How the benchmark measures, and one measured row.

A machine's clock may drift, or halve, within a second. So all that a row compares takes turns in
short rounds: the bridge's statement, the peer's, and the floor. A ratio is the median of the
rounds' own ratios; a time is the least of the rounds.

The parts of a floor are timed one after another in one loop. A conversion makes one call after
another, too, and has the processor's caches for none of them to itself: alone in its loop each part
takes less than it does there.
"""

from __future__ import annotations

import gc
import statistics
import time
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ROUNDS = 61
CALLS = 200
SETTLE_S = 0.2
NEAR = 1.10
"""Within how much of its floor, measured in the same rounds, a row has met its budget as well."""

Parts = Mapping[str, Sequence[tuple[int, str]]]
"""What floors are made of: by name, statements that count, and such that are taken off (-1)."""


@dataclass(frozen=True)
class Row:
    """One measured thing. `value`, `peer_value`, `median` and `floor` in `unit`; `budget` is of the
    ratio where there is a peer.

    `floor` is what of `value` the bridge has to do whoever writes it, measured in the same rounds.
    A row without a budget is for information, and passes.
    """

    group: str
    name: str
    value: float | None
    unit: str = "ns"
    peer: str = ""
    peer_value: float | None = None
    budget: float | None = None
    remark: str = ""
    median: float | None = None
    floor: float | None = None
    ratio: float | None = None
    """How many times the peer's time it takes, by the median of the rounds."""
    from_floor: float | None = None
    """The same of the floor."""

    @property
    def verdict(self):
        if self.value is None:
            return "not measured"
        if self.budget is None:
            return ""
        measured = self.ratio if self.peer else self.value
        if measured is not None and measured <= self.budget:
            return "PASS"
        is_near = self.from_floor is not None and self.from_floor <= NEAR
        return "at floor" if is_near else "over"


def settle():
    """Let end what the row before has left behind: JAX's threads go on with it for 0.1 s."""
    gc.collect()
    time.sleep(SETTLE_S)


def timed(statements, names, calls=CALLS, between=None):
    """The times of a call of each statement in ns, of `ROUNDS` rounds, in which they take turns.
    `between` is called before each, untimed.
    """
    settle()
    timers = [timeit.Timer(text, globals=names) for text in statements]
    for timer in timers:
        timer.timeit(max(50, calls // 4))
    times = [[] for _ in timers]
    for _ in range(ROUNDS):
        for timer, found in zip(timers, times, strict=True):
            if between is not None:
                between()
            found.append(1e9 * timer.timeit(calls) / calls)
    return times


def together(parts):
    """The parts as two statements: those that count, one after another, and those taken off."""
    texts = {sign: "; ".join(text for one, text in parts if one == sign) for sign in (1, -1)}
    return [(sign, text) for sign, text in texts.items() if text]


def ratio(ours, theirs):
    """How many times the others' time ours is: the median of the rounds."""
    return statistics.median(own / other for own, other in zip(ours, theirs, strict=True))


@dataclass(frozen=True)
class Pair:
    """A statement of the bridge's and the one of a peer that does the same. `floor` is a sum of
    what `Parts` have names for.
    """

    name: str
    bridge: str
    peer: str = ""
    budget: float | None = None
    floor: str = ""

    def parts(self, known):
        """What its floor is, as statements; nothing where a part is not known."""
        names = [part.strip() for part in self.floor.split("+") if part.strip()]
        if not all(name in known for name in names):
            return []
        return together([term for name in names for term in known[name]])

    def measure(self, group, names, calls=CALLS, known=None, between=None):
        """Run its statements in turns."""
        parts = self.parts(known or {})
        statements = list(dict.fromkeys([self.bridge, self.peer, *(text for _, text in parts)]))
        statements = [text for text in statements if text]
        try:
            times = dict(zip(statements, timed(statements, names, calls, between), strict=True))
        except Exception as error:
            # A library that is missing or refuses costs its row, not the run.
            remark = f"{type(error).__name__}: {error}"
            return Row(group, self.name, None, peer=self.peer, budget=self.budget, remark=remark)
        ours, theirs = times[self.bridge], times.get(self.peer)
        floors = [sum(sign * times[text][at] for sign, text in parts) for at in range(ROUNDS)]
        from_floor = ratio(ours, floors) if parts else None
        return Row(
            *(group, self.name, min(ours)),
            peer=self.peer,
            peer_value=min(theirs) if theirs else None,
            budget=self.budget,
            median=statistics.median(ours),
            floor=min(ours) / from_floor if from_floor else None,
            ratio=ratio(ours, theirs) if theirs else None,
            from_floor=from_floor,
        )


def least_host_ms(action, make_pending, finish):
    """The least host time of `action` in ms over a few tries, with work queued in front of each."""
    times = []
    for _ in range(15):
        make_pending()
        start = time.perf_counter()
        result = action()
        times.append(1e3 * (time.perf_counter() - start))
        finish()
        del result
    return min(times)
