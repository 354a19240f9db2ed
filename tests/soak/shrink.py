"""Cuts a program that fails down to a short one that fails in the same way.

Steps are left out, with those that need what they make, and arguments are made simple; what the
model refuses is no program, and what fails otherwise is another failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from . import steps as s
from .bridge import Bridge
from .execute import Failure, run
from .order import Refused

Fails = Callable[[s.Program], Failure | None]


def is_valid(program: s.Program, model: Bridge) -> bool:
    """Whether the model refuses nothing in a program."""
    try:
        for step in program:
            model.take(step)
    except (Refused, KeyError):
        # A key is missing where a step needs what another, now left out, had made.
        return False
    return model.capture is None


def fails_with(make: Callable[[], Bridge]) -> Fails:
    """Make the function that runs a program, if it is one."""
    return lambda program: run(program, make()) if is_valid(program, make()) else None


def shrink(program: s.Program, failure: Failure, fails: Fails) -> tuple[s.Program, Failure]:
    """Cut a program down as long as it fails in the same way."""
    shorter = True
    while shorter:
        shorter = False
        for candidate in candidates(program):
            found = fails(candidate)
            if found is not None and found.kind == failure.kind:
                program, failure, shorter = candidate, found, True
                break
    return program, failure


def candidates(program: s.Program) -> Iterator[s.Program]:
    """List the programs that are a little smaller, the smallest first."""
    half = len(program) // 2
    if half > 4:
        yield program[:half]
        yield program[:-1]
    for at in reversed(range(len(program))):
        yield without(program, at)
        if program[at].makes() is None:
            yield program[:at] + program[at + 1 :]
    for at, step in enumerate(program):
        for simpler in simplified(program, at, step):
            yield (*program[:at], simpler, *program[at + 1 :])


def without(program: s.Program, at: int) -> s.Program:
    """Leave a step out, and what needs what it made."""
    gone = program[at].names()
    kept = list(program[:at])
    for step in program[at + 1 :]:
        if step.needs() & gone:
            gone |= step.names()
        else:
            kept.append(step)
    return tuple(kept)


def simplified(program: s.Program, at: int, step: s.Step) -> Iterator[s.Step]:
    """List simpler forms of a step."""
    if isinstance(step, s.Attempt):
        yield step.step
    yield from step.simpler()
    for field in fields(step):
        value = getattr(step, field.name)
        if field.name in step.simplest and value != step.simplest[field.name]:
            yield replace(step, **{field.name: step.simplest[field.name]})
        if field.name == "stream" and isinstance(value, str) and "." in value:
            yield replace(step, stream=value.partition(".")[0])
        if field.name == "source" and value[0] != "x":
            made = [before.makes() for before in program[:at]]
            for other in made:
                if other is not None and other[0] in "xv" and other < value:
                    yield replace(step, source=other)
