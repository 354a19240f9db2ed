"""`python -m tests.mutants`: changes the Python that judges, and shows that its tests notice.

    python -m tests.mutants [--only REGEX] [--seconds S] [--seed N] [--jobs N]
                            [--cases N] [--reached FILE] [--log FILE]

Judging is `conformance`, `testing/_kit` and `_cli`. Each change is made to a copy of the package,
and the tests that reach its line run until one fails. A change that no test notices is printed;
those in argued.toml are not mistakes, and it says why. Exits with 1 where another one is left.
`--seconds` draws as many changes as there is time for, and `--jobs` judges so many at once.
`--cases` runs no more cases of a test than this: faster, and what is left may be noticed by others.
`--reached` keeps which lines the tests reach, for another run over the same files; `--log` gets a
line a change, and what it has is not done again.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .changes import Change, changes

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PARTS = ("conformance", "testing/_kit", "_cli")
# What needs a GPU or tells what the machine has, and what judges nothing.
LEFT_OUT = re.compile(
    r"conformance/(libraries/|known/|lab/gpu|lab/cuda|test_)"
    r"|_cli/(advice|machine|libraries)"
    r"|__init__"
)
TESTS = (
    *("conformance_*", "bridged_producers", "isolated", "matrix*", "describe", "equivalence"),
    *("exchange_tables", "dlpack_abi", "cli*", "page", "doctor", "reports", "said", "lab"),
    "adapters",
)
# What runs in processes of its own, whose lines nobody sees, and how its tests' files begin.
CHILDREN = {
    "conformance/isolated.py": "isolated",
    "conformance/children.py": "isolated",
    "conformance/matrix/": "matrix",
    "_cli/": "cli",
    "testing/_kit/dlpack_": "dlpack_abi",
}
# No test hangs for longer, nor do all of them together take so much longer than without a change.
TEST_S, SLOWER = 60, 5
LATE = "there was no time left"
Reached = dict[str, dict[str, Any]]


def installed() -> Path:
    """Find the package without importing it: each child imports its own, changed."""
    spec = importlib.util.find_spec("cai_bridge")
    if spec is None or spec.origin is None:
        raise SystemExit("cai_bridge is not installed")
    return Path(spec.origin).parent


def files(package: Path, only: str) -> list[str]:
    """List what is changed, by its path in the package."""
    found = [path for part in PARTS for path in sorted((package / part).rglob("*.py"))]
    names = [str(path.relative_to(package)) for path in found]
    return [one for one in names if not LEFT_OUT.search(one) and re.search(only, one)]


def test_files() -> list[str]:
    """List the tests of what judges."""
    here = ROOT / "tests" / "python"
    return [str(one) for name in TESTS for one in sorted(here.glob(f"test_{name}.py"))]


def search_path(*first: Path) -> str:
    """Put folders in front of those that PYTHONPATH names."""
    given = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([*map(str, first), *filter(None, [given])])


def digest(package: Path) -> str:
    """Tell one state of the package's and the tests' files from another, but for the core's."""
    digest = hashlib.sha256(repr(TESTS).encode())
    for folder in (package, ROOT / "tests" / "python", ROOT / "tests" / "data"):
        for path in sorted(folder.rglob("*.*")):
            if path.is_file() and path.suffix not in {".pyc", ".so"}:
                digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def reached(package: Path, folder: Path, output: Path) -> Reached:
    """Run all tests once, with the package as it is, and note the lines that each one reaches.

    What `output` has of the same files is as good.
    """
    files, raw = digest(package), folder / "reached.json"
    if output.exists() and (kept := json.loads(output.read_text())).get("files") == files:
        return kept["tests"]  # type: ignore[no-any-return]
    set_here = {
        "PYTHONPATH": search_path(folder, ROOT),
        "CAI_BRIDGE_REACHED_ROOT": str(package),
        "CAI_BRIDGE_REACHED_PARTS": os.pathsep.join(str(package / part) for part in PARTS),
        "CAI_BRIDGE_REACHED_OUTPUT": str(raw),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.reached"]
    command += ["-p", "no:cacheprovider", "--every", "--timeout", "0", *test_files()]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **set_here}, check=False).returncode:
        raise SystemExit("the tests have to pass before anything is changed")
    tests: Reached = json.loads(raw.read_text())
    output.write_text(json.dumps({"files": files, "tests": tests}))
    return tests


def lines_of(tests: Reached) -> dict[str, dict[str, set[int]]]:
    """Sort what the tests reach by file, then by test."""
    found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for name, one in tests.items():
        for path, line in one["lines"]:
            found[path][name].add(line)
    return found


def tests_of(
    file: str,
    change: Change,
    tests: Reached,
    lines: dict[str, dict[str, set[int]]],
    cases: float,
) -> list[str]:
    """Choose the tests that reach a line: those of its function's name, then the fastest.

    Of each test, as many cases as `cases` says.
    """

    def reaching(some: Iterable[int]) -> list[str]:
        return [name for name, reached in lines[file].items() if not reached.isdisjoint(some)]

    # What runs as its file is imported, no test reaches.
    found = reaching({change.line}) or reaching(change.body) or list(lines[file])
    children = next((end for start, end in CHILDREN.items() if file.startswith(start)), "")
    if children:
        found += [name for name in tests if f"/test_{children}" in name and name not in found]
    rule = change.function.replace("_", "-")
    found.sort(key=lambda name: (rule not in name, tests[name]["seconds"]))
    of_test: dict[str, list[str]] = defaultdict(list)
    for name in found:
        of_test[name.partition("[")[0]].append(name)
    few = {name for some in of_test.values() for place, name in enumerate(some) if place < cases}
    return [name for name in found if name in few]


