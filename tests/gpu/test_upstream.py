"""The reports for upstream: each program shows the fault on the library itself, where it is."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
import upstream

DISTRIBUTIONS = {
    "torch": "torch",
    "cupy": "cupy-cuda13x",
    "numba": "numba-cuda",
    "jax": "jax",
    "tvm-ffi": "apache-tvm-ffi",
}


@pytest.mark.parametrize("page", upstream.PAGES, ids=lambda page: page.stem)
def test_a_program_shows_what_the_page_tells(page):
    library, _ = upstream.names(page)
    pytest.importorskip(library.replace("-", "_"))
    named = re.search(r"^# \S+ ([\d.]+):", page.read_text(encoding="utf-8"))
    assert named is not None
    there = version(DISTRIBUTIONS[library])
    if not there.startswith(named[1]):
        pytest.skip(f"the page is of {library} {named[1]}, and {there} is installed")
    program, printed = upstream.parts(page)
    assert upstream.printed_by(program) == printed
