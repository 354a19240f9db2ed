"""Runs every program of `perturb_programs` under `cai-bridge races`, and writes a line of JSON.

    python tests/gpu/races_run.py [NAME ...] [--jobs N] [--limit S] [--timeout S] [--confirm]
        [--host] [--to FILE]

From the checkout, with `cai_bridge` importable. A line is written when its program has ended, so
that what was found is there if the time runs out: the program and what it is, the exit status, the
times of the runs beside the program's own, the pairs with both lines, and what was not seen. A racy
program is to have a pair whose lines say "the write" and "the read"; a right one is to have none
that is certain. Exits with 1 if one was not as expected or did not end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "perturb_programs"))

from all import HERE, programs, run_all

__all__ = ["BY_HOST", "HERE", "LOOPS", "SIDES", "All", "is_right", "programs"]

SIDES = "the write", "the read"
BY_HOST = {"numpy_on_pinned", "torch_pinned_reuse"}
"""The programs in which the host is one of the two."""
SHOWN = 12
"""So many pairs of a program are written."""
LOOPS = "plain", "prefetch", "graphed", "compiled", "reduced", "ddp"


def lines(side: dict[str, Any]) -> list[str]:
    """Return the lines of the program's own files."""
    return [
        f"{Path(file).name}:{number}: {source}"
        for file, number, _, source in reversed(side["stack"])
        if "perturb_programs" in file
    ][:2]


def told(pair: dict[str, Any]) -> dict[str, Any]:
    sides = [
        {
            "kernel": one["kernel"][:100],
            "kernels": [kernel[:100] for kernel in one["kernels"][:3]],
            "how": one["how"],
            "why": one["why"],
            "stream": one["stream"],
            "lines": lines(one),
        }
        for one in (pair["first"], pair["second"])
    ]
    return {
        "verdict": pair["verdict"],
        "writes": pair["writes"],
        "count": pair["count"],
        "bytes": pair["high"] - pair["low"],
        "sides": sides,
        "advice": pair["advice"][:200],
    }


def is_right(pair: dict[str, Any]) -> bool:
    """Whether the two lines are those that the program marks."""
    texts = [" ".join(lines(pair[side])) for side in ("first", "second")]
    marked = [{mark for mark in SIDES if mark in text} for text in texts]
    if "the host" in (pair["first"]["kernel"], pair["second"]["kernel"]):
        return any(marked)
    # A line without Python frames may be either side.
    return all(texts) and set().union(*marked) == set(SIDES)


class All:
    """The programs that run, and what came of those that have ended."""

    loops = LOOPS

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.ends = asked, time.monotonic() + asked.limit
        self.running: set[int] = set()
        self.lock = threading.Lock()
        self.wrong = 0
        self.to: str | None = asked.to

    def child(self, command: list[str], timeout: float) -> tuple[int | None, str, str]:
        """Run a command in a session of its own; its status, None if it was ended for its time."""
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **self.environment()},
        )
        with self.lock:
            self.running.add(child.pid)
        try:
            out, errors = child.communicate(timeout=max(1.0, timeout))
            return child.returncode, out, errors
        except subprocess.TimeoutExpired:
            # An interrupt lets the command end its own program, which has a session of its own.
            os.killpg(child.pid, signal.SIGINT)
            try:
                out, errors = child.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                out, errors = child.communicate()
            return None, out, errors
        finally:
            with self.lock:
                self.running.discard(child.pid)

    def environment(self) -> dict[str, str]:
        """Give the variables of a program, beside those of this process."""
        return {}

    def found(self, name: str, kind: str, what: dict[str, Any]) -> None:
        """Take all that the command said of a program."""

    def run(self, name: str, kind: str) -> None:
        try:
            self.judged(name, kind)
        except Exception as error:  # whatever comes, the line is written
            self.say({"program": name, "kind": kind, "error": repr(error)}, expected=False)

    def judged(self, name: str, kind: str) -> None:
        left = self.ends - time.monotonic()
        if left < 5:
            self.say({"program": name, "kind": kind, "error": "not begun"}, expected=False)
            return
        program = [sys.executable, str(HERE / f"{name}.py"), kind]
        began = time.monotonic()
        alone, _, _ = self.child(program, min(left, self.asked.timeout))
        own = time.monotonic() - began
        options = ["--json", "--timeout", str(self.asked.timeout)]
        options += ["--confirm"] if self.asked.confirm else []
        options += ["--host"] if self.asked.host or name in BY_HOST else []
        command = [sys.executable, "-m", "cai_bridge", "races", *options, "--", *program]
        left = self.ends - time.monotonic()
        status, out, errors = self.child(command, min(left, 5 * self.asked.timeout))
        said: dict[str, Any] = {
            "program": name,
            "kind": kind,
            "status": status,
            "alone": [alone, round(own, 2)],
        }
        try:
            found = json.loads(out)
        except ValueError:
            said |= {"error": "no JSON", "output": out[-500:], "errors": errors[-1500:]}
            self.say(said, expected=False)
            return
        self.found(name, kind, found)
        pairs = found["pairs"]
        certain = [one for one in pairs if one["verdict"] != "suspect"]
        right = [one for one in pairs if is_right(one)]
        verdicts = sorted({one["verdict"] for one in right})
        said |= {
            "named": verdicts,
            "certain": len(certain),
            "suspects": len(pairs) - len(certain),
            "seconds": found["seconds"],
            "conclusion": found["conclusion"],
            "seen": found["seen"],
            "functions": found["functions"],
            "pairs": [told(one) for one in [*certain, *right, *pairs][:SHOWN]],
            "errors": errors[-500:],
        }
        if kind == "racy":
            expected = status == 1 and any(one in verdicts for one in ("proven", "race"))
        else:
            expected = status == 0 and not certain
        self.say(said, expected=expected)

    def say(self, what: dict[str, Any], *, expected: bool) -> None:
        text = json.dumps({"expected": expected} | what)
        with self.lock:
            self.wrong += not expected
            print(text, flush=True)
            if self.to:
                with Path(self.to).open("a", encoding="utf-8") as file:
                    file.write(f"{text}\n")

    def end(self) -> None:
        """End what runs when the time is up."""
        while time.monotonic() < self.ends:
            time.sleep(0.5)
        with self.lock:
            left = list(self.running)
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGINT)


def main() -> None:
    parser = argparse.ArgumentParser(description="every program under cai-bridge races")
    parser.add_argument("--jobs", type=int, default=8, help="so many at a time (default: 8)")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds (default: 540)")
    parser.add_argument("--timeout", type=float, default=90.0, help="of a run (default: 90 s)")
    parser.add_argument("--confirm", action="store_true", help="show suspects the other way round")
    parser.add_argument("--host", action="store_true", help="--host for all, not two alone")
    parser.add_argument("--to", metavar="FILE", help="also add the lines to this file")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    run_all(parser, All)


if __name__ == "__main__":
    main()
