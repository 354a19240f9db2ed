"""What a program's reads saw, and how much of what there was."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

SHOWN = 5


class Counts:
    """Counters of steps, of libraries' steps, of routes, and of other things."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.kinds: dict[str, Counter[str]] = {
            kind: Counter() for kind in ("steps", "libraries", "routes", "others")
        }

    def add(self, kind: str, what: str, by: int = 1) -> None:
        with self._lock:
            self.kinds[kind][what] += by


class Reads:
    """Copies of arrays that are still on the device, and what came of those that are not.

    Attributes
    ----------
    expected : dict of str to int
        The value that each read must see in all items.
    wrong : list of str
        The first reads that saw something else.
    first : str or None
        The name of the very first.
    """

    def __init__(self, expected: dict[str, int], counts: Counts) -> None:
        self.expected, self.counts = expected, counts
        self.wrong: list[str] = []
        self.first: str | None = None
        self._queued: dict[str, tuple[Any, Any, int]] = {}
        self._writers: dict[int, str] = {}

    def written(self, value: int, by: object) -> None:
        """Note who writes a value, which nobody else does."""
        self._writers[value] = str(by)

    def add(self, name: str, adapter: Any, copied: Any, thread: int) -> None:
        self._queued[name] = adapter, copied, thread

    def of(self, thread: int | None = None) -> list[str]:
        """List the reads of a thread, or all."""
        queued = list(self._queued.items())
        return [name for name, (*_, owner) in queued if thread in {None, owner}]

    def compare(self, names: list[str]) -> None:
        """Look at copies, all work on which is done."""
        for name in names:
            adapter, copied, _ = self._queued.pop(name)
            self.saw(name, adapter.values(copied))

    def saw(self, name: str, values: Any) -> None:
        """Compare what a read has seen that the host has waited for."""
        expected = self.expected[name]
        others = values[values != expected]
        self.counts.add("others", "reads compared")
        if not len(others):
            return
        self.first = self.first or name
        if len(self.wrong) < SHOWN:
            found = ", ".join(f"{value:g}" for value in sorted(set(others.tolist()))[:3])
            value = float(others[0])
            writer = self._writers.get(int(value)) if value == value // 1 else None
            self.wrong.append(
                f"{name}: {len(others)} of {len(values)} items are {found} instead of {expected}"
                f"\n    {expected} is of: {self._writers.get(expected)}"
                f"\n    {value:g} is of: {writer or 'nobody in this program'}"
            )
