"""The programs of the pages on compiled programs, in their parts for the CPU: they print as shown.

`tests/gpu/test_compilers.py` runs those for a GPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "programs" / "compiled"


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_program_prints_what_the_page_shows(library: str) -> None:
    pytest.importorskip(library, reason="make test-clients installs it")
    done = subprocess.run(
        [sys.executable, FOLDER / f"{library}_numpy.py"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (FOLDER / f"{library}.txt").read_text("utf-8")


def test_the_pages_show_each_program_and_what_it_prints() -> None:
    pages = "".join((DOCS / name).read_text("utf-8") for name in ("compiled.md", "jax-jit.md"))
    shown = set(re.findall(r"(?m)^<!-- code: docs/programs/compiled/(\S+) -->$", pages))
    assert shown == {path.name for path in FOLDER.iterdir()}
