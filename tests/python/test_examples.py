"""Every example and the README's program run as they stand, and say what they claim."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


def run(example: Path, *arguments: Path) -> str:
    command = [sys.executable, "-W", "error", example, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_there_are_examples() -> None:
    assert [example.name[:2] for example in EXAMPLES] == [
        "01",
        "02",
        "03",
        "04",
        "05",
        "06",
        "07",
        "08",
    ]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path) -> None:
    assert run(example)


def test_the_quickstart_shows_the_dict_the_capsules_and_each_wait() -> None:
    shown = run(EXAMPLES[0])
    for part in ("'typestr': '<f4'", "used_dltensor_versioned", "order=made", "order=elided"):
        assert part in shown
    assert "the consumer reads [[7.0, 7.0, 7.0, 7.0], [7.0, 7.0, 7.0, 7.0]]" in shown


def test_the_trace_shows_the_waits_both_ways_and_can_be_drawn(tmp_path: Path) -> None:
    trace, picture = tmp_path / "trace.json", tmp_path / "trace.svg"
    shown = run(EXAMPLES[6], trace)
    assert re.search(r"consumer \S+ waits for producer", shown)
    assert re.search(r"producer \S+ waits for consumer", shown)
    assert "no wait: same stream" in shown
    run(ROOT / "docs" / "draw_trace.py", trace, picture)
    drawn = ElementTree.fromstring(picture.read_text())
    words = {element.text for element in drawn.iter() if element.text}
    assert {"to_cai", "__dlpack__", "MainThread", "reader", "cuda:0 streams"} <= words


def test_the_parameters_are_seen_as_they_were_in_each_step() -> None:
    shown = run(EXAMPLES[7])
    if "simulated" in shown:
        assert "step 2: {'weight': [2.0, 2.0, 2.0, 2.0], 'bias': [2.0]}" in shown
    else:
        assert "slope after 30 steps: 0.25" in shown


def test_the_readmes_test_of_somebodys_library_passes() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (program,) = [block for block in blocks if "def test_" in block]
    names: dict[str, object] = {}
    exec(program, names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    test()
