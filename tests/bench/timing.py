"""How the benchmark measures, and one measured row."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROUNDS = 7
CALLS = 2000


@dataclass(frozen=True)
class Row:
    """One measured thing. `value` and `peer_value` in `unit`; `budget` is of the ratio where there
    is a peer.

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
        return "PASS" if measured is not None and measured <= self.budget else "over"


@dataclass(frozen=True)
class Pair:
    """A statement of the bridge's and the one of a peer that does the same, run in turns."""

    name: str
    bridge: str
    peer: str = ""
    budget: float | None = None

    def measure(self, group: str, names: dict[str, Any], calls: int = CALLS) -> Row:
        """The least of `ROUNDS` times `calls`, bridge and peer alternating, so that a drifting
        clock hits both.
        """
        try:
            timers = [
                timeit.Timer(text, globals=names) for text in (self.bridge, self.peer) if text
            ]
            for timer in timers:
                timer.timeit(max(50, calls // 20))
            least = [float("inf")] * len(timers)
            for _ in range(ROUNDS):
                for i, timer in enumerate(timers):
                    least[i] = min(least[i], 1e9 * timer.timeit(calls) / calls)
        except (
            Exception
        ) as error:  # a library that is missing or refuses costs its row, not the run
            remark = f"{type(error).__name__}: {error}"
            return Row(group, self.name, None, peer=self.peer, budget=self.budget, remark=remark)
        peer_value = least[1] if self.peer else None
        return Row(
            group, self.name, least[0], peer=self.peer, peer_value=peer_value, budget=self.budget
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
