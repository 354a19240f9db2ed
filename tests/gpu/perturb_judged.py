"""What `cai-bridge perturb` found of a program, and whether it named the lines that are marked.

The tests of `perturb` and `tests.gpu.race_tools` judge by this.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .races_run import BY_HOST, SIDES
from .races_run import HERE as PROGRAMS

__all__ = ["PROGRAMS", "command", "is_named", "judged", "marks", "sides"]


def command(program: str, kind: str, *options: str) -> list[str]:
    """Give the command that perturbs one of the programs, and prints JSON."""
    perturb = [sys.executable, "-m", "cai_bridge", "perturb", "--json", *options]
    perturb += ["--match", "^RESULT", "--timeout", "120", "--"]
    return [*perturb, sys.executable, str(PROGRAMS / f"{program}.py"), kind]


def sides(found: dict[str, Any]) -> list[str]:
    """Give the program's lines in which the late operation and the early one were queued."""
    race = found["race"] or {"late": None, "early": None}
    return [_marked(race["late"]), _marked(race["early"])]


def _marked(side: dict[str, Any] | None) -> str:
    frames = side["stack"] if side else []
    return next((one[3] for one in reversed(frames) if str(PROGRAMS) in one[0]), "")


def marks(lines: Sequence[str]) -> list[str]:
    """List the marks that some lines have."""
    return [mark for mark in SIDES if any(mark in one for one in lines)]


def is_named(program: str, named: Sequence[str]) -> bool:
    """Whether both marked lines were named; the host has none."""
    return len(named) == (1 if program in BY_HOST else 2)


def judged(program: str, kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """Say what came of a program, with how long it took in how many runs."""
    lines = sides(found) if kind == "racy" else []
    named = marks(lines)
    # Ending in another way is no value that was read too early.
    if found["status"] == 1 and (kind != "racy" or "in its end" not in found["conclusion"]):
        verdict = "accused" if kind != "racy" else "named" if is_named(program, named) else "found"
    else:
        verdict = "failed" if found["status"] else "quiet" if kind != "racy" else "not found"
    race = found["race"]
    return {
        "verdict": verdict,
        "runs": len(found["runs"]) + (race["runs"] if race else 0),
        "run seconds": [one["seconds"] for one in found["runs"]],
        "marks": named,
        "sides": lines,
        "conclusion": found["conclusion"],
    }
