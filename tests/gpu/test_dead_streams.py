"""Each way for a stream to be gone before the memory goes back, in a process of its own: exit 0."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("dead_stream_child.py")
AT_ONCE = 8
NEEDS = {"torch": "torch", "cupy": "cupy", "numba": "numba", "core": "cuda.core"}


SCENARIOS = [
    *("bare_consumer_of_to_cai", "bare_consumer_of_a_capsule", "bare_declared_producer"),
    *("torch_external_consumer", "cupy_external_consumer", "numba_external_consumer"),
    *("cupy_producer_whose_stream_is_dropped", "cupy_consumer_whose_stream_is_dropped"),
    *("closed_object_of_cuda_core", "thread_that_ended"),
    *("numba_resets_the_context", "numba_resets_it_with_ends_pending"),
]
"""Functions of the child, which is not imported here: it starts the driver."""


def run(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHILD), name],
        # A copy: the C library's own may move while the child begins, if another thread sets one.
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def results():
    pool = ThreadPoolExecutor(AT_ONCE)
    return {name: pool.submit(run, name) for name in SCENARIOS}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_stream_that_is_gone_is_not_touched(name, results):
    for library in ("torch", "cupy", *(NEEDS[word] for word in name.split("_") if word in NEEDS)):
        pytest.importorskip(library)
    done = results[name].result()
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr[-2000:]
