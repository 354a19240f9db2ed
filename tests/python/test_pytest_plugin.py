"""``pytest --pyargs cai_bridge.conformance``, run as an author of a library runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from cai_bridge.conformance import requirements
from cai_bridge.conformance.known import known as shipped
from cai_bridge.conformance.named import LIBRARIES

ROOT = Path(__file__).parents[2]
TOY = "toy_library:Producer"
# Where the package is not installed but found by its path, pytest does not know the plugin.
INSTALLED = any(one.name == "cai_bridge" for one in entry_points(group="pytest11"))


def run(*arguments, cwd):
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", cwd, "-q", "-rsfxX"]
    command += [] if INSTALLED else ["-p", "cai_bridge.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "--pyargs", "cai_bridge.conformance", *arguments]
    places = [ROOT / "examples", ROOT / "tests" / "python", ROOT / "tests"]
    path = [*map(str, places), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
    )
    return done.returncode, done.stdout + done.stderr


def counted(shown, what):
    found = re.search(rf"(\d+) {what}", shown)
    return int(found[1]) if found else 0


def known(tmp_path, subject, **reasons):
    lines = "\n".join(f'{name.replace("_", "-")} = "{why}"' for name, why in reasons.items())
    file = tmp_path / "known.toml"
    file.write_text(f'["{subject}"]\n{lines}\n')
    return file


def test_the_toy_library_of_the_examples_keeps_all_that_applies(tmp_path):
    code, shown = run("--producer", TOY, "-vv", cwd=tmp_path)
    assert code == 0, shown
    assert counted(shown, "passed") >= 40
    assert f"test_producer[{TOY}-cai-shape]" in shown
    assert f"conformance: producer {TOY}" in shown
    assert "the adapter says no readonly()" in shown


def test_a_failure_shows_the_rule_the_section_and_a_program(tmp_path):
    code, shown = run("--producer", "broken_producers:breaks_cai_shape", cwd=tmp_path)
    assert code == 1, shown
    assert counted(shown, "failed") == 1
    for part in (
        "cai-shape: shape is a tuple of integers",
        "CUDA Array Interface (Version 3), Python Interface Specification: shape",
        "seen: shape is [3, 4], a list",
        "p = producer_named('broken_producers:breaks_cai_shape')",
    ):
        assert part in shown


def test_what_is_recommended_does_not_fail_the_run(tmp_path):
    code, shown = run("--producer", "broken_producers:breaks_dlpack_versioned", cwd=tmp_path)
    assert code == 0, shown
    assert counted(shown, "xfailed") == 1
    assert "advice: for max_version" in shown


def test_a_known_failure_is_data_with_its_reason(tmp_path):
    subject = "broken_producers:breaks_cai_shape"
    file = known(tmp_path, subject, cai_shape="a list, until the next major version")
    code, shown = run("--producer", subject, "--xfails-file", file, cwd=tmp_path)
    assert code == 0, shown
    assert counted(shown, "xfailed") == 1
    assert "a list, until the next major version" in shown


def test_a_known_failure_that_is_mended_fails_until_it_is_taken_off_the_list(tmp_path):
    file = known(tmp_path, TOY, cai_shape="was a list")
    code, shown = run("--producer", TOY, "--xfails-file", file, cwd=tmp_path)
    assert code == 1, shown
    assert "XPASS(strict)" in shown


def test_what_is_skipped_is_not_run(tmp_path):
    subject = "broken_producers:breaks_cai_shape"
    file = known(tmp_path, subject, cai_shape="ends the process on old drivers")
    code, shown = run("--producer", subject, "--skips-file", file, cwd=tmp_path)
    assert code == 0, shown
    assert "ends the process on old drivers" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--producer", "nothing"], "got 'nothing'; allowed: torch"),
        (["--producer", "no_such_module:x"], "No module named 'no_such_module'"),
        (["--producer", "toy_library:x"], "toy_library has no 'x'"),
        (["--producer", TOY, "--xfails-file", "none.toml"], "No such file"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(arguments, message, tmp_path):
    code, shown = run(*arguments, cwd=tmp_path)
    assert code == 4, shown
    assert message in shown
    assert "Traceback" not in shown


def test_a_list_that_names_no_requirement_is_a_mistake(tmp_path):
    code, shown = run(
        "--producer", TOY, "--skips-file", known(tmp_path, TOY, cai_colour="x"), cwd=tmp_path
    )
    assert code == 4, shown
    assert "there is no 'cai-colour'" in shown


def test_without_a_subject_nothing_is_judged(tmp_path):
    code, shown = run(cwd=tmp_path)
    assert code == 0, shown
    assert "no --producer was given" in shown
    assert counted(shown, "passed") == 0


def test_a_run_of_somebody_else_imports_nothing_of_it(tmp_path):
    test = tmp_path / "test_own.py"
    test.write_text(
        "import sys\n\ndef test_it():\n    assert 'cai_bridge.conformance' not in sys.modules\n"
    )
    plugin = [] if INSTALLED else ["-p", "cai_bridge.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-q", *plugin, test]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_what_is_known_of_the_libraries_names_requirements_and_reasons():
    names = {one.name for one in requirements()}
    for kind in ("skips", "xfails"):
        for library, reasons in shipped(kind).items():
            assert library in LIBRARIES
            assert reasons.keys() <= names
            assert all(reason[0].islower() for reason in reasons.values())


def test_what_is_known_is_used_by_name(tmp_path):
    code, shown = run("--producer", TOY, "--xfails-file", "known", cwd=tmp_path)
    assert code == 0, shown
