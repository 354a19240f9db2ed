"""Every example runs, as it stands, and says what it claims."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


def run(example: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", example], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_there_are_examples() -> None:
    assert [example.name[:2] for example in EXAMPLES] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path) -> None:
    assert run(example)


def test_the_quickstart_shows_the_dict_the_capsules_and_each_wait() -> None:
    shown = run(EXAMPLES[0])
    for part in ("'typestr': '<f4'", "used_dltensor_versioned", "order=made", "order=elided"):
        assert part in shown
    assert "the consumer reads [[7.0, 7.0, 7.0, 7.0], [7.0, 7.0, 7.0, 7.0]]" in shown
