"""``python -m tests.soak``: draw programs, run them, and print what fails, cut down."""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .crew import OUTCOMES, Crew, Outcome, Task, default_jobs
from .device.power import CALLS
from .program import MEMORY, ROOMS, World, listing
from .shrink import cut_down
from .steps import LIBRARIES, STEPS

EVERY_S = 1.0
ROUTES = 40
"""So many are printed; the JSON has all."""


@dataclass
class Totals:
    """Counts of programs, steps and routes, and the programs that failed."""

    # What the run was asked for.
    asked: dict[str, Any]
    # Where the JSON goes, from time to time.
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

    def line(self) -> str:
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


SHOWN = 3
START_S = 300.0
TOLD_EVERY_S = 30.0
MANNERS = ("told", "handles", "unsaid")
# What a program is drawn by and run in, which the command that replays it says again.
ABOUT_PROGRAMS: dict[str, dict[str, object]] = {
    "place": {"choices": ROOMS, "default": "device", "help": "where they run"},
    "plant": {"default": "", "help": "a fault of that place, which has to be found"},
    "break": {
        "choices": CALLS,
        "default": "",
        "help": "leave one needed call out of each program, which must be reported",
    },
    "strangers": {"action": "store_true", "help": "the bridge knows no library (docs/unknown.md)"},
    "manner": {"choices": MANNERS, "default": "told", "help": "how libraries are told streams"},
    "control": {"action": "store_true", "help": "hand arrays over without the bridge"},
    "memory": {"choices": MEMORY, "default": "pools", "help": "where the libraries get theirs"},
    "libraries": {"nargs": "+", "choices": LIBRARIES, "default": list(LIBRARIES)},
    "steps": {"type": int, "nargs": 2, "default": [100, 250], "help": "the least and most of one"},
    "threads": {"type": int, "choices": (1, 2, 3), "default": 3, "help": "the most of one"},
}
# Those of the simulated device alone, and of all other places.
OF_DEVICE = ("break", "strangers")
OF_LIBRARIES = ("manner", "control", "memory", "libraries", "steps", "threads")


class Soak:
    """A run: its crew, what it draws from, and what it comes to."""

    def __init__(self, asked: argparse.Namespace, crew: Crew) -> None:
        self.asked, self.crew = asked, crew
        self.room = crew.world.room
        there, missing = crew.ready.there, [*crew.ready.missing]
        for name, why in crew.ready.missing.items():
            print(f"{name} is missing: {why}")
        self.setup = self.room.setup(asked, there)
        if there:
            asked.libraries = [one for one in asked.libraries if one in there]
        said = {name: getattr(asked, name) for name in ("place", "manner", "control", "memory")}
        said |= {
            "seed": asked.seed,
            "libraries": asked.libraries if there else [],
            "missing": missing,
        }
        lacking = sorted(one.__name__ for one in STEPS - self.room.STEPS)
        print(f"not drawn here: {', '.join(lacking)}")
        self.totals = Totals({**said, "versions": crew.ready.versions}, asked.json)

    def replay_command(self, seed: int) -> str:
        words = ["python", "-m", "tests.soak", "--replay", str(seed)]
        for name, option in ABOUT_PROGRAMS.items():
            value = getattr(self.asked, name)
            if value == option.get("default", False):
                continue
            words.append(f"--{name}")
            if value is not True:
                words += map(str, value if isinstance(value, list) else [value])
        return shlex.join(words)

    def start(self) -> str | None:
        """Start every library in a child, which fills their caches; tell what went wrong."""
        began, first = time.monotonic(), self.room.first(self.setup)
        if first is None:
            return None
        (outcome,) = self.crew.run([self.crew.task(given=first, limit_s=START_S)])
        took = time.monotonic() - began
        print(f"{', '.join(self.asked.libraries)} started in {took:.0f} s", flush=True)
        self.totals.began = time.monotonic()
        return None if outcome.outcome == "right" else f"{outcome.outcome}: {outcome.text}"

    def run(self) -> int:
        """Run programs until there are enough, or time is up."""
        found: list[Outcome] = []
        until = time.monotonic() + (self.asked.seconds or float("inf"))
        told = time.monotonic()
        for outcome in self.crew.run(self._tasks(found), until):
            self.totals.add(outcome)
            if outcome.outcome != "right":
                found.append(outcome)
                self._note(outcome)
            if time.monotonic() - told > TOLD_EVERY_S:
                told = time.monotonic()
                print(self.totals.line(), flush=True)
        if not self.asked.control:
            self._show(found)
        print(self.totals.details())
        print(self.totals.line(), flush=True)
        self.totals.write()
        if self.asked.control:
            wrong = self.totals.programs - self.totals.outcomes["right"]
            print(f"the control: {wrong} of {self.totals.programs} programs are not right")
            return 0
        return int(bool(found))

    def _tasks(self, found: list[Outcome]) -> Iterator[Task]:
        end = self.asked.seed + (self.asked.programs or sys.maxsize)
        for seed in itertools.count(self.asked.seed, self.room.CHUNK):
            too_many = not self.asked.control and len(found) >= self.asked.stop_after
            if seed >= end or too_many:
                return
            count = min(self.room.CHUNK, end - seed)
            yield self.crew.task(seed=seed, setup=self.setup, count=count)

    def _note(self, outcome: Outcome) -> None:
        self.totals.fail(outcome, self.replay_command(outcome.seed))
        if not self.asked.control:
            said = f"program {outcome.seed}: {outcome.kind}: {_first_line(outcome)}"
            print(said, flush=True)

    def _show(self, found: list[Outcome]) -> None:
        """Cut some failures down, of as many kinds as there are, within the time there is."""
        kinds: dict[str, Outcome] = {}
        for outcome in found:
            kinds.setdefault(outcome.kind, outcome)
        shown = list(kinds.values())[:SHOWN]
        for outcome in shown:
            seed, drawn = outcome.seed, self.room.program(outcome.seed, self.setup)
            cut, failure = drawn, outcome
            if not self.crew.world.without:
                cut, failure = cut_down(self.crew, drawn, outcome, self.asked.shrink / len(shown))
            print(f"\nprogram {seed}: {failure.kind}, cut from {len(drawn.steps)} steps")
            print(listing(cut))
            print(failure.text.rstrip())
            print(f"replay it with: {self.replay_command(seed)}", flush=True)
            noted = next(one for one in self.totals.failures if one["seed"] == seed)
            noted["listing"] = listing(cut)
            noted["listing_text"] = failure.text
            self.totals.write()

    def replay(self) -> int:
        """Print a program, run it as often as asked, and tell; one that fails is cut down."""
        seed = self.asked.replay
        print(listing(self.room.program(seed, self.setup)), flush=True)
        tasks = [self.crew.task(seed=seed, setup=self.setup) for _ in range(self.asked.tries)]
        failed = []
        for outcome in self.crew.run(tasks):
            failed += [outcome] if outcome.outcome != "right" else []
            print(f"program {seed} is {outcome.outcome}\n{outcome.text}".rstrip())
        if self.asked.control:
            return 0
        for outcome in failed[:1]:
            self.totals.fail(outcome, self.replay_command(seed))
            self._show(failed[:1])
        return int(bool(failed))


