"""``pytest --pyargs cai_bridge.conformance``, run as an author of a library runs it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from cai_bridge.conformance import requirements
from cai_bridge.conformance.isolated import check_isolated
from cai_bridge.conformance.known import known as shipped
from cai_bridge.conformance.named import LIBRARIES

ROOT = Path(__file__).parents[2]
TOY = "toy_library:Producer"
# Where a test is of the options and not of the verdicts: all 73 take three times as long.
ONE = ("-k", "cai-shape or cai-version")
# Where the package is not installed but found by its path, pytest does not know the plugin.
INSTALLED = any(one.value == "pytest_cai_bridge" for one in entry_points(group="pytest11"))
NAMED = ("-p", "pytest_cai_bridge")
# Last, so that `cai_bridge` itself is found where it was built.
OPTIONS = [] if INSTALLED else [ROOT / "python"]


def where(*places):
    """The environment of a run that finds these modules, and the plugin, and has no options."""
    path = [*map(str, places), os.environ.get("PYTHONPATH", ""), *map(str, OPTIONS)]
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    own["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins take half a second to import
    return {**own, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def run(*arguments, cwd, program=(sys.executable, "-m", "pytest", *NAMED), **environment):
    command = [*program, "-c", "/dev/null", "--rootdir", cwd, "-q", "-rsfxX"]
    command += ["-p", "no:cacheprovider", "--pyargs", "cai_bridge.conformance", *arguments]
    places = (ROOT / "examples", ROOT / "tests" / "python", ROOT / "tests")
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=cwd,
        env={**where(*places), **environment},
    )
    return done.returncode, done.stdout + done.stderr


def counted(shown, what):
    """Count what pytest's last line says."""
    found = re.findall(rf"(\d+) {what}", shown.rstrip().rpartition("\n")[2])
    return int(found[-1]) if found else 0


def known(tmp_path, subject, **reasons):
    lines = "\n".join(f'{name.replace("_", "-")} = "{why}"' for name, why in reasons.items())
    file = tmp_path / "known.toml"
    file.write_text(f'["{subject}"]\n{lines}\n')
    return file


def run_with(tmp_path, option, subject, **reasons):
    """Judges one requirement of a producer with a list of what is known of it."""
    file = known(tmp_path, subject, **reasons)
    return run("--cai-producer", subject, option, file, *ONE, cwd=tmp_path)


def test_the_toy_library_of_the_examples_keeps_all_that_applies(tmp_path):
    code, shown = run("--cai-producer", TOY, "-vv", cwd=tmp_path)
    assert code == 0, shown
    assert counted(shown, "passed") >= 40
    assert f"test_producer[{TOY}-cai-shape]" in shown
    assert f"conformance: producer {TOY}" in shown
    assert "the adapter has no readonly()" in shown


def test_a_failure_shows_the_rule_the_section_and_a_program(tmp_path):
    code, shown = run("--cai-producer", "broken_producers:breaks_cai_shape", cwd=tmp_path)
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
    subject = "broken_producers:breaks_dlpack_versioned"
    code, shown = run("--cai-producer", subject, "-k", "dlpack-versioned", cwd=tmp_path)
    assert code == 0, shown
    assert counted(shown, "xfailed") == 1
    assert "advice: for max_version" in shown


def test_a_known_failure_is_data_with_its_reason(tmp_path):
    subject = "broken_producers:breaks_cai_shape"
    code, shown = run_with(
        tmp_path, "--cai-xfails-file", subject, cai_shape="a list, until the next major version"
    )
    assert code == 0, shown
    assert counted(shown, "xfailed") == 1
    assert "a list, until the next major version" in shown


def test_a_known_failure_that_is_mended_fails_until_it_is_taken_off_the_list(tmp_path):
    code, shown = run_with(tmp_path, "--cai-xfails-file", TOY, cai_shape="was a list")
    assert code == 1, shown
    assert "XPASS(strict)" in shown


