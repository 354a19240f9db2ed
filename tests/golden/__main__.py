"""`python -m tests.golden`: does the bridge do in random programs what was written down?

    python -m tests.golden [--write]

Runs 4,000 programs of the soak, in half of which the bridge knows no library, and compares each
step, driver call, log record, warning and exception with behaviour.txt, and the messages with
messages.txt. Of a difference it prints the first program and the first line. `--write` writes the
files anew. Exits with 1 where something differs.

The committed files have a hash a program, and every message once. The text that the hashes were
made of is under target/golden: whoever writes the files keeps it, and so does each run that finds
no difference. Where it is missing, the commit that wrote the files is built and run once more.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from . import record
from .record import GROUPS, Program

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


def keep(groups: Groups, folder: Path = KEPT) -> None:
    """Keep the text of programs, in place of any other."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.gz"):
        old.unlink()
    with gzip.open(folder / _kept(hashes(groups)), "wt", compresslevel=1) as file:
        for group, programs in groups.items():
            for seed, one in enumerate(programs):
                file.write("\n".join([f"{group} {seed}", *one.lines, "", ""]))


def text_of(group: str, seed: int) -> list[str] | None:
    """Give the text of a committed program, if it can be had."""
    file = KEPT / _kept(BEHAVIOUR.read_text())
    if not file.exists():
        _run_committed()
    if not file.exists():
        return None
    with gzip.open(file, "rt") as text:
        return next((one[1:] for one in _blocks(text) if one[0] == f"{group} {seed}"), None)


def _kept(behaviour: str) -> str:
    return f"{hashlib.sha256(behaviour.encode()).hexdigest()[:16]}.gz"


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


BEFORE = 12


def recorded() -> Groups:
    """Run the programs, each group in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(len(GROUPS)) as pool:
        return dict(zip(GROUPS, pool.map(record.programs, GROUPS, chunksize=1), strict=True))


def difference(groups: Groups) -> str:
    """Tell how the programs differ from what is committed; nothing where they do not."""
    before = read(BEHAVIOUR.read_text())
    now = read(hashes(groups))
    differ = [one for one in now if before.get(one) != now[one]]
    if not differ:
        return ""
    group, seed = differ[0]
    strangers = " --strangers" if GROUPS[group] else ""
    told = [
        f"{len(differ)} of {len(now)} programs differ; the first: {group} {seed}",
        f"replay it with: python -m tests.soak --replay {seed}{strangers}",
    ]
    old, new = text_of(group, seed), groups[group][seed].lines
    if old is None:
        return "\n".join(
            [*told, "its text cannot be had: the commit that wrote it has other hashes"]
        )
    pairs = zip([*old, None], [*new, None], strict=False)
    at = next((n for n, (left, right) in enumerate(pairs) if left != right), len(old))
    step = max((n for n in range(at + 1) if new[n : n + 1] and new[n][0] == ">"), default=0)
    first = max(step, at - BEFORE)
    told += [f"line {at + 1}, in {new[step][2:]}"] if step < first else []
    told += [f"  {line}" for line in new[first:at]]
    return "\n".join([*told, f"- {_at(old, at)}", f"+ {_at(new, at)}"])


def _at(lines: list[str], number: int) -> str:
    return lines[number] if number < len(lines) else "(nothing more)"


def main(given: list[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files anew")
    parser.add_argument("--keep", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    began = time.monotonic()
    groups = recorded()
    calls = sum(line[:2] == "cu" for some in groups.values() for one in some for line in one.lines)
    took = f"{time.monotonic() - began:.1f} s"
    print(f"{sum(map(len, groups.values()))} programs, {calls} driver calls, {took}", flush=True)
    if asked.keep:
        keep(groups, asked.keep)
        return 0
    behaviour, all_said = hashes(groups), messages(groups)
    if asked.write:
        BEHAVIOUR.write_text(behaviour)
        MESSAGES.write_text(all_said)
    differs = difference(groups)
    if not differs:
        keep(groups)
    said = MESSAGES.read_text().splitlines(), all_said.splitlines()
    names = (f"{MESSAGES.name}, committed", "now")
    apart = [*difflib.unified_diff(*said, *names, n=0, lineterm="")]
    print("\n".join([*filter(None, [differs]), *apart]) or "nothing differs")
    return int(bool(differs or apart))


if __name__ == "__main__":
    sys.exit(main())
