"""Hostile inputs, each in a process of its own: refused by an exception that names the field, never
by a signal.

And after the refusal the input is as usable as it was before.
Entries and fields that are refused before the driver is asked are rows of tests/data/refusals.toml.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
TIMEOUT_S = 120
AT_ONCE = 8

# The contract gives BufferError to what the other protocol cannot express and ValueError to what is
# malformed; where an input is arguably both, both are accepted.
BUFFER, VALUE, TYPE = ("BufferError",), ("ValueError",), ("TypeError",)
EITHER = BUFFER + VALUE
MALFORMED = VALUE + TYPE

EXPECTED: dict[str, tuple[tuple[str, ...], str]] = {
    "structured": (EITHER, "typestr|dtype|descr"),
    "huge shape": (EITHER, "shape"),
    "mask": (EITHER, "mask"),
    "null data": (VALUE, "data"),
    "data past 64 bits": (VALUE, "data"),
    "host pointer": (EITHER, "data|pointer"),
    "interface of no dict": (MALFORMED, "__cuda_array_interface__|dict"),
    "capsule of NULL data": (VALUE, "data"),
    "capsule of huge shape": (EITHER, "shape|strides"),
    "capsule on the CPU": (BUFFER, "device|cpu"),
    "capsule of another name": (MALFORMED, "capsule|name"),
    "used capsule": (VALUE, "capsule|used"),
    "read-only into a legacy capsule": (BUFFER, "read-?only"),
    "export to the CPU without a copy": (BUFFER, "copy"),
    "export to pinned memory": (BUFFER, "dl_device"),
    "export on stream 0": (VALUE, "stream"),
    "export on stream True": (MALFORMED, "stream"),
    "neither protocol": (TYPE, "__dlpack__|__cuda_array_interface__"),
    "numpy array": (BUFFER, "device|cpu"),
    "torch requires_grad": (BUFFER, "grad"),
    "torch parameter": (BUFFER, "grad"),
    "torch conj": (BUFFER, "conj"),
    "torch neg": (BUFFER, "neg"),
    "torch sparse": (BUFFER, "layout|sparse|storage"),
    "torch CPU": (BUFFER, "device|cpu"),
    "torch complex32": (BUFFER, "dtype"),
    "torch float4": (BUFFER, "dtype|bits"),
}

Run = subprocess.CompletedProcess[str]


def run_child(case: str) -> Run:
    command = [sys.executable, "-m", "gpu.hostile_child", case]
    return subprocess.run(
        command,
        cwd=TESTS,
        # A copy: the C library's own may move while the child begins, if another thread sets one.
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.fixture(scope="module")
def children(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Run]]]:
    """Every chosen case's process, all started at the first test: each costs seconds of imports."""
    chosen = {
        item.callspec.params["case"]
        for item in request.session.items
        if item.path == Path(__file__)
    }
    pool = ThreadPoolExecutor(AT_ONCE)
    yield {case: pool.submit(run_child, case) for case in EXPECTED if case in chosen}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", EXPECTED)
def test_a_hostile_input_is_refused_by_name_and_stays_usable(
    children: dict[str, Future[Run]], case: str
) -> None:
    if case.startswith("torch "):
        pytest.importorskip("torch")
    run = children[case].result()
    assert run.returncode >= 0, f"died of signal {-run.returncode}: {run.stderr}"
    if case == "torch float4" and "float4_e2m1fn_x2" in run.stderr:
        pytest.skip("this torch has no float4")
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout.splitlines()[-1])
    allowed, field = EXPECTED[case]
    for outcome in said["outcomes"]:
        assert set(allowed) & set(outcome["classes"]), outcome
        assert re.search(field, outcome["message"], re.IGNORECASE), outcome
    assert said["usable"], "the input was damaged by the refusal"
