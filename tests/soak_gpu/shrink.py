"""Cuts a program that fails down to a short one that fails in the same way.

Each try runs in a child of its own, several at once, and more than once where the failure depends
on timing. What the discipline refuses is no program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from . import program as p
from .child import Outcome
from .crew import Crew
from .discipline import is_right

TRIES = 3
LIMIT_S = 20.0
"""For one try: a program that hangs does so for this long, and not for as long as in the soak."""

Attempt = Callable[[list[p.Program]], list[Outcome | None]]


class Shrinking:
    """A program that fails, and how.

    Parameters
    ----------
    attempt : callable
        Runs programs; gives one failure of each, or None.
    until : float
        When to end, by `time.monotonic`.
    at_once : int
        How many programs are tried at once.
    """

    def __init__(
        self, program: p.Program, failure: Outcome, attempt: Attempt, until: float, at_once: int = 1
    ) -> None:
        self.program, self.failure = program, failure
        self.attempt, self.until, self.at_once = attempt, until, at_once

    def run(self) -> tuple[p.Program, Outcome]:
        """Cut it down as long as there is time."""
        self._first(cuts(self.program, self.failure))
        self._first(plainer(self.program))
        shorter = True
        while shorter and time.monotonic() < self.until:
            before = self.program
            self._pieces()
            for at in reversed(range(len(self.program.steps))):
                self._first(simplified(self.program, at))
            shorter = self.program != before
        return self.program, self.failure

    def _pieces(self) -> None:
        """Leave out halves, quarters, and so on down to single steps."""
        size = max(1, len(self.program.steps) // 2)
        while size and time.monotonic() < self.until:
            end = len(self.program.steps)
            while end > 0 and time.monotonic() < self.until:
                starts = [end - size * (n + 1) for n in range(self.at_once)]
                pieces = [range(max(0, one), one + size) for one in starts if one + size > 0]
                found = self._first(without(self.program, set(one)) for one in pieces)
                end = min(end, len(self.program.steps)) - size * (0 if found else self.at_once)
                end = min(end, len(self.program.steps))
            size //= 2

    def _first(self, candidates: Iterator[p.Program]) -> bool:
        """Go on with the first of these that fails in the same way."""
        tried = [one for one in candidates if len(one.steps) and is_right(one)]
        tried = [one for one in tried if one != self.program]
        for start in range(0, len(tried), self.at_once):
            if time.monotonic() >= self.until:
                return False
            some = tried[start : start + self.at_once]
            for candidate, found in zip(some, self.attempt(some), strict=True):
                if found is not None and found.kind == self.failure.kind:
                    self.program, self.failure = candidate, found
                    return True
        return False


def attempts_of(crew: Crew, until: float, tries: int) -> Attempt:
    """Make the function that runs programs in children, each some times."""

    def attempt(programs: list[p.Program]) -> list[Outcome | None]:
        owners, found = {}, dict[int, Outcome]()
        tasks = []
        for at, one in enumerate(programs):
            for _ in range(tries):
                tasks.append(crew.task(given=one, limit_s=min(LIMIT_S, crew.limit_s)))
                owners[tasks[-1].number] = at
        for outcome in crew.run(tasks, until):
            if outcome.number in owners and outcome.outcome != "right":
                found[owners[outcome.number]] = outcome
        return [found.get(at) for at in range(len(programs))]

    return attempt


def cut_down(
    crew: Crew, program: p.Program, failure: Outcome, seconds: float
) -> tuple[p.Program, Outcome]:
    """Cut a program down with a crew; what fails every time is tried once each."""
    until = time.monotonic() + seconds
    again = attempts_of(crew, until, 1)([program] * TRIES)
    always = all(one is not None and one.kind == failure.kind for one in again)
    tries = 1 if always else TRIES
    attempt = attempts_of(crew, until, tries)
    at_once = max(1, crew.jobs // tries)
    return Shrinking(program, failure, attempt, until, at_once).run()


# --- smaller programs -----------------------------------------------------------------------------


def cuts(program: p.Program, failure: Outcome) -> Iterator[p.Program]:
    """List what is left where the failure is known: up to that step, and of its memory only."""
    if failure.at is None:
        return
    upto = program.of(program.steps[: failure.at + 1])
    roots = roots_of(upto.steps)
    of = {roots[name] for name in program.steps[failure.at].needs() if name in roots}
    for root in sorted(of):
        yield upto.of(only(upto.steps, root, roots))
    yield upto


def plainer(program: p.Program) -> Iterator[p.Program]:
    if program.threads > 1:
        steps = (replace(step, thread=0) for step in program.steps if type(step) is not p.Meet)
        yield replace(program, threads=1, steps=tuple(steps))
    if program.collects or program.listens:
        yield replace(program, collects=False, listens=False)


def without(program: p.Program, gone: set[int]) -> p.Program:
    """Leave steps out, and what needs what they make."""
    names: set[str | None] = set()
    kept = []
    for number, step in enumerate(program.steps):
        if number in gone or step.needs() & names:
            names.add(step.makes())
        else:
            kept.append(step)
    return program.of(tuple(kept))


def roots_of(steps: tuple[p.Step, ...]) -> dict[str, str]:
    """Name the producer's array of everything that is made of one."""
    roots: dict[str, str] = {}
    for step in steps:
        name = step.makes()
        found = [roots[one] for one in step.needs() if one in roots]
        if name is not None and (found or isinstance(step, p.Make)):
            roots[name] = found[0] if found else name
    return roots


def only(steps: tuple[p.Step, ...], root: str, roots: dict[str, str]) -> tuple[p.Step, ...]:
    """Keep what is about one block, and what is about none."""
    kept = []
    for step in steps:
        about = {roots[one] for one in (*step.needs(), step.makes()) if one in roots}
        if not about or root in about:
            kept.append(step)
    return tuple(kept)


def simplified(program: p.Program, at: int) -> Iterator[p.Program]:
    """List simpler forms of a step."""
    step = program.steps[at]
    for one in fields(step):
        value = getattr(step, one.name)
        if one.name in step.simplest and value != step.simplest[one.name]:
            simplest: dict[str, Any] = {one.name: step.simplest[one.name]}
            simpler = replace(step, **simplest)
            yield program.of((*program.steps[:at], simpler, *program.steps[at + 1 :]))
