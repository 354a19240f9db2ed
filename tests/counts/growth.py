"""`python -m tests.counts.growth`: that nothing costs more because there is more of something.

    python -m tests.counts.growth LIBRARIES PACKAGE

LIBRARIES and PACKAGE are those of `python -m tests.counts`. Each row of growth.toml is counted for
each of its sizes, in instructions. Exits with 1 where the dearest is over 1.2 times the cheapest,
or where a piece takes more of the heap than its row says.
"""

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from .__main__ import HERE, settings
from .callgrind import read

GROWTH = HERE / "growth.toml"
CHILD = HERE / "growth_child.py"
# The dearest of a row's sizes may cost that many times the cheapest.
FLAT = 1.2
ROUNDS = 50


def counted(libraries, package, rows):
    """Give the instructions of a statement, for each row and each of its sizes."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "callgrind"
        command = [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={output}",
            "--instr-atstart=no",
            "--zero-before=*counts_begin",
            "--dump-before=*counts_end",
            "--main-stacksize=67108864",
            sys.executable,
            str(CHILD),
            str(GROWTH),
        ]
        run(command, settings(libraries, package))
        number = itertools.count(1)
        return [
            [
                read(Path(f"{output}.{next(number)}"), rounds).instructions / rounds
                for _ in row["sizes"]
            ]
            for row in rows
            for rounds in [row.get("rounds", ROUNDS)]
        ]


def run(command, env):
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"growth: the rows did not run\n{done.stdout}{done.stderr}")
    return done.stdout


def steps(row, costs):
    """Give what is compared: the costs, or of a statement with n parts that of one more."""
    if not row.get("each"):
        return costs
    pairs = itertools.pairwise(zip(row["sizes"], costs, strict=True))
    return [(more - less) / (size - smaller) for (smaller, less), (size, more) in pairs]


def grown(row, costs):
    found = steps(row, costs)
    return max(found) > FLAT * min(found)


def main():
    parser = argparse.ArgumentParser(prog="tests.counts.growth", description=__doc__)
    parser.add_argument("libraries", type=Path)
    parser.add_argument("package", type=Path)
    options = parser.parse_args()
    libraries, package = options.libraries.resolve(), options.package.resolve()
    table, failed = tomllib.loads(GROWTH.read_text()), 0
    if shutil.which("valgrind") is None:
        print("growth: valgrind is not installed, so nothing is counted")
    else:
        found = counted(libraries, package, table["row"])
        for row, costs in zip(table["row"], found, strict=True):
            shown = "  ".join(f"{cost:>9,.0f}" for cost in steps(row, costs))
            bad = grown(row, costs)
            failed += bad
            print(f"{row['what']:<66} {shown}{'  grown' if bad else ''}")
    command = [sys.executable, str(CHILD), str(GROWTH), "memory"]
    # What was freed must not be kept for the thread.
    env = {**settings(libraries, package), "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    taken = json.loads(run(command, env))
    for row, (there, left) in zip(table["memory"], taken, strict=True):
        bad = there > row.get("most", there) or left > row.get("left", left)
        failed += bad
        print(f"{row['what']:<66} {there:>9,.0f} {left:>9,.1f} left{'  grown' if bad else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
