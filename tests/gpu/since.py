"""`python -m tests.gpu.since`: whether the GPU tests were run lately, and passed.

LAST.md names the commit of the last run. Where the code of `src` has changed by more than 300 lines
since, or a test had failed, this says so and exits with 1. Comments, pages and the simulated device
do not count: they do not run on a GPU.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 300
ON_NO_GPU = ("src/driver/simulated", "src/testing", "src/py/simulated")
CODE = re.compile(r"[+-]\s*(?!//)\S")


def said(page: str, name: str) -> str:
    """Read a row of LAST.md."""
    found = re.search(rf"^\| {name} \| (.*) \|$", page, re.MULTILINE)
    return found[1] if found else ""


def changed(commit: str, root: Path) -> int | None:
    """Count the lines of code added and removed since a commit; None if it is not known here."""
    where = ["src/*.rs", *(f":!{folder}" for folder in ON_NO_GPU)]
    command = ["git", "diff", "--unified=0", commit, "--", *where]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("+++", "---"))]
    return sum(bool(CODE.match(line)) for line in lines)


def complaint(page: str, root: Path) -> str:
    """Say what is wrong with the last run, if anything is."""
    commit, figures = said(page, "commit"), said(page, "figures")
    if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        return f"commit: got {commit!r}; allowed: a commit"
    if not re.search(r"\b0 failed\b", figures):
        return f"figures: got {figures!r}; allowed: 0 failed"
    lines = changed(commit, root)
    if lines is None:
        return f"commit: got {commit}, which this clone does not have; allowed: one of its history"
    if lines > LIMIT:
        return f"src: got {lines} lines changed since {commit[:12]}; allowed: {LIMIT}"
    return ""


def main() -> None:
    root = HERE.parents[1]
    if not (root / ".git").exists():
        return
    last = HERE / "LAST.md"
    wrong = complaint(last.read_text(), root) if last.exists() else "got no file; allowed: LAST.md"
    if wrong:
        sys.exit(f"tests/gpu/LAST.md: {wrong}; run `make gpu` on a machine with a GPU")


if __name__ == "__main__":
    main()
