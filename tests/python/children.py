"""Child processes, which end quietly or fail the test."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
    import os, sys, threading
    sys.path.insert(0, {here!r})
    import capsules, fakes, tables
    from cai_bridge import DLPackView, DriverError, from_cai, to_cai
    from cai_bridge.testing import simulated_cuda
"""
DEVICE = """
    cuda = simulated_cuda(check=False).__enter__()
    x = cuda.array([1.0] * 4, speaks=("exchange", "dlpack", "cai"))
"""


def assert_quiet(*parts: str, prelude: str = PRELUDE, timeout: float = 60) -> None:
    """Run the parts one after the other in a process of their own: it says nothing, and exits 0."""
    prelude = prelude.format(here=str(Path(__file__).parent))
    text = "".join(textwrap.dedent(part) for part in (prelude, *parts))
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", text],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if (done.stderr, done.stdout, done.returncode) != ("", "", 0):
        pytest.fail(f"exit {done.returncode}\n{done.stdout}{done.stderr}")
