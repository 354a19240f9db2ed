"""Every example and the programs of the pages run as they stand, and say what they claim."""

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
from generating.trace import draw

__all__ = ["no_libraries"]

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


# What they print, among others: an example by its number.
SHOWN = {
    "01": [
        *("'typestr': '<f4'", "used_dltensor_versioned", "order=made", "order=elided"),
        r"the consumer reads \[\[7.0, 7.0, 7.0, 7.0\], \[7.0, 7.0, 7.0, 7.0\]\]",
    ],
    "07": [
        *(r"consumer \S+ waits for producer", r"producer \S+ waits for consumer"),
        "no wait: same stream",
    ],
    "08": [
        r"step 2: {'weight': \[2.0, 2.0, 2.0, 2.0\], 'bias': \[2.0\]}|slope after 30 steps: 0.25"
    ],
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_and_shows_what_it_says(example, tmp_path):
    number, trace = example.name[:2], tmp_path / "trace.json"
    command = [sys.executable, "-W", "error", example, *[trace] * (number == "07")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr, done.stdout != "") == (0, "", True)
    for part in SHOWN.get(number, []):
        assert re.search(part, done.stdout), part
    assert trace.exists() == (number == "07")
    if trace.exists():
        drawn = ElementTree.fromstring(draw(json.loads(trace.read_text())))
        words = {element.text for element in drawn.iter() if element.text}
        assert {"to_cai", "__dlpack__", "MainThread", "cuda:0 streams"} <= words
        assert FREE_THREADED or "reader" in words


def test_there_are_eight_examples():
    assert [one.name[:2] for one in EXAMPLES] == [f"0{number}" for number in range(1, 9)]


def programs(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_readmes_test_of_somebodys_library_passes():
    (program,) = [block for block in programs("README.md") if "def test_" in block]
    names = {}
    exec(program, names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    test()


def test_the_readme_is_short_and_its_programs_are_python_and_take_names_that_there_are():
    assert len((ROOT / "README.md").read_text().split()) <= 1200
    for program in programs("README.md"):
        compile(program, "README.md", "exec")
        for line in re.findall(r"^from cai_bridge[\w.]* import .*", program, re.MULTILINE):
            exec(line, {})


def test_a_library_that_is_registered_as_the_page_says_is_converted_to(
    cuda, monkeypatch, no_libraries
):
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
