"""What a fork of a process that uses a real driver may do: be refused, let go, and end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import os, sys
import torch
from cai_bridge import DriverError, from_cai, to_cai
x = torch.arange(4, device="cuda", dtype=torch.float32)
side = torch.cuda.Stream()
said = {"shape": (4,), "typestr": "<f4", "data": (x.data_ptr(), False), "version": 3}
if sys.argv[1] == "used":
    views = [to_cai(x, stream=side), to_cai(x), from_cai(to_cai(x, stream=side))]
    calls = [lambda: to_cai(x), lambda: to_cai(views[0]), lambda: from_cai(views[1]),
             lambda: views[2].__dlpack__(stream=side.cuda_stream)]
else:
    views, calls = [], [lambda: from_cai(said, owner=object())]
pid = os.fork()
if not pid:
    for call in calls:
        try:
            call()
        except DriverError as error:
            assert str(error).startswith("process: "), error
        else:
            raise AssertionError("no error")
    for view in views:
        view.release()
    views.clear()
    # Torch's own end in a fork is not ours to test.
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
again = to_cai(x, stream=side)
assert torch.as_tensor(again, device="cuda").tolist() == [0.0, 1.0, 2.0, 3.0]
"""


@pytest.mark.parametrize("driver_was", ["used", "initialised by somebody else"])
def test_a_fork_is_refused_and_lets_go_and_the_parent_goes_on(driver_was):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, driver_was],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
