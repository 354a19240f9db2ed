"""`cai-bridge perturb` and `races` on programs, over a driver in software: a stream is a thread.

The driver is tests/software_driver. Each run is a process of its own, with the library that ships
preloaded and the driver loaded as libcuda.so.1.
"""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cai_bridge._cli.perturbed import LIBRARY

DRIVER = Path(__file__).parents[1] / "software_driver"
CC = shutil.which("cc")
needs = pytest.mark.skipif(
    not (LIBRARY.exists() and CC), reason="make perturb builds the library; cc builds the driver"
)
# What most programs begin with.
TWO = "a, b, x, y = stream(), stream(), word(), word()"


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    command = [str(CC), "-O1", "-shared", "-fPIC", "-pthread", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*command, str(DRIVER / "cuda.c")], check=True)
    return folder


def commanded(name, driver, folder, monkeypatch):
    """Make what runs a command on a program, and returns the exit status and what it says."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("PYTHONPATH", str(DRIVER))

    def run(text, *options):
        program = folder / "program.py"
        program.write_text(f"from soft import *\n{textwrap.dedent(text)}")
        command = [sys.executable, "-m", "cai_bridge", name, "--json", *options, "--"]
        command += [sys.executable, str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def run(driver, tmp_path, monkeypatch):
    """Runs `cai-bridge perturb`; naming takes many runs, so that its delays are short."""
    perturb = commanded("perturb", driver, tmp_path, monkeypatch)

    def run(text, *options, named=False):
        return perturb(text, *(["--delay", "0.02"] if named else ["--no-name"]), *options)

    return run


def seeds(found):
    return [one for one in found["runs"] if one["run"].startswith("seed")]


def source(side):
    """Find the line of the program in which a side was queued."""
    lines = [frame[3] for frame in side["stack"] if "program.py" in frame[0]] if side else []
    return lines[-1] if lines else None


def marked(text):
    """Find the lines of a program that end with `# late` and with `# early`, if there are any."""
    ends = {line.rpartition("# ")[2]: line.strip() for line in text.splitlines()}
    return [ends.get("late"), ends.get("early")]


def sides(found):
    """Find the lines of both sides, the late one first; none if they are not named."""
    return [source((found["race"] or {}).get(side)) for side in ("late", "early")]
