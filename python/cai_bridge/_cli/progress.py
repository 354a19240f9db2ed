"""A progress bar on a terminal, for work that takes longer than a second."""

from __future__ import annotations

import sys
import threading
from typing import Any, Self

DELAY = 1.0
"""Seconds before a bar is shown, so that quick work shows none."""


class Progress:
    """Counts steps, and shows a bar on stderr if stderr is a terminal and ``rich`` is installed.

    Parameters
    ----------
    total : int or None
        The number of steps; None if unknown.
    """

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._ended = False
        self._done = 0
        self._label = ""
        self._bar: Any = None
        self._task: Any = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(DELAY, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()

    @property
    def label(self) -> str:
        """The latest step's label."""
        return self._label

    def step(self, label: str) -> None:
        """Begin the next step, and so end the previous one."""
        with self._lock:
            self._done += bool(self._label)
            self._label = label
            if self._bar is not None:
                self._bar.update(self._task, completed=self._done, description=label)

    def done(self, count: int, total: int, label: str) -> None:
        """Report how many of `total` steps are done, and the latest one."""
        with self._lock:
            self._done, self._total, self._label = count, total, label
            if self._bar is not None:
                self._bar.update(self._task, completed=count, total=total, description=label)

    def _show(self) -> None:
        try:
            from rich import console, progress
        except ImportError:
            return
        with self._lock:
            if self._ended:
                return
            self._bar = progress.Progress(
                progress.BarColumn(bar_width=30),
                progress.MofNCompleteColumn(),
                progress.TimeElapsedColumn(),
                progress.TextColumn("{task.description}", markup=False),
                console=console.Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._label, total=self._total, completed=self._done)
            self._bar.start()
