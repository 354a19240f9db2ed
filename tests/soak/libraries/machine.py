"""Runs a program: its threads, and what comes of it."""

from __future__ import annotations

import gc
import threading
import traceback
from typing import Any

from .. import steps as p
from ..program import Program
from .callers import Callers


class Machine(Callers):
    """Runs a program, and keeps what went wrong.

    Parameters
    ----------
    progress : sequence of int, optional
        Where each thread writes the number of its step.
    """

    def __init__(
        self,
        program: Program,
        libraries: dict[str, Any],
        doors: Any,
        expected: dict[str, int],
        progress: Any = None,
    ) -> None:
        super().__init__(program, libraries, doors, expected)
        self.progress = [0] * program.threads if progress is None else progress
        self.met = {n: threading.Event() for n, s in enumerate(program.steps) if type(s) is p.Meet}
        # What could not be made without the bridge.
        self.missing: set[str] = set()
        self.errors: list[str] = []
        self.raised: list[str] = []
        self.raised_at: int | None = None
        self.stopped = False

    @property
    def at(self) -> int | None:
        """The step that went wrong first."""
        if self.raised_at is None and self.reads.first is not None:
            named = (self.reads.first in step.named() for step in self.program.steps)
            return list(named).index(True)
        return self.raised_at

    def run(self) -> None:
        """Run all threads to their ends, and let go of everything."""
        for step in self.program.steps:
            if isinstance(step, p.NewStream):
                self._newstream(step)
                self.counts.add("steps", "NewStream")
        others = [
            threading.Thread(target=self._run_thread, args=(number,))
            for number in range(1, self.program.threads)
        ]
        for thread in others:
            thread.start()
        self._run_thread(0)
        for thread in others:
            thread.join()
        if not self.errors:
            self._compare(self.reads.of())
        self.objects.clear()
        gc.collect()
        self._synchronize()

    def _run_thread(self, thread: int) -> None:
        try:
            for number, step in enumerate(self.program.steps):
                if self.stopped:
                    break
                if isinstance(step, p.Meet):
                    self._meet(number, step, thread)
                elif step.thread == thread and not isinstance(step, p.NewStream):
                    self._run_step(number, step)
            while self.entered[thread]:
                self.entered[thread].pop()[1].close()
        except BaseException as error:
            self.errors.append(traceback.format_exc())
            self.raised.append(type(error).__name__)
            self.stopped = True

    def _meet(self, number: int, step: p.Meet, thread: int) -> None:
        if thread == step.other:
            self.met[number].set()
        elif thread == step.thread:
            self.progress[thread] = number
            while not self.met[number].wait(0.05) and not self.stopped:
                pass
            self.counts.add("steps", "Meet")

    def _run_step(self, number: int, step: p.Step) -> None:
        self.progress[step.thread] = number
        if step.needs() & self.missing:
            self._skip(step, "skipped")
            return
        try:
            made = step.method(self)(step)
        except Exception as error:
            if not self.doors.native:
                error.add_note(f"in step {number}: {step}")
                self.raised_at = number if self.raised_at is None else self.raised_at
                raise
            self._skip(step, "refused")
            return
        if step.makes() is not None and made is not None:
            self.objects[step.makes() or ""] = made
        del made
        self.counts.add("steps", type(step).__name__)
        if step.library_used() is not None:
            self.counts.add("libraries", step.library_used() or "")

    def _skip(self, step: p.Step, why: str) -> None:
        """Without the bridge, not everything can be handed to everybody."""
        self.counts.add("others", f"steps {why} in the control")
        if step.makes() is not None:
            self.missing.add(step.makes() or "")
