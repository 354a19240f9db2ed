"""PyTorch as before 2.10, without the exchange API: some of the tests, in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = ("test_chain.py", "test_convert_order.py", "test_give_back.py")


# That plugin warns beside xdist.
NO_BENCHMARKS = ("-p", "no:benchmark", "-k", "torch")


@pytest.mark.parametrize("file", FILES)
def test_without_the_exchange_api_it_is_right_too(file):
    torch = pytest.importorskip("torch")
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch is such a one")
    here = Path(__file__)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *NO_BENCHMARKS, str(here.with_name(file))],
        cwd=here.parents[2],
        env={**os.environ, "WITHOUT_EXCHANGE_API": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-1000:]