def _first_line(outcome: Outcome) -> str:
    lines = [line for line in outcome.text.splitlines() if line.strip()]
    return (lines[-1] if outcome.outcome == "error" else lines[0]) if lines else ""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    add = parser.add_argument
    for name, option in ABOUT_PROGRAMS.items():
        add(f"--{name}", **option)
    add("--seconds", type=float, help="for how long programs are begun")
    add("--programs", type=int, help="how many; where no time is said, as many as take minutes")
    add("--seed", type=int, default=0, help="the first program's")
    add("--jobs", type=int, default=default_jobs(), help="how many processes at once")
    add("--limit", type=float, default=120.0, help="seconds for one process")
    add("--replay", type=int, metavar="SEED", help="print one program, and run it")
    add("--tries", type=int, default=1, help="how often --replay runs it")
    add("--shrink", type=float, default=60.0, help="seconds for cutting failures down")
    add("--stop-after", type=int, default=10, help="begin no more after so many failures")
    add("--json", type=Path, metavar="FILE", help="write the totals there, while it runs too")
    asked = parser.parse_args(given)
    room = World(asked.place).room
    for name in OF_LIBRARIES if asked.place == "device" else OF_DEVICE:
        if getattr(asked, name) != ABOUT_PROGRAMS[name].get("default", False):
            parser.error(f"--{name}: not on the place {asked.place}")
    faults = room.FAULTS.get(asked.place, ())
    if asked.plant and asked.plant not in faults:
        parser.error(f"--plant {asked.plant}: not one of {', '.join(faults) or 'none'}")
    if asked.programs is None and asked.seconds is None:
        asked.programs = room.PROGRAMS
    return asked


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    world = World(
        *(asked.place, asked.control, asked.plant, asked.memory),
        without=getattr(asked, "break"),
        strangers=asked.strangers,
    )
    reason = world.room.why_not(asked.place)
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    with Crew(world, asked.jobs, asked.limit) as crew:
        soak = Soak(asked, crew)
        reason = soak.start()
        if reason is not None:
            print(reason, file=sys.stderr)
            return 2
        return soak.run() if asked.replay is None else soak.replay()


if __name__ == "__main__":
    sys.exit(main())
