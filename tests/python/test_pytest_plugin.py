"""``pytest --pyargs cai_bridge.conformance``, run as an author of a library runs it."""

from __future__ import annotations

import importlib

import planted
import pytest
from plugin_runs import INSTALLED, ONE, ROOT, TOY, counted, run, run_somebody_elses

from cai_bridge.conformance import requirements
from cai_bridge.conformance.known import known as shipped
from cai_bridge.conformance.named import LIBRARIES


def test_a_failure_shows_the_rule_the_section_and_a_program(tmp_path):
    code, shown = run("--cai-producer", "producers:ListedShape", cwd=tmp_path)
    assert code == 1, shown
    assert counted(shown, "failed") == 1
    for part in (
        "cai-shape: shape is a tuple of integers",
        "CUDA Array Interface (Version 3), Python Interface Specification: shape",
        "seen: shape is [3, 4], a list",
        "p = producer_named('producers:ListedShape')",
    ):
        assert part in shown


def test_what_is_recommended_does_not_fail_the_run(tmp_path):
    subject = "producers:OnlyLegacy"
    code, shown = run("--cai-producer", subject, "-k", "dlpack-versioned", cwd=tmp_path)
    assert code == 0, shown
    assert counted(shown, "xfailed") == 1
    assert "advice: for max_version" in shown


# Where `CI` is set, pytest does not cut the last lines at the terminal's width.
@pytest.mark.parametrize("ci", ["", "true"])
def test_what_follows_from_a_failure_is_folded_under_it(tmp_path, ci):
    row = planted.rows("planted")["producer", "the strides of the dict count items"]
    (tmp_path / "items.py").write_text(planted.source("producer", row))
    given = ["--cai-producer", "items:Producer", "--cai-simulated", "-k", "cai-"]
    code, shown = run(*given, cwd=tmp_path, CI=ci)
    assert code == 1, shown
    assert "likely follows from cai-strides, which failed before" in shown
    assert shown.count("from cai_bridge.conformance import *") == 1, shown
    last = shown[shown.rindex("= conformance =") :]
    assert "items:Producer as a producer on the simulated device: " in last
    assert "  failed cai-strides; likely from the same cause: cai-values" in last
    failed = [line for line in last.splitlines() if line.startswith("FAILED ")]
    if ci:
        assert "for 4-byte items (" in failed[0]
        assert failed[0].endswith("; here layout 'columns')")
        assert failed[1].endswith(
            "likely follows from cai-strides, which failed before; -vv tells it in full"
        )
    assert len(last.rstrip().splitlines()) == len(failed) + 5
    whole = run(*given, "-vv", cwd=tmp_path)[1]
    assert whole.count("from cai_bridge.conformance import *") > 5


LISTED = "producers:ListedShape"
OTHERS = 'takes-cai-stream = "of the other role"\n[somebody_else]\ncai-shape = "a list"\n'


@pytest.mark.parametrize(
    ("subject", "option", "lines", "code", "said"),
    [
        (LISTED, "--cai-xfails-file", 'cai-shape = "a list, until 2.0"\n', 0, "a list, until 2.0"),
        (LISTED, "--cai-skips-file", 'cai-shape = "ends the process"\n', 0, "ends the process"),
        # What is mended fails until it is taken off the list.
        (TOY, "--cai-xfails-file", 'cai-shape = "was a list"\n', 1, "XPASS(strict)"),
        (TOY, "--cai-xfails-file", OTHERS, 0, ""),
        (TOY, "--cai-xfails-file", None, 0, ""),  # what is shipped with the kit
    ],
)
def test_what_is_known_of_a_library_is_data_with_its_reason(
    subject, option, lines, code, said, tmp_path
):
    file = "known"
    if lines is not None:
        file = tmp_path / "known.toml"
        file.write_text(f'["{subject}"]\n{lines}')
    ended, shown = run("--cai-producer", subject, option, file, *ONE, cwd=tmp_path)
    assert ended == code, shown
    assert said in shown


def test_what_is_known_of_the_libraries_names_requirements_and_reasons():
    names = {one.name for one in requirements()}
    for kind in ("skips", "xfails"):
        for library, reasons in shipped(kind).items():
            assert library in LIBRARIES
            assert reasons.keys() <= names
            assert all(reason[0].islower() for reason in reasons.values())


