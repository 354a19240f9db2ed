"""Hostile inputs, in a process of its own: refused by an exception that names the field, never by
a signal.

And after the refusal the input is as usable as it was before.
Entries and fields that are refused before the driver is asked are rows of tests/data/refusals.toml.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# The contract gives BufferError to what the other protocol cannot express and ValueError to what is
# malformed; where an input is arguably both, both are accepted.
EXPECTED: dict[str, tuple[set[str], str]] = {
    "host pointer": ({"BufferError", "ValueError"}, "data|pointer"),
    "torch requires_grad": ({"BufferError"}, "grad"),
    "torch parameter": ({"BufferError"}, "grad"),
    "torch conj": ({"BufferError"}, "conj"),
    "torch neg": ({"BufferError"}, "neg"),
    "torch sparse": ({"BufferError"}, "layout|sparse|storage"),
    "torch CPU": ({"BufferError"}, "device|cpu"),
    "torch complex32": ({"BufferError"}, "dtype"),
    "torch float4": ({"BufferError"}, "dtype|bits"),
}


@pytest.fixture(scope="module")
def child():
    return subprocess.run(
        [sys.executable, "-m", "gpu.hostile_child"],
        cwd=Path(__file__).parent.parent,
        # A copy: the C library's own may move while the child begins, if another thread sets one.
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("case", EXPECTED)
def test_a_hostile_input_is_refused_by_name_and_stays_usable(child, case):
    cases: dict[str, Any] = {}
    for line in child.stdout.splitlines():
        said = json.loads(line)
        cases[said["case"]] = said
    assert case in cases, f"exit code {child.returncode}: {child.stderr}"
    said = cases[case]
    if "absent" in said:
        pytest.skip(said["absent"])
    allowed, field = EXPECTED[case]
    for outcome in said["outcomes"]:
        assert allowed & set(outcome["classes"]), outcome
        assert re.search(field, outcome["message"], re.IGNORECASE), outcome
    assert said["usable"], "the input was damaged by the refusal"
    assert child.returncode == 0, child.stderr