def test_what_is_skipped_is_not_run(tmp_path):
    subject = "broken_producers:breaks_cai_shape"
    code, shown = run_with(
        tmp_path, "--cai-skips-file", subject, cai_shape="ends the process on old drivers"
    )
    assert code == 0, shown
    assert "ends the process on old drivers" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cai-producer", "nothing"], "got 'nothing'; allowed: torch"),
        (["--cai-producer", "no_such_module:x"], "No module named 'no_such_module'"),
        (["--cai-producer", "toy_library:x"], "toy_library has no 'x'"),
        (["--cai-producer", TOY, "--cai-xfails-file", "none.toml"], "No such file"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(arguments, message, tmp_path):
    code, shown = run(*arguments, cwd=tmp_path)
    assert code == 4, shown
    assert message in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cai_colour", "there is no 'cai-colour'"),
        ("cai_shap", "there is no 'cai-shap' (did you mean 'cai-shape'?)"),
    ],
)
def test_a_list_that_names_no_requirement_is_a_mistake_and_the_closest_is_told(
    name, said, tmp_path
):
    code, shown = run_with(tmp_path, "--cai-skips-file", TOY, **{name: "x"})
    assert code == 4, shown
    assert said in shown


def test_without_a_subject_nothing_is_judged(tmp_path):
    code, shown = run(cwd=tmp_path)
    assert code == 2, shown
    assert "no --cai-producer was given" in shown
    assert "cai_bridge: nothing was judged; add --pyargs cai_bridge.conformance" in shown
    assert counted(shown, "passed") == 0


@pytest.mark.parametrize(
    ("beside", "code", "said"),
    [
        (
            "",
            4,
            f"got tables of toy_libary:Producer; allowed: one of what is judged at least, {TOY}",
        ),
        (f'["{TOY}"]\ncai-shape = "x"\n', 1, "XPASS(strict)"),
    ],
)
def test_a_file_that_has_a_table_of_nothing_that_is_judged_is_an_error(
    beside, code, said, tmp_path
):
    file = tmp_path / "file.toml"
    file.write_text(f'["toy_libary:Producer"]\ncai-shape = "x"\n{beside}')
    ended, shown = run("--cai-producer", TOY, "--cai-xfails-file", str(file), *ONE, cwd=tmp_path)
    assert ended == code, shown
    assert said in shown
    assert ("did you mean" in shown) == (code == 4)


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


def run_somebody_elses(folder, *options):
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-q", "-p", "no:cacheprovider"]
    command += [*NAMED, "--rootdir", folder, folder, *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=where()
    )
    return done.returncode, done.stdout + done.stderr


