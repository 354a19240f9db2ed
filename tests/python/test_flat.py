"""That conversions do not make a process grow: the short form of `make flat`."""

import subprocess
import sys
from pathlib import Path

import pytest

from cai_bridge import to_cai

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


def test_a_call_looks_at_a_few_of_those_that_wait_for_their_consumer_however_many_there_are(cuda):
    x, mine = cuda.array([1.0], speaks="dlpack"), cuda.stream("mine")
    # The producer's stream is unknown, so its memory is kept until the consumer's work is done.
    other = cuda.array([1.0])
    mine.fill(other, 2.0)
    for _ in range(500):
        to_cai(x, stream=mine)
    assert x.exports >= 400
    cuda.clear_calls()
    to_cai(x, stream=mine).release()
    asked = [made for made in cuda.calls if made.call == "cuEventQuery"]
    assert 0 < len(asked) <= 20
    cuda.synchronize()
    assert x.exports == 0