def test_every_option_has_the_prefix(monkeypatch):
    parser = pytest.Parser(_ispytest=True)
    monkeypatch.syspath_prepend(ROOT / "python") if not INSTALLED else None
    importlib.import_module("pytest_cai_bridge").pytest_addoption(parser)
    (group,) = [one for one in parser._groups if one.name == "cai_bridge"]
    names = [name for one in group.options for name in one.names()]
    assert len(names) == 7
    assert all(name.startswith("--cai-") for name in names)


def test_a_thorough_run_judges_in_more_cases(tmp_path):
    given = ["--cai-producer", "small_library:Producer", "--cai-simulated", "-k", "cai-stream"]
    given += ["--cai-thorough"]
    assert run(*given, cwd=tmp_path)[0] == 0
    (tmp_path / "conftest.py").write_text(
        "from cai_bridge.conformance import judging\n"
        "whole = judging.combined_cases\n"
        "def seen(*some, thorough):\n"
        "    print('thorough', thorough)\n"
        "    return whole(*some, thorough=thorough)\n"
        "judging.combined_cases = seen\n"
    )
    wished = ["-s", "-p", "conftest"]
    assert "thorough True" in run(*given, *wished, cwd=tmp_path)[1]
    assert "thorough False" in run(*given[:-1], *wished, cwd=tmp_path)[1]


def test_the_simulated_device_can_be_asked_for(tmp_path):
    (tmp_path / "gpu.py").write_text(
        "import cai_bridge.conformance.lab.find as find\n"
        "def no_gpu_here():\n    raise AssertionError('a GPU was looked for')\n"
        "find.why_no_gpu = no_gpu_here\n"
        "from toy_library import Producer\n"
    )
    arguments = ["--cai-producer", "gpu:Producer", "-k", "cai-shape"]
    code, shown = run(*arguments, "--cai-simulated", cwd=tmp_path)
    assert code == 0, shown
    assert counted(shown, "passed") == 1
    code, shown = run(*arguments, cwd=tmp_path)
    assert code == 1, shown
    assert "a GPU was looked for" in shown


# The names and kinds of the options that data-apis/array-api-tests adds, 2026-04.
ARRAY_API_TESTS = """
def pytest_addoption(parser):
    parser.addoption("--hypothesis-max-examples", "--max-examples", action="store", default=None)
    parser.addoption("--hypothesis-disable-deadline", "--disable-deadline", action="store_true")
    parser.addoption("--hypothesis-derandomize", "--derandomize", action="store_true")
    parser.addoption("--disable-extension", nargs="+", default=[])
    parser.addoption("--disable-data-dependent-shapes", "--disable-dds", action="store_true")
    parser.addoption("--ci", action="store_true")
    parser.addoption("--skips-file", action="store")
    parser.addoption("--xfails-file", action="store")
"""
OF_SOMEBODY_ELSE = """
import sys

def test_it(request):
    assert request.config.getoption("--skips-file") == "skips.txt"
    assert request.config.getoption("--xfails-file") == "xfails.txt"
    assert "pytest_cai_bridge" in sys.modules
    assert not [name for name in sys.modules if name.startswith(("cai_bridge", "numpy"))]
"""


def test_a_suite_with_options_of_its_own_runs_beside_it_and_imports_nothing_of_the_bridge(tmp_path):
    (tmp_path / "conftest.py").write_text(ARRAY_API_TESTS)
    (tmp_path / "test_own.py").write_text(OF_SOMEBODY_ELSE)
    options = ["--skips-file", "skips.txt", "--xfails-file", "xfails.txt", "--disable-dds", "--ci"]
    code, shown = run_somebody_elses(tmp_path, *options, "--max-examples", "5")
    assert code == 0, shown
    assert "1 passed" in shown
    # An option that names no subject needs nothing either.
    code, shown = run_somebody_elses(tmp_path, *options, "--cai-simulated")
    assert code == 0, shown
    # One that names a subject needs the bridge.
    code, shown = run_somebody_elses(tmp_path, *options, "--cai-producer", "simulated")
    assert code == 1, shown
    assert "assert not ['cai_bridge" in shown


def test_the_device_is_given_back_to_the_tests_behind(tmp_path):
    test = tmp_path / "test_own.py"
    test.write_text(
        "from cai_bridge.testing import SimulatedCuda, simulated_cuda\n\n"
        "def test_it():\n    assert SimulatedCuda.current() is None\n"
        "    with simulated_cuda():\n        pass\n"
    )
    code, shown = run("--cai-producer", TOY, "-k", "cai-shape or test_it", test, cwd=tmp_path)
    assert code == 0, shown
    assert counted(shown, "passed") == 2
