"""The programs that the manual shows, with the real libraries: they print what the pages show."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "programs"
PROGRAMS = sorted(path for path in FOLDER.glob("*.py") if "place.run(" in path.read_text("utf-8"))
TWO = {"several_gpus"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_the_page_shows(driver, program):
    for library in re.search(r"place\.run\((.*?), gpu=", program.read_text())[1].split(", "):
        pytest.importorskip(library.strip('"'))
    if program.stem in TWO and driver.get("cuDeviceGetCount", kind=ctypes.c_int) < 2:
        pytest.skip("one GPU")
    done = subprocess.run(
        [sys.executable, program, "--gpu"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == program.with_suffix(".gpu.txt").read_text("utf-8")
