"""What was committed of each program, and the text behind it, which is too long to commit.

The committed files have a hash a program, and every message once. The text that the hashes were
made of is under target/golden: whoever writes the files keeps it, and so does each run that finds
no difference. Where it is missing, the commit that wrote the files is built and run once more.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from .record import Program

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BEHAVIOUR, MESSAGES = HERE / "behaviour.txt", HERE / "messages.txt"
KEPT = ROOT / "target" / "golden"
ROW = 10
Groups = dict[str, list[Program]]


def hashes(groups: Groups) -> str:
    """Write a hash for each program, some to a line, behind the first one's seed."""
    lines = ["# A hash of all that happens in each program, ten to a line. WRITE=1 writes it."]
    for group, programs in groups.items():
        told = [hashlib.sha256("\n".join(one.lines).encode()).hexdigest()[:8] for one in programs]
        for first in range(0, len(told), ROW):
            lines.append(f"{group} {first}: {' '.join(told[first : first + ROW])}")
    return "\n".join(lines) + "\n"


def messages(groups: Groups) -> str:
    """Write every message once."""
    said = {text for programs in groups.values() for one in programs for text in one.messages}
    return (
        "\n".join(["# All that is said in the programs. WRITE=1 writes it.", *sorted(said)]) + "\n"
    )


def read(text: str) -> dict[tuple[str, int], str]:
    """Read the hash of each program."""
    found = {}
    for line in text.splitlines()[1:]:
        place, _, row = line.partition(": ")
        group, first = place.split()
        found.update({(group, int(first) + at): one for at, one in enumerate(row.split())})
    return found


def keep(groups: Groups) -> None:
    """Keep the text of programs, in place of any other."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob("*.gz"):
        old.unlink()
    with gzip.open(_kept(hashes(groups)), "wt", compresslevel=1) as file:
        for group, programs in groups.items():
            for seed, one in enumerate(programs):
                file.write("\n".join([f"{group} {seed}", *one.lines, "", ""]))


def lines(group: str, seed: int) -> list[str] | None:
    """Give the text of a committed program, if it can be had."""
    file = _kept(BEHAVIOUR.read_text())
    if not file.exists():
        _run_committed()
    if not file.exists():
        return None
    with gzip.open(file, "rt") as text:
        return next((one[1:] for one in _blocks(text) if one[0] == f"{group} {seed}"), None)


def _kept(behaviour: str) -> Path:
    return KEPT / f"{hashlib.sha256(behaviour.encode()).hexdigest()[:16]}.gz"


def _blocks(text: Iterator[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in text:
        if line == "\n":
            yield block
            block = []
        else:
            block.append(line.rstrip("\n"))


def _run_committed() -> None:
    """Build the commit that wrote the hashes, run its programs, and keep their text."""
    log = ["git", "log", "-1", "--format=%H", "--", str(BEHAVIOUR)]
    commit = subprocess.run(log, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tree = KEPT / "tree"
    print(f"building {commit[:8]}, which wrote {BEHAVIOUR.name}, for its text", flush=True)
    archive = ["git", "archive", commit.strip()]
    packed = subprocess.run(archive, cwd=ROOT, check=True, capture_output=True).stdout
    shutil.rmtree(tree, ignore_errors=True)
    with tarfile.open(fileobj=BytesIO(packed)) as files:
        files.extractall(tree)
    env = {**os.environ, "CARGO_TARGET_DIR": str(KEPT / "build")}
    env["PYTHONPATH"] = os.pathsep.join([str(tree / "python"), str(tree / "make")])
    subprocess.run([sys.executable, "-c", "import dev; dev.build()"], cwd=tree, env=env, check=True)
    keeps = [sys.executable, "-m", "tests.golden", "--keep", str(KEPT)]
    subprocess.run(keeps, cwd=tree, env=env, check=True)
