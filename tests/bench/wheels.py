"""How long the calls of one build take beside those of another, in turns.

    python tests/bench/wheels.py BEFORE AFTER [--json FILE] [--stubs FOLDER]

BEFORE and AFTER are wheels, or folders that a package is in. Each has a process of its own, BEFORE
a second one, which shows by how much two processes of one build differ. The processes take turns in
61 rounds of each row; a ratio is the median of the rounds' ratios. The rows are those of
pairs.toml, with the libraries that are there; with `--stubs` those of `make counts`, over its
driver and libraries, in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ROUNDS = 61
# Less of a call's time than this is no gain.
GAIN = 0.05
FIRST, AFTER, AGAIN = range(3)


# --- The process of a build -----------------------------------------------------------------------


def of_libraries() -> tuple[dict[str, Any], list[tuple[str, int]], Callable[[], object] | None]:
    """Give the names, the statements with the calls of a round, and what lets queues run empty."""
    import on_gpu

    if reason := on_gpu.why_not():
        raise SystemExit(f"no GPU: {reason}")
    names = on_gpu.names()
    pairs = [(pair.bridge, calls) for _, calls, pairs in on_gpu.groups() for pair in pairs]
    settle = names["torch"].cuda.synchronize if "torch" in names else None
    return names, list(dict.fromkeys(pairs)), settle


def of_stubs() -> tuple[dict[str, Any], list[tuple[str, int]], Callable[[], object] | None]:
    """Give the same over the stand-ins."""
    import tomllib

    counts = ROOT / "tests" / "counts"
    sys.path.insert(0, str(counts))
    import child

    table = tomllib.loads((counts / "rows.toml").read_text())["row"]
    return child.names(), [(row["statement"], 200) for row in table], None


def answer(stubs: bool) -> None:
    """Tell which rows there are; then time the row of each number that is asked for."""
    # Libraries print: what is asked and answered has a stream of its own.
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    names, rows, settle = of_stubs() if stubs else of_libraries()
    # The threads of the libraries are there already, and stay free.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    timers = {}
    for statement, calls in rows:
        timer = timeit.Timer(statement, globals=names)
        try:
            timer.timeit(max(50, calls))
        except Exception as error:
            print(f"left out: {statement}: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            timers[statement] = (timer, calls)
    print(json.dumps(list(timers)), file=told, flush=True)
    for line in sys.stdin:
        timer, calls = timers[json.loads(line)]
        if settle is not None:
            settle()
        # Another process has had the caches.
        timer.timeit(max(2, calls // 4))
        print(timer.timeit(calls) / calls * 1e9, file=told, flush=True)


# --- The one that compares ------------------------------------------------------------------------


class Build:
    """A process that has a build."""

    def __init__(self, package: Path, stubs: Path | None) -> None:
        env = {**os.environ, "PYTHONPATH": str(package)}
        command = [sys.executable, __file__, "--answer"]
        if stubs is not None:
            env["PYTHONPATH"] += f":{stubs}"
            env["LD_LIBRARY_PATH"] = str(stubs)
            command.append("--stubs")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)
        self.rows: list[str] = json.loads(self._line())

    def time(self, row: str) -> float:
        """Give the time of a call, in ns."""
        assert self.process.stdin is not None
        print(json.dumps(row), file=self.process.stdin, flush=True)
        return float(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a process has ended: {self.process.wait()}")
        return line


def package(given: Path, folder: Path) -> Path:
    """Give the folder that a build can be imported from."""
    if given.is_dir():
        return given.resolve()
    made = folder / given.parent.name
    made.mkdir()
    with zipfile.ZipFile(given) as wheel:
        wheel.extractall(made)
    return made


def compared(builds: list[Build]) -> list[dict[str, Any]]:
    """Time each row that all builds have."""
    found = []
    print(f"{'':<58}{'before':>9}{'after':>9}{'ratio':>8}{'noise':>8}")
    for row in builds[AFTER].rows:
        if not all(row in build.rows for build in builds):
            continue
        rounds: list[list[float]] = []
        for number in range(ROUNDS):
            times = [0.0] * len(builds)
            # Each is the first one in its turn.
            for at in range(len(builds)):
                which = (at + number) % len(builds)
                times[which] = builds[which].time(row)
            rounds.append(times)
        middle = [statistics.median(times) for times in zip(*rounds, strict=True)]
        ratio = statistics.median(2 * r[AFTER] / (r[FIRST] + r[AGAIN]) for r in rounds)
        noise = statistics.median(r[AGAIN] / r[FIRST] for r in rounds)
        before = (middle[FIRST] + middle[AGAIN]) / 2
        found.append(
            {"row": row, "before": before, "after": middle[AFTER], "ratio": ratio, "noise": noise}
        )
        print(
            f"{row:<58}{before:>9,.0f}{middle[AFTER]:>9,.0f}{ratio:>8.3f}{noise:>8.3f}", flush=True
        )
    return found


def main() -> None:
    """Compare two builds."""
    if "--answer" in sys.argv:
        answer("--stubs" in sys.argv)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every row to FILE")
    parser.add_argument("--stubs", type=Path, metavar="FOLDER", help="without a GPU")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        packages = [package(one, Path(name)) for one in (asked.before, asked.after)]
        stubs = asked.stubs.resolve() if asked.stubs else None
        found = compared([Build(packages[at], stubs) for at in (0, 1, 0)])
    gained = [one for one in found if one["ratio"] < 1 - GAIN]
    lost = [one for one in found if one["ratio"] > 1 + GAIN]
    middle = statistics.median(one["ratio"] for one in found)
    print(
        f"\nof {len(found)} rows {len(gained)} gain over {GAIN:.0%} and {len(lost)} lose as much;"
        f" the median ratio is {middle:.3f}"
    )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
