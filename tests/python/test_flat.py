"""That conversions do not make a process grow: the short form of `make flat`."""

import subprocess
import sys
from pathlib import Path

import pytest

FLAT = Path(__file__).parents[1] / "endurance" / "flat.py"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_the_resident_memory_is_flat_over_twenty_thousand_rounds_of_each_conversion():
    # In a process of its own: what other tests left behind would move in the meantime.
    done = subprocess.run(
        [sys.executable, FLAT, "--rounds", "20000"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.count(" flat") >= 20
