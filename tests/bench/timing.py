"""How the benchmark measures, and one measured row."""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROUNDS = 15
CALLS = 1000
NEAR = 1.15
"""How far from its floor a row may be whose budget the floor forbids."""


@dataclass(frozen=True)
class Row:
    """One measured thing. `value`, `peer_value`, `median` and `floor` in `unit`; `budget` is of the
    ratio where there is a peer.

    `floor` is what of `value` the bridge has to do whoever writes it, measured in the same run. A
    row without a budget is for information, and passes.
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

    @property
    def ratio(self) -> float | None:
        return self.value / self.peer_value if self.value is not None and self.peer_value else None

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        if self.budget is None:
            return ""
        measured = self.ratio if self.peer else self.value
        if measured is not None and measured <= self.budget:
            return "PASS"
        if self.floor is None or not self.peer_value or self.floor <= self.budget * self.peer_value:
            return "over"
        return "at floor" if self.value <= NEAR * self.floor else "over, floor"

    @property
    def from_floor(self) -> float | None:
        """How many times its floor it takes."""
        return self.value / self.floor if self.value is not None and self.floor else None


def timed(statements: list[str], names: dict[str, Any], calls: int = CALLS) -> list[list[float]]:
    """The times of a call of each statement in ns, of as many rounds, in which they take turns: a
    drifting clock hits all.
    """
    timers = [timeit.Timer(text, globals=names) for text in statements]
    for timer in timers:
        timer.timeit(max(50, calls // 20))
    times: list[list[float]] = [[] for _ in timers]
    for _ in range(ROUNDS):
        for timer, found in zip(timers, times, strict=True):
            found.append(1e9 * timer.timeit(calls) / calls)
    return times


@dataclass(frozen=True)
class Pair:
    """A statement of the bridge's and the one of a peer that does the same, run in turns. `floor`
    is a sum of what `floors` has names for.
    """

    name: str
    bridge: str
    peer: str = ""
    budget: float | None = None
    floor: str = ""

    def measure(
        self,
        group: str,
        names: dict[str, Any],
        calls: int = CALLS,
        floors: dict[str, float] | None = None,
    ) -> Row:
        """The least and the median of `ROUNDS` times `calls`."""
        known = floors or {}
        parts = [known.get(part.strip()) for part in self.floor.split("+") if part.strip()]
        whole = [part for part in parts if part is not None]
        floor = sum(whole) if parts and len(whole) == len(parts) else None
        try:
            times = timed([text for text in (self.bridge, self.peer) if text], names, calls)
        except (
            Exception
        ) as error:  # a library that is missing or refuses costs its row, not the run
            remark = f"{type(error).__name__}: {error}"
            return Row(group, self.name, None, peer=self.peer, budget=self.budget, remark=remark)
        return Row(
            group,
            self.name,
            min(times[0]),
            peer=self.peer,
            peer_value=min(times[1]) if self.peer else None,
            budget=self.budget,
            median=statistics.median(times[0]),
            floor=floor,
        )


def least_host_ms(
    action: Callable[[], object], make_pending: Callable[[], object], finish: Callable[[], object]
) -> float:
    """The least host time of `action` in ms over a few tries, with work queued in front of each."""
    times = []
    for _ in range(ROUNDS):
        make_pending()
        start = time.perf_counter()
        result = action()
        times.append(1e3 * (time.perf_counter() - start))
        finish()
        del result
    return min(times)
