"""`python -m tests.gpu`: the GPU tests in processes side by side, then those that must run alone.

    python -m tests.gpu [--processes N] [--spread N] [--commit SHA] [--last FILE]
        [pytest's arguments ...]

Run from the checkout, with `cai_bridge` importable. `--processes 0` runs all in one process. Tests
marked `programs` run a program many times: they run behind the others, and a process that is free
takes the next one. Tests marked `alone` measure times or free memory: they run last, one by one on
each GPU. What was skipped is printed by its reason, then one line of figures. `--spread 4` gives
each process one of 4 GPUs; what needs two GPUs runs behind the others, where all are seen.
Arguments that name tests choose those, of all GPU tests otherwise. Without arguments for pytest
tests/gpu/LAST.md says what came of it; `--commit` is for a tree without a repository, and the
variable COMMIT is as good. Exits with 1 if a test failed, with 2 if none ran.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .figures import Figures, page, read, skipped_for

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Benchmarks are not run here, and the plugin warns beside xdist.
OPTIONS = ("-q", "-p", "no:benchmark", "-p", "no:cacheprovider")
NOTHING_RAN = 5
BESIDE, PROGRAMS, ALONE = "not alone and not programs", "programs and not alone", "alone"


def run(processes: int, marked: str, arguments: list[str], report: Path) -> Figures:
    """Run the tests that `marked` chooses; pytest's own lines go to the terminal."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-m", marked, f"--junitxml={report}"]
    if processes:
        # A file's tests share what they set up; others are long, and share nothing.
        dist = "loadfile" if marked == BESIDE else "worksteal"
        command += ["-n", str(processes), "--dist", dist]
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    began = time.monotonic()
    code = subprocess.run([*command, *arguments], cwd=ROOT, env=env, check=False).returncode
    took = time.monotonic() - began
    if code not in {0, 1, NOTHING_RAN} or not report.exists():
        raise SystemExit(f"pytest stopped: exit code {code}")
    return read(report, took)


def commit(given: str | None) -> str:
    """Tell which commit the tree is of."""
    if said := given or os.environ.get("COMMIT"):
        return said
    command = ["git", "rev-parse", "HEAD"]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def machine() -> str:
    """Name the GPUs, the driver and the cores."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        shown = ""
    gpus = [line.split(", ") for line in shown.splitlines() if ", " in line]
    names = f"{len(gpus)} x {gpus[0][0]}, driver {gpus[0][1]}" if gpus else "no GPU"
    return f"{names}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("--processes", type=int, default=8, help="side by side (default: 8)")
    parser.add_argument("--spread", type=int, metavar="N", help="a process has one of N GPUs")
    parser.add_argument("--commit", help="the commit that the tree is of")
    parser.add_argument("--last", type=Path, default=HERE / "LAST.md", help="where figures go")
    asked, arguments = parser.parse_known_args()
    named = any((ROOT / one.partition("::")[0]).exists() for one in arguments)
    tests = arguments if named else ["tests/gpu", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        beside_xml, programs_xml, alone_xml, whole_xml = (
            Path(folder) / f"{name}.xml" for name in ("beside", "programs", "alone", "whole")
        )
        if asked.spread:
            os.environ["SPREAD_OVER_GPUS"] = str(asked.spread)
        beside = run(asked.processes, BESIDE, tests, beside_xml)
        beside += run(asked.processes, PROGRAMS, tests, programs_xml)
        alone = run(asked.spread or 0, ALONE, tests, alone_xml)
        both = beside + alone
        if asked.spread:
            del os.environ["SPREAD_OVER_GPUS"]
            reports = (beside_xml, programs_xml, alone_xml)
            need_two = [one for report in reports for one in skipped_for("one GPU", report)]
            if need_two:
                both = both.without("one GPU") + run(0, "", need_two, whole_xml)
    print("\n".join(both.skips()))
    line = f"{both} ({asked.processes} processes {beside.took_s:.0f} s, alone {alone.took_s:.0f} s)"
    if not both.passed + both.failed:
        print(f"no GPU test ran: {line}")
        sys.exit(2)
    if not arguments:
        options = os.environ.get("PYTEST_ADDOPTS", "")
        asked.last.write_text(page(both, line, machine(), commit(asked.commit), options))
    print(line)
    sys.exit(1 if both.failed else 0)


if __name__ == "__main__":
    main()
