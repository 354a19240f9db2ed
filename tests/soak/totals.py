"""What a run comes to, printed and as JSON."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .child import OUTCOMES, Outcome

EVERY_S = 1.0
ROUTES = 40
"""So many are printed; the JSON has all."""


@dataclass
class Totals:
    """Counts of programs, steps and routes, and the programs that failed.

    Attributes
    ----------
    asked : dict
        What the run was asked for.
    path : Path or None
        Where the JSON goes, from time to time.
    """

    asked: dict[str, Any]
    path: Path | None = None
    began: float = field(default_factory=time.monotonic)
    programs: int = 0
    steps: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    written: float = 0.0

    @property
    def label(self) -> str:
        memory = self.asked.get("memory", "pools")
        is_device = self.asked.get("place") == "device"
        told = [
            "device" if is_device else self.asked["manner"],
            *["control"] * self.asked["control"],
        ]
        return ", ".join(told + [memory] * (memory != "pools"))

    def add(self, outcome: Outcome) -> None:
        self.programs += 1
        self.steps += outcome.steps
        self.outcomes[outcome.outcome] += 1
        for kind, counted in outcome.counts.items():
            self.counts.setdefault(kind, Counter()).update(counted)
        self.seconds = time.monotonic() - self.began
        if time.monotonic() - self.written > EVERY_S:
            self.write()

    def fail(self, outcome: Outcome, replay: str) -> dict[str, Any]:
        """Note a program that failed; its listing may follow."""
        said = {
            "seed": outcome.seed,
            "outcome": outcome.outcome,
            "text": outcome.text,
            "replay": replay,
        }
        self.failures.append(said)
        self.write()
        return said

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.asked,
            "programs": self.programs,
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "outcomes": {name: self.outcomes[name] for name in OUTCOMES},
            "counts": {kind: dict(one.most_common()) for kind, one in sorted(self.counts.items())},
            "failures": self.failures,
        }

    def write(self) -> None:
        self.written = time.monotonic()
        if self.path is not None:
            new = self.path.with_name(self.path.name + ".new")
            new.write_text(json.dumps(self.to_dict(), indent=1) + "\n")
            new.replace(self.path)

    # --- words ------------------------------------------------------------------------------------

    def line(self) -> str:
        """All in one line."""
        named = {"error": "errors"}
        outcomes = ", ".join(f"{self.outcomes[one]} {named.get(one, one)}" for one in OUTCOMES)
        used = self.counts.get("libraries", Counter()).most_common()
        libraries = ", ".join(f"{name} {count:,}" for name, count in used)
        rate = self.programs / self.seconds if self.seconds else 0.0
        return (
            f"{self.label}: {self.programs:,} programs of {self.steps:,} steps in "
            f"{self.seconds:.0f} s ({rate:.0f}/s): {outcomes}"
            + (f" (steps: {libraries})" if libraries else "")
        )

    def details(self) -> str:
        """Which steps and routes ran, and what else was counted."""
        lines = []
        steps = self.counts.get("steps", Counter())
        lines.append("steps: " + ", ".join(f"{name} {n:,}" for name, n in steps.most_common()))
        for what, count in sorted(self.counts.get("others", Counter()).items()):
            lines.append(f"{what}: {count:,}")
        routes = self.counts.get("routes", Counter())
        if not routes:
            return "\n".join(lines)
        lines.append(f"{len(routes)} routes, {sum(routes.values()):,} hand-overs:")
        lines += [f"  {count:6,}  {route}" for route, count in routes.most_common(ROUTES)]
        lines += [f"  and {len(routes) - ROUTES} more"] if len(routes) > ROUTES else []
        return "\n".join(lines)
