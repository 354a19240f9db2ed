"""`python -m tests.mutants.py_layer`: mistakes in the Python layer, and whether the tests notice.

    python -m tests.mutants.py_layer [--only REGEX] [--jobs N] [--whole]

py_layer.toml has the mistakes. Each is made in a copy of the tree, built as `make dev` builds, and
its tests run until one fails; `--whole` runs the whole suite instead. Exits with 1 where a mistake
is not noticed, and with 2 where one cannot be made: its place is gone, or does not build. Run
`make fakes` before: some tests need the stubs of libcuda.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COPY = ROOT / "target" / "py_layer"
STUBS = Path(".venv") / "fakes"
LEFT_OUT = shutil.ignore_patterns("target", ".venv*", ".git", "site", "dist", "*.so", "__pycache__")


@dataclass(frozen=True)
class Mutant:
    """One mistake: `before` in `file` becomes `after`, and one of `tests` fails."""

    name: str
    file: str
    before: str
    after: str
    tests: list[str]

    def made(self, source: str) -> str:
        """Make the mistake in a file's text."""
        found = source.count(self.before)
        if found != 1:
            what = self.before.splitlines()[0]
            raise ValueError(f"{self.name}: {self.file} has {what!r} {found} times; allowed: once")
        return source.replace(self.before, self.after)


def mutants(only: str = "") -> list[Mutant]:
    """Read the list."""
    rows = tomllib.loads((HERE / "py_layer.toml").read_text())["mutant"]
    made = [Mutant(r["name"], r["file"], r["change"][0], r["change"][1], r["tests"]) for r in rows]
    return [one for one in made if re.search(only, one.name)]


def copied() -> None:
    """Copy the tree as it is now; what was built of an earlier copy stays."""
    COPY.mkdir(parents=True, exist_ok=True)
    for old in COPY.iterdir():
        if old.name != "target":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    shutil.copytree(ROOT, COPY, ignore=LEFT_OUT, dirs_exist_ok=True, symlinks=True)
    shutil.copytree(ROOT / STUBS, COPY / STUBS)


def built() -> bool:
    """Build the copy's extension for its package."""
    env = {**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1", "PYO3_PYTHON": sys.executable}
    env["CARGO_TARGET_DIR"] = str(COPY / "target")
    build = [
        "cargo",
        "rustc",
        "--quiet",
        "--lib",
        "--crate-type",
        "cdylib",
        "--features",
        "wheel",
        "--",
        "--cap-lints",
        "warn",
        "-A",
        "warnings",
    ]
    if subprocess.run(build, cwd=COPY, env=env, check=False).returncode:
        return False
    extension = COPY / "python" / "cai_bridge" / "_core.abi3.so"
    extension.unlink(missing_ok=True)
    shutil.copy2(COPY / "target" / "debug" / "libcai_bridge.so", extension)
    return True


def file_of(name: str) -> str:
    """Give the file of a test that a row names, as ``limits`` or ``libraries/cupy``."""
    folder, slash, name = name.rpartition("/")
    return f"tests/python/{folder}{slash}test_{name}.py"


def pass_(tests: list[str], jobs: int) -> tuple[bool, str]:
    """Run tests of the copy until one fails, and name it."""
    path = os.pathsep.join([str(COPY / "python"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--every", "-p", "no:cacheprovider"]
    command += ["-n", str(jobs), "--dist", "loadfile"] if jobs else []
    command += map(file_of, tests)
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=COPY, env=env, check=False, capture_output=True, text=True)
    if done.returncode not in {0, 1, 2}:
        raise SystemExit(done.stdout + done.stderr)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return done.returncode == 0, failed[1] if failed else done.stdout[-2000:]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.py_layer")
    parser.add_argument("--only", default="", metavar="REGEX", help="names of mistakes")
    parser.add_argument("--jobs", type=int, default=0, help="processes of the tests")
    parser.add_argument("--whole", action="store_true", help="run the whole suite for each")
    asked = parser.parse_args()
    chosen = mutants(asked.only)
    lost = []
    for one in chosen:
        try:
            one.made((ROOT / one.file).read_text())
        except (OSError, ValueError) as error:
            lost.append(str(error))
    print("\n".join(lost), end="\n" * bool(lost))
    if not (ROOT / STUBS / "libcuda.so.1").exists():
        sys.exit(f"{STUBS} has no stubs of libcuda, which some tests need: run make fakes")
    copied()
    files = [] if asked.whole else sorted({name for one in chosen for name in one.tests})
    if not built():
        sys.exit("the tree does not build")
    passed, failed = pass_(files, asked.jobs)
    if not passed:
        sys.exit(f"the tests have to pass before anything is changed: {failed}")
    unnoticed = 0
    for one in chosen:
        began, file = time.monotonic(), COPY / one.file
        whole = file.read_text() if file.exists() else ""
        try:
            file.write_text(one.made(whole))
        except ValueError:
            continue
        try:
            if not built():
                lost.append(one.name)
                print(f"does not build: {one.name}")
                continue
            passed, by = pass_([] if asked.whole else one.tests, asked.jobs)
        finally:
            file.write_text(whole)
        unnoticed += passed
        took = time.monotonic() - began
        verdict = "NOT NOTICED" if passed else f"noticed by {by}"
        print(f"{one.name}: {verdict} ({took:.0f} s)", flush=True)
    noticed = len(chosen) - unnoticed - len(lost)
    print(f"{noticed} of {len(chosen)} noticed, {unnoticed} not, {len(lost)} could not be made")
    sys.exit(2 if lost else 1 if unnoticed else 0)


if __name__ == "__main__":
    main()