class Chosen:
    """A pytest plugin: only these tests, in this order."""

    def __init__(self, names: list[str]) -> None:
        self._place = {name: number for number, name in enumerate(names)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (one for one in items if one.nodeid in self._place),
            key=lambda one: self._place[one.nodeid],
        )


def is_noticed(folder: Path, names: list[str], seconds: float) -> str | None:
    """Run tests in a child, which take so long without a change; say what noticed, or None."""
    shown = folder / "shown.txt"
    child = os.fork()
    if not child:
        _run_tests(folder, names, shown)
    until = time.monotonic() + 2 * TEST_S + SLOWER * seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "it never ended"
        time.sleep(0.02)
    lines = shown.read_text(errors="replace").splitlines()
    if os.waitstatus_to_exitcode(status) == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise RuntimeError(f"none of these tests is there: {names}")
    failed = [one for one in lines if one.startswith(("FAILED", "ERROR"))]
    return (failed[:1] or lines[-1:] or ["it died"])[0] if status else None


def _run_tests(folder: Path, names: list[str], shown: Path) -> None:
    os.setpgid(0, 0)
    os.chdir(ROOT)
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = search_path(folder)
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    output = os.open(shown, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    where = sorted({name.partition("::")[0] for name in names})
    options = ["-q", "-x", "-p", "no:cacheprovider", "--every", "--timeout", str(TEST_S)]
    # This process has imported Hypothesis, whose plugin pytest would rewrite.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = 3
    try:
        code = int(pytest.main([*options, *where], plugins=[Chosen(names)]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def argued() -> dict[tuple[str, str, str, str], str]:
    """Read which changes are no mistakes, and why."""
    rows = tomllib.loads((HERE / "argued.toml").read_text())["reason"]
    return {tuple(change): row["why"] for row in rows for change in row["changes"]}


@dataclass(frozen=True)
class Copies:
    """Judges changes, each process in a copy of the package that it makes in `made`."""

    package: Path
    made: Path
    until: float

    def folder(self) -> Path:
        """Find this process's copy, or make it."""
        folder = self.made / str(os.getpid())
        if not folder.exists():
            copied = folder / "cai_bridge"
            shutil.copytree(self.package, copied, ignore=shutil.ignore_patterns("__pycache__"))
            compileall.compile_dir(copied, quiet=1)  # once, and not in each child
        return folder

    def judge(self, file: str, change: Change, names: list[str], seconds: float) -> str | None:
        """Make a change, run its tests, put it back: what noticed, or None; LATE: no time left."""
        if time.monotonic() > self.until:
            return LATE
        folder = self.folder()
        changed = folder / "cai_bridge" / file
        changed.write_text(change.text)
        noticed = is_noticed(folder, names, seconds) if names else None
        shutil.copyfile(self.package / file, changed)
        return noticed


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--cases", type=float, default=float("inf"), metavar="N")
    parser.add_argument("--reached", type=Path, metavar="FILE")
    parser.add_argument("--log", type=Path, metavar="FILE")
    asked = parser.parse_args()
    package = installed()
    reasons, tally = argued(), Counter[tuple[str, str]]()
    lines_before = asked.log.read_text().splitlines() if asked.log and asked.log.exists() else []
    before = [json.loads(line)[:5] for line in lines_before]
    for name in ("numpy", "ml_dtypes", "jinja2", "rich.console", "rich.progress", "hypothesis"):
        importlib.import_module(name)
    every = [
        (file, change)
        for file in files(package, asked.only)
        for change in changes((package / file).read_text())
        if [file, change.function, change.before, change.after, change.line] not in before
    ]
    if asked.seconds < float("inf"):
        random.Random(asked.seed).shuffle(every)
    with tempfile.TemporaryDirectory() as made:
        folder = Copies(package, Path(made), 0).folder()
        tests = reached(folder / "cai_bridge", folder, asked.reached or Path(made) / "reached.json")
        some = sorted(tests, key=lambda one: tests[one]["seconds"])[:100]
        if failed := is_noticed(folder, some, TEST_S):
            raise SystemExit(f"a test fails without a change: {failed}")
        lines = lines_of(tests)
        names = [tests_of(file, change, tests, lines, asked.cases) for file, change in every]
        times = [sum(tests[one]["seconds"] for one in some) for some in names]
        copies = Copies(package, Path(made), time.monotonic() + asked.seconds)
        here = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(asked.jobs, mp_context=here) as pool:
            judged = pool.map(copies.judge, *zip(*every, strict=True), names, times)
            for (file, change), noticed, some in zip(every, judged, names, strict=True):
                if noticed == LATE:
                    continue
                what = (file, change.function, change.before, change.after)
                outcome = "noticed" if noticed else "argued" if what in reasons else "left"
                tally[file, outcome] += 1
                if outcome == "left":
                    where = f"{file}:{change.line} {change.function}"
                    print(f"{where}: {change.before} -> {change.after}", flush=True)
                if asked.log:
                    with asked.log.open("a") as log:
                        line = json.dumps([*what, change.line, outcome, noticed, len(some)])
                        print(line, file=log)
    return report(tally, len(every))


def report(tally: Counter[tuple[str, str]], every: int) -> int:
    """Print the score of each file."""
    print(f"\n{sum(tally.values())} of {every} changes\n{'noticed':>8}{'argued':>8}{'left':>8}")
    for file in sorted({name for name, _ in tally}):
        print("".join(f"{tally[file, one]:>8}" for one in ("noticed", "argued", "left")), file)
    return int(any(outcome == "left" for _, outcome in tally))


if __name__ == "__main__":
    sys.exit(main())
