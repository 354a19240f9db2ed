"""Cuts a program that fails down to a short one that fails in the same way.

Steps are left out, with those that need what they make, and arguments are made simple. Each try
runs in a child of its own, several at once, and more than once where the failure depends on timing.
What the room refuses is no program, and what fails otherwise is another failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields, replace
from typing import Any

from .crew import Crew, Outcome
from .program import Program

TRIES = 3
LIMIT_S = 20.0
"""For one try: a program that hangs does so for this long, and not for as long as in the soak."""

# A failure has a `kind`, and may know the step that it is `at`.
Attempt = Callable[[list[Program]], list[Any]]


class Shrinking:
    """A program that fails, and how.

    `is_right` tells whether a program is one; `attempt` runs some, `at_once` so many, and gives one
    failure of each, or None; `until` is when to end, by `time.monotonic`.
    """

    def __init__(
        self,
        program: Program,
        failure: Any,
        is_right: Callable[[Program], bool],
        attempt: Attempt,
        until: float = float("inf"),
        at_once: int = 1,
    ) -> None:
        self.program, self.failure = program, failure
        self.is_right, self.attempt = is_right, attempt
        self.until, self.at_once = until, at_once

    def run(self) -> tuple[Program, Any]:
        """Cut it down as long as there is time."""
        self._first(cuts(self.program, self.failure))
        self._first(self.program.plainer())
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

    def _first(self, candidates: Iterable[Program]) -> bool:
        """Go on with the first of these that fails in the same way."""
        tried = [one for one in candidates if len(one.steps) and self.is_right(one)]
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

    def attempt(programs: list[Program]) -> list[Outcome | None]:
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
    crew: Crew, program: Program, failure: Outcome, seconds: float
) -> tuple[Program, Outcome]:
    """Cut a program down with a crew; what fails every time is tried once each."""
    until = time.monotonic() + seconds
    again = attempts_of(crew, until, 1)([program] * TRIES)
    always = all(one is not None and one.kind == failure.kind for one in again)
    tries = 1 if always else TRIES
    attempt = attempts_of(crew, until, tries)
    at_once = max(1, crew.jobs // tries)
    world = crew.world

    def is_right(drawn: Program) -> bool:
        return bool(world.room.is_right(drawn, world))

    return Shrinking(program, failure, is_right, attempt, until, at_once).run()


def cuts(program: Program, failure: Any) -> Iterator[Program]:
    """List what is left where the failure is known: up to that step, and of its memory only."""
    at = getattr(failure, "at", None)
    if at is None:
        return
    upto = program.of(program.steps[: at + 1])
    roots = roots_of(upto.steps)
    of = {roots[name] for name in program.steps[at].needs() if name in roots}
    for root in sorted(of):
        yield upto.of(only(upto.steps, root, roots))
    yield upto


def without(program: Program, gone: set[int]) -> Program:
    names: set[str] = set()
    kept = []
    for number, step in enumerate(program.steps):
        if number in gone or step.needs() & names:
            names |= step.names()
        else:
            kept.append(step)
    return program.of(tuple(kept))


def roots_of(steps: tuple[Any, ...]) -> dict[str, str]:
    """Name the producer's array of everything that is made of one."""
    roots: dict[str, str] = {}
    for step in steps:
        name = step.makes()
        found = [roots[one] for one in step.needs() if one in roots]
        if name is not None and (found or name[0] == "x"):
            roots[name] = found[0] if found else name
    return roots


def only(steps: tuple[Any, ...], root: str, roots: dict[str, str]) -> tuple[Any, ...]:
    """Keep what is about one block, and what is about none."""
    kept = []
    for step in steps:
        about = {roots[one] for one in (*step.needs(), step.makes()) if one in roots}
        if not about or root in about:
            kept.append(step)
    return tuple(kept)


def simplified(program: Program, at: int) -> Iterator[Program]:
    for simpler in forms(program.steps, at):
        yield program.of((*program.steps[:at], simpler, *program.steps[at + 1 :]))


def forms(steps: tuple[Any, ...], at: int) -> Iterator[Any]:
    step = steps[at]
    yield from step.simpler()
    for field in fields(step):
        value = getattr(step, field.name)
        if field.default not in {MISSING, value}:
            yield replace(step, **{field.name: field.default})
        if field.name == "stream" and isinstance(value, str) and "." in value:
            yield replace(step, stream=value.partition(".")[0])
        if field.name == "source" and value[0] != "x":
            made = [before.makes() for before in steps[:at]]
            for other in made:
                if other is not None and other[0] in "xv" and other < value:
                    yield replace(step, source=other)