def test_a_subject_without_the_kit_is_an_error(tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    code, shown = run_somebody_elses(tmp_path, "--cai-producer", "simulated")
    assert (code, counted(shown, "passed")) == (2, 1), shown
    assert "cai_bridge: nothing was judged; add --pyargs cai_bridge.conformance" in shown
    code, shown = run_somebody_elses(tmp_path)
    assert (code, counted(shown, "passed")) == (0, 1), shown


STRIDES = """
from small_library import Array, Producer as Right

class Items(Array):
    @property
    def __cuda_array_interface__(self):
        said = super().__cuda_array_interface__
        steps = said["strides"]
        return {**said, "strides": steps and tuple(step // self.itemsize for step in steps)}

class Producer(Right):
    array = Items
"""


# Where `CI` is set, pytest does not cut the last lines at the terminal's width.
@pytest.mark.parametrize("ci", ["", "true"])
def test_what_follows_from_a_failure_is_folded_under_it(tmp_path, ci):
    (tmp_path / "items.py").write_text(STRIDES)
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
        assert failed[0].endswith("for 4-byte items (40 of 98 cases; here layout 'columns')")
        assert failed[1].endswith(
            "likely follows from cai-strides, which failed before; -vv tells it in full"
        )
    assert len(last.rstrip().splitlines()) == len(failed) + 5
    whole = run(*given, "-vv", cwd=tmp_path)[1]
    assert whole.count("from cai_bridge.conformance import *") > 5


def test_a_thorough_run_judges_in_more_cases(tmp_path):
    given = ["--cai-producer", "small_library:Producer", "--cai-simulated", "-k", "cai-stream"]
    given += ["--cai-thorough"]
    assert run(*given, cwd=tmp_path)[0] == 0
    (tmp_path / "conftest.py").write_text(
        "from cai_bridge.conformance import judging\n"
        "whole = judging.cases_of\n"
        "def seen(*some, thorough):\n"
        "    print('thorough', thorough)\n"
        "    return whole(*some, thorough=thorough)\n"
        "judging.cases_of = seen\n"
    )
    wished = ["-s", "-p", "conftest"]
    assert "thorough True" in run(*given, *wished, cwd=tmp_path)[1]
    assert "thorough False" in run(*given[:-1], *wished, cwd=tmp_path)[1]


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


def test_every_option_has_the_prefix(monkeypatch):
    parser = pytest.Parser(_ispytest=True)
    monkeypatch.syspath_prepend(ROOT / "python") if not INSTALLED else None
    importlib.import_module("pytest_cai_bridge").pytest_addoption(parser)
    (group,) = [one for one in parser._groups if one.name == "cai_bridge"]
    names = [name for one in group.options for name in one.names()]
    assert len(names) == 7
    assert all(name.startswith("--cai-") for name in names)


def test_what_is_known_of_the_libraries_names_requirements_and_reasons():
    names = {one.name for one in requirements()}
    for kind in ("skips", "xfails"):
        for library, reasons in shipped(kind).items():
            assert library in LIBRARIES
            assert reasons.keys() <= names
            assert all(reason[0].islower() for reason in reasons.values())


def test_what_is_known_is_used_by_name(tmp_path):
    code, shown = run("--cai-producer", TOY, "--cai-xfails-file", "known", cwd=tmp_path)
    assert code == 0, shown


# --- modules, subjects and files that are mistakes ------------------------------------------------

MISTAKES = {
    "leaves.py": "import sys\nsys.exit(0)\n",
    "no_python.py": "def (\n",
    "raises.py": "raise RuntimeError('out of luck')\n",
    "a_list.py": "Producer = [1]\n",
    "wants_arguments.py": "import toy_library\n"
    "class Producer(toy_library.Producer):\n    def __init__(self, size): ...\n",
}


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ("leaves:Producer", "--cai-producer leaves:Producer: SystemExit: 0"),
        ("no_python:Producer", "--cai-producer no_python:Producer: SyntaxError: invalid syntax"),
        ("raises:Producer", "--cai-producer raises:Producer: RuntimeError: out of luck"),
        ("a_list:Producer", "make: got list; allowed: a ProducerAdapter"),
        ("wants_arguments:Producer", "which takes arguments"),
    ],
)
def test_a_module_that_is_a_mistake_is_told_without_a_traceback(subject, message, tmp_path):
    for name, text in MISTAKES.items():
        (tmp_path / name).write_text(text)
    code, shown = run("--cai-producer", subject, cwd=tmp_path)
    assert code == 4, shown
    assert message in shown
    assert "Traceback" not in shown
    assert "INTERNALERROR" not in shown


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'"x" = 3\n', "x: got 3; allowed: a table of requirement = reason"),
        (b'[x]\nreason = "\xff"\n', "can't decode byte 0xff"),
        (b"[x\n", "Expected"),
        (b'[somebody_else]\ncai-colour = "x"\n', "somebody_else: there is no 'cai-colour'"),
    ],
)
def test_a_file_that_is_a_mistake_is_told_without_a_traceback(data, message, tmp_path):
    file = tmp_path / "known.toml"
    file.write_bytes(data)
    for option in ("--cai-xfails-file", "--cai-skips-file"):
        code, shown = run("--cai-producer", TOY, option, file, cwd=tmp_path)
        assert code == 4, shown
        assert f"{option}: {file}: " in shown
        assert message in shown
        assert "Traceback" not in shown


def test_a_file_may_speak_of_others_and_of_the_other_role(tmp_path):
    file = tmp_path / "known.toml"
    (taken,) = [one.name for one in requirements("consumer")][:1]
    file.write_text(
        f'["{TOY}"]\n{taken} = "of the other role"\n[somebody_else]\ncai-shape = "a list"\n'
    )
    code, shown = run("--cai-producer", TOY, "--cai-xfails-file", file, *ONE, cwd=tmp_path)
    assert code == 0, shown


# --- as `cai-bridge check` does it ----------------------------------------------------------------

