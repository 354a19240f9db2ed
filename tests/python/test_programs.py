"""The programs that the manual shows: each runs as it stands, and prints what the page shows.

A program has a part for the real libraries, which `tests/gpu/test_programs.py` runs, and one for
the simulated device.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDER = DOCS / "programs"
TEST = FOLDER / "test_my_library.py"
# `test_c_interface.py` builds the extension that this one tests, and runs it.
OF_CPP = FOLDER / "test_my_extension.py"
PROGRAMS = sorted(set(FOLDER.glob("*.py")) - {TEST, OF_CPP, FOLDER / "place.py"})
SNIPPET = re.compile(r"^<!-- code: ([^: ]+)(?::(\w+))? -->$", re.MULTILINE)
SHOWN = {
    (path, section)
    for page in DOCS.glob("*.md")
    for path, section in SNIPPET.findall(page.read_text("utf-8"))
}
# Examples whose output a page shows, beside those of the folder.
EXAMPLES = [ROOT / "examples" / "05_finding_a_race.py"]


def printed(program: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 8


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_the_page_shows(program: Path) -> None:
    assert printed(program, "--simulated") == program.with_suffix(".txt").read_text("utf-8")


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_the_page_shows(program: Path) -> None:
    assert printed(program) == (FOLDER / f"{program.stem}.txt").read_text("utf-8")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_page_shows_both_parts_of_a_program_and_what_they_print(program: Path) -> None:
    source, parts = f"docs/programs/{program.name}", program.read_text("utf-8")
    for section in ("gpu", "simulated"):
        assert parts.count(f"# [start:{section}]") == 1
        assert parts.count(f"# [end:{section}]") == 1
        assert (source, section) in SHOWN
    assert (f"docs/programs/{program.stem}.txt", "") in SHOWN


def test_the_test_that_a_page_shows_passes() -> None:
    names = runpy.run_path(str(TEST))
    names["test_my_library_reads_what_was_written"]()
    assert ("docs/programs/test_my_library.py", "") in SHOWN


def test_every_output_belongs_to_a_program_and_is_shown() -> None:
    # What `cai-bridge perturb` says is of a program of its GPU tests.
    outputs = {path.name for path in FOLDER.glob("*.txt") if path.name != "perturb.gpu.txt"}
    programs = {path.stem for path in (*PROGRAMS, *EXAMPLES)}
    assert {name.removesuffix(".txt").removesuffix(".gpu") for name in outputs} == programs
    assert {f"docs/programs/{name}" for name in outputs} <= {path for path, _ in SHOWN}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_part_for_a_gpu_takes_names_that_the_bridge_has(program: Path) -> None:
    imports = re.findall(r"^ *(from cai_bridge[\w.]* import .*)$", program.read_text(), re.M)
    assert len(imports) >= 2
    for line in imports:
        exec(line, {})
