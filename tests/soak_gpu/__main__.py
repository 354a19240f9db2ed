"""``python -m tests.soak_gpu``: draw programs, run them, and print what fails, cut down."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ..gpu.driver import why_no_gpu
from . import program as p
from .child import Outcome, Task
from .crew import Crew, default_jobs
from .draw import WORDS, Setup
from .generate import first, program
from .libraries.faults import FAULTS
from .shrink import cut_down
from .totals import Totals
from .worlds import MEMORY, World

SHOWN = 3
START_S = 300.0
SIMULATED = "with the bridge, over stand-ins on the simulated device"
WORDS_OF = {"gpu": WORDS, "dry": (16, 64, 256), "simulated": (6, 8)}
TOLD_EVERY_S = 30.0


class Soak:
    """A run: its crew, what it draws from, and what it comes to."""

    def __init__(self, asked: argparse.Namespace, crew: Crew) -> None:
        self.asked, self.crew = asked, crew
        there = crew.ready.there
        self.libraries = tuple(one for one in there if one in asked.libraries)
        missing = [one for one in asked.libraries if one not in there]
        for name in missing:
            print(f"{name} is missing: {crew.ready.missing.get(name, 'not asked for')}")
        if not set(self.libraries) & {"torch", "cupy", "numba"}:
            raise SystemExit("nothing to run: none of torch, CuPy and Numba is there")
        words = WORDS_OF[asked.place]
        self.setup = Setup(asked.manner, self.libraries, tuple(asked.steps), asked.threads, words)
        self.totals = Totals(self._said(missing), asked.json)

    def _said(self, missing: list[str]) -> dict[str, object]:
        return {
            "manner": self.asked.manner,
            "control": self.asked.control,
            "memory": self.asked.memory,
            "place": self.asked.place,
            "seed": self.asked.seed,
            "libraries": list(self.libraries),
            "missing": missing,
            "versions": self.crew.ready.versions,
        }

    def replay_command(self, seed: int) -> str:
        words = ["python -m tests.soak_gpu", "--manner", self.asked.manner, "--replay", str(seed)]
        words += ["--steps", *map(str, self.asked.steps), "--threads", str(self.asked.threads)]
        words += ["--libraries", *self.libraries]
        words += ["--control"] if self.asked.control else []
        words += [f"--{self.asked.place}"] if self.asked.place != "gpu" else []
        words += ["--plant", self.asked.plant] if self.asked.plant else []
        words += ["--memory", self.asked.memory] if self.asked.memory != "pools" else []
        return " ".join(words)

    def start(self) -> str | None:
        """Start every library in a child, which fills their caches; tell what went wrong."""
        began = time.monotonic()
        task = self.crew.task(given=first(self.setup), limit_s=START_S)
        (outcome,) = self.crew.run([task])
        print(
            f"{', '.join(self.libraries)} started in {time.monotonic() - began:.0f} s", flush=True
        )
        self.totals.began = time.monotonic()
        return None if outcome.outcome == "right" else f"{outcome.outcome}: {outcome.text}"

    # --- many programs ----------------------------------------------------------------------------

    def run(self) -> int:
        """Run programs until there are enough, or time is up."""
        seeds: dict[int, int] = {}
        found: list[tuple[int, Outcome]] = []
        until = time.monotonic() + (self.asked.seconds or float("inf"))
        told = time.monotonic()
        for outcome in self.crew.run(self._tasks(seeds, found), until):
            self.totals.add(outcome)
            if outcome.outcome != "right":
                found.append((seeds[outcome.number], outcome))
                self._note(*found[-1])
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

    def _tasks(self, seeds: dict[int, int], found: list[tuple[int, Outcome]]) -> Iterator[Task]:
        for seed in itertools.count(self.asked.seed):
            enough = self.asked.programs and seed >= self.asked.seed + self.asked.programs
            too_many = not self.asked.control and len(found) >= self.asked.stop_after
            if enough or too_many:
                return
            task = self.crew.task(seed=seed, setup=self.setup)
            seeds[task.number] = seed
            yield task

    def _note(self, seed: int, outcome: Outcome) -> None:
        self.totals.fail(seed, outcome, self.replay_command(seed))
        if not self.asked.control:
            print(f"program {seed}: {outcome.outcome}: {_first_line(outcome)}", flush=True)

    def _show(self, found: list[tuple[int, Outcome]]) -> None:
        """Cut some failures down, of as many kinds as there are, within the time there is."""
        kinds: dict[str, tuple[int, Outcome]] = {}
        for seed, outcome in found:
            kinds.setdefault(outcome.kind, (seed, outcome))
        shown = list(kinds.values())[:SHOWN]
        for seed, outcome in shown:
            drawn = program(seed, self.setup)
            cut, failure = cut_down(self.crew, drawn, outcome, self.asked.shrink / len(shown))
            print(f"\nprogram {seed}: {failure.outcome}, cut from {len(drawn.steps)} steps")
            print(p.listing(cut))
            print(failure.text.rstrip())
            print(f"replay it with: {self.replay_command(seed)}", flush=True)
            noted = next(one for one in self.totals.failures if one["seed"] == seed)
            noted["listing"] = p.listing(cut)
            noted["listing_text"] = failure.text
            self.totals.write()

    # --- one program ------------------------------------------------------------------------------

    def replay(self) -> int:
        """Print a program, run it as often as asked, and tell."""
        drawn = program(self.asked.replay, self.setup)
        print(p.listing(drawn), flush=True)
        tasks = [self.crew.task(given=drawn) for _ in range(self.asked.tries)]
        failed = 0
        for outcome in self.crew.run(tasks):
            failed += outcome.outcome != "right"
            print(f"program {self.asked.replay} is {outcome.outcome}\n{outcome.text}".rstrip())
        return int(bool(failed) and not self.asked.control)


def _first_line(outcome: Outcome) -> str:
    lines = [line for line in outcome.text.splitlines() if line.strip()]
    return (lines[-1] if outcome.outcome == "error" else lines[0]) if lines else ""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_gpu", description=__doc__)
    add = parser.add_argument
    add("--manner", choices=p.MANNERS, default="told", help="how streams are named")
    add("--control", action="store_true", help="hand arrays over without the bridge")
    add("--seconds", type=float, help="for how long programs are begun")
    add("--programs", type=int, help="how many; 20 where no time is said")
    add("--seed", type=int, default=0, help="the first program's")
    add("--jobs", type=int, default=default_jobs(), help="how many at once")
    add("--limit", type=float, default=120.0, help="seconds for one program")
    add("--steps", type=int, nargs=2, default=[100, 250], help="the least and the most of one")
    add("--threads", type=int, default=3, choices=(1, 2, 3), help="the most of one")
    add("--libraries", nargs="+", default=list(p.LIBRARIES), choices=p.LIBRARIES)
    add("--replay", type=int, metavar="SEED", help="print one program, and run it")
    add("--tries", type=int, default=1, help="how often --replay runs it")
    add("--shrink", type=float, default=60.0, help="seconds for cutting failures down")
    add("--stop-after", type=int, default=10, help="begin no more after so many failures")
    add("--json", type=Path, metavar="FILE", help="write the totals there, while it runs too")
    add("--memory", choices=MEMORY, default="pools", help="where the libraries get theirs")
    add("--dry", dest="place", action="store_const", const="dry", help="over stand-ins alone")
    add("--simulated", dest="place", action="store_const", const="simulated", help=SIMULATED)
    parser.set_defaults(place="gpu")
    add("--plant", default="", help="a fault in the stand-ins, or beside them")
    parsed = parser.parse_args(given)
    there = FAULTS.get(parsed.place, ())
    if parsed.plant and parsed.plant not in there:
        parser.error(f"--plant {parsed.plant}: not one of {', '.join(there) or 'none'}")
    if parsed.programs is None and parsed.seconds is None:
        parsed.programs = 20
    return parsed


def main(given: list[str] | None = None) -> int:
    asked = arguments(given)
    reason = why_no_gpu() if asked.place == "gpu" else None
    if reason is not None:
        print(f"{reason}; --dry and --simulated need none", file=sys.stderr)
        return 2
    world = World(asked.place, asked.control, asked.plant, asked.memory)
    with Crew(world, asked.jobs, asked.limit) as crew:
        soak = Soak(asked, crew)
        reason = soak.start()
        if reason is not None:
            print(reason, file=sys.stderr)
            return 2
        return soak.run() if asked.replay is None else soak.replay()


if __name__ == "__main__":
    sys.exit(main())
