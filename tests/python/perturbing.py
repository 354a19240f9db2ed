"""`cai-bridge perturb` on programs, over a driver in software, in which each stream is a thread.

The driver is tests/software_driver. Each run is a process of its own, with the library that ships
preloaded and the driver loaded as libcuda.so.1.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cai_bridge._cli.perturbed import LIBRARY

DRIVER = Path(__file__).parents[1] / "software_driver"
CC = shutil.which("cc")
needs = pytest.mark.skipif(
    not (LIBRARY.exists() and CC), reason="make perturb builds the library; cc builds the driver"
)
# What most programs begin with.
TWO = "a, b, x, y = stream(), stream(), word(), word()"
QUICK = ["--delay", "0.02"]
Perturb = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("driver")
    command = [str(CC), "-O1", "-shared", "-fPIC", "-pthread", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*command, str(DRIVER / "cuda.c")], check=True)
    return folder


@pytest.fixture
def run(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Perturb:
    """Runs the command on a program, and returns the exit status and what it says."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("PYTHONPATH", str(DRIVER))

    def perturb(text: str, *options: str, named: bool = False) -> tuple[int, dict[str, Any]]:
        program = tmp_path / "program.py"
        program.write_text(f"from soft import *\n{textwrap.dedent(text)}")
        command = [sys.executable, "-m", "cai_bridge", "perturb", "--json"]
        # Naming takes many runs.
        command += [*(QUICK if named else ["--no-name"]), *options]
        command += ["--", sys.executable, str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return perturb


def seeds(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in found["runs"] if one["run"].startswith("seed")]


def source(side: dict[str, Any] | None) -> str | None:
    """Find the line of the program in which a side was queued."""
    lines = [frame[3] for frame in side["stack"] if "program.py" in frame[0]] if side else []
    return lines[-1] if lines else None


def sides(found: dict[str, Any]) -> list[str | None]:
    """Find the lines of both sides, the late one first; none if they are not named."""
    return [source((found["race"] or {}).get(side)) for side in ("late", "early")]
