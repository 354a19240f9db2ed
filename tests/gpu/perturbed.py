"""`python -m tests.gpu.perturbed`: the GPU tests under `cai-bridge perturb`, test by test.

    python -m tests.gpu.perturbed [--seeds N ...] [--processes N] [--limit S] [pytest's arguments]

Run from the checkout, with `cai_bridge` importable. The tests run by themselves, serially and under
each seed, all at the same time. A test that passes by itself and serially, and fails under a seed,
is printed with what it said: a wait is missing, or the test asks how long something takes. One that
fails serially looks at work that is pending, and there is none then. After `--limit` seconds what
is left is ended, and only tests that ended in every run are judged. Exits with 1 if a test fails
under a seed alone, with 2 if none could be judged.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cai_bridge._cli import perturbed
from cai_bridge._cli.perturbed import Program, Run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PASSED, FAILED = "PASSED", {"FAILED", "ERROR"}
# `[gw0] [ 12%] PASSED name` as each ends, and behind that of one that failed `SAID what it said`.
ENDED = re.compile(r"^\[gw\d+\] \[ *\d+%\] ([A-Z]+) (.*?) *$")
SAID = "SAID "
# It runs the command itself.
LEFT_OUT = "--ignore=tests/gpu/test_perturb.py"


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: Any) -> None:
    """Print at once what a test said that failed: a run may be ended before its summary."""
    # A worker's own reports have no node; its variables may be those of a worker around all this.
    if report.failed and hasattr(report, "node"):
        crash = getattr(report.longrepr, "reprcrash", None)
        said = crash.message if crash else report.longreprtext
        print(f"\n{SAID}{' '.join(said.split())[:300]}", flush=True)


@dataclass(frozen=True)
class Outcomes:
    """What came of the tests of a run: the outcome by the test, and what the failed ones said."""

    run: Run
    of: dict[str, str]
    said: dict[str, str]

    def __str__(self) -> str:
        outcomes = Counter(self.of.values()).most_common()
        counts = {name: number for name, number in self.run.counts.items() if number}
        end = "ended for its time" if self.run.status is None else f"{self.run.seconds:.0f} s"
        return f"{', '.join(f'{n} {name.lower()}' for name, n in outcomes)}, {end}, {counts}"


def read(run: Run) -> Outcomes:
    """Read what pytest printed: a test whose teardown fails as well has failed."""
    of: dict[str, str] = {}
    said: dict[str, str] = {}
    last = ""
    for line in run.lines:
        if (ended := ENDED.match(line)) and of.get(ended[2]) not in FAILED:
            of[ended[2]] = ended[1]
            last = ended[2]
        elif line.startswith(SAID):
            said[last] = line.removeprefix(SAID)
    return Outcomes(run, of, said)


def only_late(runs: dict[str, Outcomes]) -> dict[str, dict[str, str]]:
    """Find the tests that fail under seeds alone: what each says, by the seed."""
    references, seeds = dict(list(runs.items())[:2]), dict(list(runs.items())[2:])
    found: dict[str, dict[str, str]] = {}
    for test in judged(runs):
        if any(one.of[test] != PASSED for one in references.values()):
            continue
        said = {
            name: one.said.get(test, "") for name, one in seeds.items() if one.of[test] in FAILED
        }
        if said:
            found[test] = said
    return found


def judged(runs: dict[str, Outcomes]) -> list[str]:
    """List the tests that ended in every run."""
    return sorted(set.intersection(*(set(one.of) for one in runs.values())))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.perturbed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="default: 0 1")
    parser.add_argument("--processes", type=int, default=4, help="of each run (default: 4)")
    parser.add_argument("--limit", type=float, help="seconds (default: none)")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds (default: 0.05)")
    asked, arguments = parser.parse_known_args()
    named = any((ROOT / one.partition("::")[0]).exists() for one in arguments)
    tests = arguments if named else ["tests/gpu", LEFT_OUT, *arguments]
    command = [sys.executable, "-u", "-m", "pytest", "-v", "--tb=no", "-m", "not alone"]
    command += ["-p", "no:benchmark", "-p", "no:cacheprovider", "-p", __spec__.name]
    command += ["-n", str(asked.processes), "--dist", "loadfile", *tests]
    os.environ["COLUMNS"] = "300"  # a test's name is cut there
    program = Program(tuple(command), delay=asked.delay, timeout=asked.limit)
    modes: dict[str, tuple[str, dict[str, Any]]] = {
        "by itself": ("off", {}),
        "serial": ("serial", {}),
    }
    modes |= {f"seed {one}": ("late", {"seed": one}) for one in asked.seeds}
    with ThreadPoolExecutor(len(modes)) as pool:
        begun = {
            name: pool.submit(perturbed.run, program, mode, **more)
            for name, (mode, more) in modes.items()
        }
    runs = {name: read(one.result()) for name, one in begun.items()}
    for name, one in runs.items():
        print(f"{name}: {one}")
    found = only_late(runs)
    for test, said in found.items():
        print(f"{test}\n" + "\n".join(f"    {seed}: {text}" for seed, text in said.items()))
    tested = [one for one in judged(runs) if runs["by itself"].of[one] == PASSED]
    serially = [one for one in tested if runs["serial"].of[one] in FAILED]
    print(
        f"{len(tested)} pass by themselves and ended in every run: "
        f"{len(found)} fail under a seed alone, {len(serially)} serially"
    )
    sys.exit(1 if found else 2 if not tested else 0)


if __name__ == "__main__":
    main()
