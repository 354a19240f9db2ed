"""The ordinary loop through several libraries and back: it runs, and its values are right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHAINS = [
    ["torch", "cupy"],
    ["torch", "torch", "cupy"],
    ["numba", "torch", "cupy"],
    ["torch", "numba", "cupy"],
    ["jax", "cupy"],
    ["torch", "jax", "numba", "torch", "cupy"],
]


@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_a_loop_from_cupy_through_other_libraries_and_back_is_right(chain):
    for library in chain:
        pytest.importorskip(library)
    child = Path(__file__).with_name("chain_child.py")
    ended = subprocess.run(
        [sys.executable, str(child), "100", *chain],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )
    assert (ended.returncode, ended.stdout) == (0, "right\n"), ended.stderr
