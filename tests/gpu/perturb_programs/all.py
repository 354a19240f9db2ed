"""Runs every program under `cai-bridge perturb`, several at a time, and prints a line of each.

    python tests/gpu/perturb_programs/all.py [NAME ...] [--jobs N] [--seeds N]
        [--delay S] [--limit S]

From the checkout, with `cai_bridge` importable. A line has the program and what it is, the exit
status, the verdict of each run, and how long it took. Where that was not expected the conclusion
follows, and the runs. After `--limit` seconds it ends what is left. Exits with 1 if a program was
not as expected or did not end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NO_PROGRAMS = {"all", "common", "training"}
LIBRARIES = ("torch", "cupy", "jax", "numba", "triton", "warp")
SHOWN = 6


class All:
    """The programs that run, and what came of those that have ended."""

    loops: Sequence[str] = "plain", "prefetch"
    """The training loops that run."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.ends = asked, time.monotonic() + asked.limit
        self.running: set[int] = set()
        self.lock = threading.Lock()
        self.wrong = 0

    def command(self, name: str, kind: str) -> list[str]:
        seeds = [] if kind == "racy" else ["--seeds", str(self.asked.seeds)]
        options = ["--json", "--no-name", "--match", "^RESULT", "--timeout", "90", *seeds]
        options += ["--delay", str(self.asked.delay)]
        perturb = [sys.executable, "-m", "cai_bridge", "perturb", *options]
        return [*perturb, "--", sys.executable, str(HERE / f"{name}.py"), kind]

    def run(self, name: str, kind: str) -> None:
        """Run one program, and print its line."""
        began = time.monotonic()
        if began > self.ends:
            self.say(f"{name} {kind}: not begun", [], expected=False)
            return
        child = subprocess.Popen(
            self.command(name, kind),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with self.lock:
            self.running.add(child.pid)
        out, errors = child.communicate()
        with self.lock:
            self.running.discard(child.pid)
        took = time.monotonic() - began
        try:
            found = json.loads(out)
        except ValueError:
            tail = [*out.splitlines(), *errors.splitlines()][-SHOWN:]
            line = f"{name} {kind}: ended with {child.returncode} after {took:.0f} s"
            self.say(line, tail, expected=False)
            return
        verdicts = [f"{one['run']} {one['verdict']}" for one in found["runs"][2:]]
        by_values = "exit status" not in found["conclusion"]
        expected = child.returncode == (1 if kind == "racy" else 0) and by_values
        line = f"{name} {kind}: {child.returncode}, {', '.join(verdicts)}, {took:.0f} s"
        runs = [json.dumps(one) for one in found["runs"]]
        self.say(line, [found["conclusion"], *errors.splitlines()[-SHOWN:], *runs], expected)

    def say(self, line: str, details: list[str], expected: bool) -> None:
        with self.lock:
            self.wrong += not expected
            print("   " if expected else "NOT", line, flush=True)
            for one in [] if expected else details:
                print("      ", one[-1500:], flush=True)

    def end(self) -> None:
        """End what runs when the time is up."""
        while time.monotonic() < self.ends:
            time.sleep(0.2)
        with self.lock:
            left = list(self.running)
        for process in left:
            # Its program is in a group of its own, which `perturb` ends.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGINT)


def programs(loops: Sequence[str]) -> list[tuple[str, str]]:
    """List the programs whose libraries are installed, racy ones before their twins."""
    absent = {one for one in LIBRARIES if importlib.util.find_spec(one) is None}
    found = []
    for path in sorted(HERE.glob("*.py")):
        imports = set(re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE))
        if path.stem not in NO_PROGRAMS and not imports & absent:
            found.append(path.stem)
    twins = [(name, kind) for name in found for kind in ("racy", "right")]
    return [*twins, *([] if "torch" in absent else [("training", kind) for kind in loops])]


def main() -> None:
    parser = argparse.ArgumentParser(description="every program under cai-bridge perturb")
    parser.add_argument("--jobs", type=int, default=10, help="so many at a time (default: 10)")
    parser.add_argument("--seeds", type=int, default=6, help="for what is right (default: 6)")
    parser.add_argument("--delay", type=float, default=0.2, help="seconds (default: 0.2)")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds (default: 3600)")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    run_all(parser, All)


def run_all(parser: argparse.ArgumentParser, kind_of: Callable[[argparse.Namespace], Any]) -> None:
    """Run the programs that the command line names, several at a time, and exit."""
    asked = parser.parse_args()
    every = kind_of(asked)
    found = programs(every.loops)
    if absent := set(asked.names) - {name for name, _ in found}:
        parser.error(f"no program whose libraries are installed: {', '.join(sorted(absent))}")
    chosen = [one for one in found if not asked.names or one[0] in asked.names]
    threading.Thread(target=every.end, daemon=True).start()
    with ThreadPoolExecutor(asked.jobs) as pool:
        for name, kind in chosen:
            pool.submit(every.run, name, kind)
    print(f"{len(chosen)} programs, {every.wrong} not as expected")
    sys.exit(bool(every.wrong))


if __name__ == "__main__":
    main()
