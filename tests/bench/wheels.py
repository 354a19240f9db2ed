"""How long the calls of one build take beside those of another, in turns, on a GPU.

    python tests/bench/wheels.py BEFORE AFTER

BEFORE and AFTER are wheels, or folders that a package is in. Each has a process of its own, BEFORE
a second one, which shows by how much two processes of one build differ. The processes take turns in
61 rounds of each row; a ratio is the median of the rounds' ratios. The rows are those of
pairs.toml, with the libraries that are there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import timeit
import zipfile
from pathlib import Path

ROUNDS = 61
# Less of a call's time than this is no gain.
GAIN = 0.05
FIRST, AFTER, AGAIN = range(3)


def answer():
    """Tell which rows there are; then time the row of each number that is asked for."""
    import on_gpu

    if reason := on_gpu.why_not():
        raise SystemExit(f"no GPU: {reason}")
    # Libraries print: what is asked and answered has a stream of its own.
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    names, timers = on_gpu.names(), {}
    # The threads of the libraries are there already, and stay free.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = dict.fromkeys((p.bridge, calls) for _, calls, pairs in on_gpu.groups() for p in pairs)
    for statement, calls in rows:
        timer = timeit.Timer(statement, globals=names)
        try:
            timer.timeit(max(50, calls))
        except Exception as error:
            on_gpu.left_out(statement, error)
        else:
            timers[statement] = (timer, calls)
    print(json.dumps(list(timers)), file=told, flush=True)
    for line in sys.stdin:
        timer, calls = timers[json.loads(line)]
        if "torch" in names:
            names["torch"].cuda.synchronize()
        # Another process has had the caches.
        timer.timeit(max(2, calls // 4))
        print(timer.timeit(calls) / calls * 1e9, file=told, flush=True)


class Build:
    """A process that has a build."""

    def __init__(self, package):
        command = [sys.executable, __file__, "--answer"]
        env, pipe = {**os.environ, "PYTHONPATH": str(package)}, subprocess.PIPE
        self.process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)
        self.rows = json.loads(self._line())

    def time(self, row):
        """Give the time of a call, in ns."""
        print(json.dumps(row), file=self.process.stdin, flush=True)
        return float(self._line())

    def _line(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a process has ended: {self.process.wait()}")
        return line


def package(given, folder):
    """Give the folder that a build can be imported from."""
    if given.is_dir():
        return given.resolve()
    made = folder / given.parent.name
    made.mkdir()
    with zipfile.ZipFile(given) as wheel:
        wheel.extractall(made)
    return made


def compared(builds):
    """Time each row that all builds have, and give the ratios."""
    ratios = []
    print(f"{'':<58}{'before':>9}{'after':>9}{'ratio':>8}{'noise':>8}")
    for row in builds[AFTER].rows:
        if not all(row in build.rows for build in builds):
            continue
        rounds = []
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
        ratios.append(ratio)
        times = f"{before:>9,.0f}{middle[AFTER]:>9,.0f}"
        print(f"{row:<58}{times}{ratio:>8.3f}{noise:>8.3f}", flush=True)
    return ratios


def main():
    """Compare two builds."""
    if "--answer" in sys.argv:
        answer()
        return
    how = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        packages = [package(one, Path(name)) for one in (asked.before, asked.after)]
        ratios = compared([Build(packages[at]) for at in (0, 1, 0)])
    gained = sum(ratio < 1 - GAIN for ratio in ratios)
    lost = sum(ratio > 1 + GAIN for ratio in ratios)
    print(
        f"\nof {len(ratios)} rows {gained} gain over {GAIN:.0%} and {lost} lose as much;"
        f" the median ratio is {statistics.median(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
