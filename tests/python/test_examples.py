"""Every example and the programs of the pages run as they stand, and say what they claim."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from fakes import FREE_THREADED
from stand_in import no_libraries

from cai_bridge import adapt, convert
from cai_bridge.testing import SimulatedCuda
from generating.trace import draw

__all__ = ["no_libraries"]

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
    trace = tmp_path / "trace.json"
    shown = run(EXAMPLES[6], trace)
    assert re.search(r"consumer \S+ waits for producer", shown)
    assert re.search(r"producer \S+ waits for consumer", shown)
    assert "no wait: same stream" in shown
    drawn = ElementTree.fromstring(draw(json.loads(trace.read_text())))
    words = {element.text for element in drawn.iter() if element.text}
    assert {"to_cai", "__dlpack__", "MainThread", "cuda:0 streams"} <= words
    assert FREE_THREADED or "reader" in words


def test_the_parameters_are_seen_as_they_were_in_each_step() -> None:
    shown = run(EXAMPLES[7])
    if "simulated" in shown:
        assert "step 2: {'weight': [2.0, 2.0, 2.0, 2.0], 'bias': [2.0]}" in shown
    else:
        assert "slope after 30 steps: 0.25" in shown


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_readmes_test_of_somebodys_library_passes() -> None:
    (program,) = [block for block in programs("README.md") if "def test_" in block]
    names: dict[str, object] = {}
    exec(program, names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    test()


def test_every_program_of_the_readme_is_python_and_takes_names_that_there_are() -> None:
    for program in programs("README.md"):
        compile(program, "README.md", "exec")
        for line in re.findall(r"^from cai_bridge[\w.]* import .*", program, re.MULTILINE):
            exec(line, {})


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 1200


def test_a_library_that_is_registered_as_the_page_says_is_converted_to(
    cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch, no_libraries: None
) -> None:
    module = ModuleType("mylib")
    monkeypatch.setitem(sys.modules, "mylib", module)
    (program,) = programs("docs/libraries.md")
    exec(program, vars(module))
    producer = cuda.stream("producer")
    x = cuda.array([0.0] * 4, dtype="float32", speaks="exchange")
    producer.fill(x, 7.0)  # queued; runs late
    with cuda.current_stream(producer):
        made = convert(x, "mylib")
    assert (type(made), made.ptr) == (module.Buffer, x.ptr)
    assert convert(made, module.Buffer) is made
    seen = cuda.legacy.read(made.view)
    cuda.synchronize()
    assert seen.value == [7.0] * 4
    assert adapt(lambda buffer: buffer.nbytes, to=module)(x) == 16