OWN = """
from cai_bridge.conformance import NotApplicableError
import toy_library

class Nothing(toy_library.Producer):
    def make(self, shape, dtype):
        raise NotApplicableError("there is no device")

_shared = []

class Caching(toy_library.Producer):
    def stream(self):
        if not _shared:
            _shared.append(super().stream())
        return _shared[0]

class Leaving(toy_library.Producer):
    def readonly(self, array):
        raise SystemExit(0)

class Failing(toy_library.Producer):
    def readonly(self, array):
        return self.locked(array)

    def locked(self, array):
        raise RuntimeError("out of luck")

class Slow(toy_library.Producer):
    def readonly(self, array):
        import time
        time.sleep(0.2)
        return array
"""


def test_the_script_finds_a_module_of_the_working_directory(tmp_path):
    script = Path(sys.executable).with_name("pytest")
    if not script.exists():
        pytest.skip("there is no such script")
    (tmp_path / "own.py").write_text(OWN)
    program = [script] if INSTALLED else [script, *NAMED]
    found = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    code, shown = run("--cai-producer", "own:Caching", cwd=tmp_path, program=program, **found)
    assert code == 0, shown


def test_an_adapter_that_keeps_a_stream_gets_the_verdicts_of_a_check(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    subjects = ["own:Caching", "simulated"]
    asked = [word for one in subjects for word in ("--cai-producer", one)]
    code, shown = run(*asked, "--cai-consumer", "simulated", "-vv", cwd=tmp_path)
    assert code == 0, shown
    for place in (tmp_path, ROOT / "examples"):
        monkeypatch.syspath_prepend(place)
    words = {"passed": "PASSED", "skipped": "SKIPPED", "failed": "XFAIL"}
    for subject in subjects:
        for one in check_isolated("producer", subject, where="simulated").verdicts:
            test = f"test_producer[{subject}-{one.name}] {words[one.outcome]}"
            assert test in shown


def test_a_subject_of_which_nothing_can_be_judged_fails(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    code, shown = run("--cai-producer", "own:Nothing", cwd=tmp_path)
    assert code == 1, shown
    assert counted(shown, "failed") == 1
    assert "test_producer[own:Nothing-anything-judged]" in shown
    assert "every requirement was skipped: nothing is known of the library" in shown
    code, shown = run("--cai-producer", "own:Nothing", "-k", "cai-shape", cwd=tmp_path)
    assert code == 0, shown
    code, shown = run("--cai-producer", "own:Nothing", "-k", "cai-shape or anything", cwd=tmp_path)
    assert code == 0, shown
    assert "only some of the requirements ran here" in shown


def test_a_library_that_leaves_has_failed(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    code, shown = run("--cai-producer", "own:Leaving", "-k", "cai-readonly", cwd=tmp_path)
    assert code == 1, shown
    assert "seen: raised SystemExit: 0" in shown


def test_an_error_of_the_authors_own_is_shown_with_its_lines(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    code, shown = run("--cai-producer", "own:Failing", "-k", "cai-readonly", cwd=tmp_path)
    assert code == 1, shown
    traceback = shown[shown.index("Traceback (most recent call last):") :].splitlines()
    assert "own.py" in traceback[1]
    assert traceback[1].endswith(", in readonly")
    assert "return self.locked(array)" in shown
    assert "in locked" in shown
    assert "cai_bridge/conformance" not in "\n".join(traceback[: traceback.index("")])


def test_a_member_that_is_missing_is_named_with_the_line_of_its_class(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    code, shown = run("--cai-producer", "own:Caching", "-k", "cai-readonly", cwd=tmp_path)
    assert code == 0, shown
    line = OWN.splitlines().index("class Caching(toy_library.Producer):") + 1
    assert f"the adapter has no readonly(); see Caching, own.py:{line}" in " ".join(shown.split())


def test_a_requirement_that_takes_long_is_named_while_it_does(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    arguments = ["--cai-producer", "own:Slow", "-k", "cai-readonly or cai-shape"]
    _, shown = run(*arguments, "--cai-slow-after", "0.3", cwd=tmp_path)
    assert "cai_bridge: own:Slow: cai-readonly has run for 0.3 s" in shown
    assert "cai-shape has run" not in shown
    _, shown = run(*arguments, cwd=tmp_path)
    assert "has run" not in shown


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
