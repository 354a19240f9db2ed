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
from cai_bridge.conformance.isolated import check_isolated
from cai_bridge.conformance.known import known as shipped
from cai_bridge.conformance.named import LIBRARIES

ROOT = Path(__file__).parents[2]
TOY = "toy_library:Producer"
# Where the package is not installed but found by its path, pytest does not know the plugin.
INSTALLED = any(one.name == "cai_bridge" for one in entry_points(group="pytest11"))


def run(*arguments, cwd, program=(sys.executable, "-m", "pytest")):
    command = [*program, "-c", "/dev/null", "--rootdir", cwd, "-q", "-rsfxX"]
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
        ("leaves:Producer", "--producer leaves:Producer: SystemExit: 0"),
        ("no_python:Producer", "--producer no_python:Producer: SyntaxError: invalid syntax"),
        ("raises:Producer", "--producer raises:Producer: RuntimeError: out of luck"),
        ("a_list:Producer", "make: got list; allowed: a ProducerAdapter"),
        ("wants_arguments:Producer", "which takes arguments"),
    ],
)
def test_a_module_that_is_a_mistake_is_told_without_a_traceback(subject, message, tmp_path):
    for name, text in MISTAKES.items():
        (tmp_path / name).write_text(text)
    code, shown = run("--producer", subject, cwd=tmp_path)
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
    for option in ("--xfails-file", "--skips-file"):
        code, shown = run("--producer", TOY, option, file, cwd=tmp_path)
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
    code, shown = run("--producer", TOY, "--xfails-file", file, cwd=tmp_path)
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
"""


def test_the_script_finds_a_module_of_the_working_directory(tmp_path):
    script = Path(sys.executable).with_name("pytest")
    if not script.exists():
        pytest.skip("there is no such script")
    (tmp_path / "own.py").write_text(OWN)
    code, shown = run("--producer", "own:Caching", cwd=tmp_path, program=[script])
    assert code == 0, shown


def test_an_adapter_that_keeps_a_stream_gets_the_verdicts_of_a_check(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    subjects = ["own:Caching", "simulated"]
    asked = [word for one in subjects for word in ("--producer", one)]
    code, shown = run(*asked, "--consumer", "simulated", "-vv", cwd=tmp_path)
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
    code, shown = run("--producer", "own:Nothing", cwd=tmp_path)
    assert code == 1, shown
    assert counted(shown, "failed") == 1
    assert "test_producer[own:Nothing-anything-judged]" in shown
    assert "every requirement was skipped: nothing was judged" in shown
    code, shown = run("--producer", "own:Nothing", "-k", "cai-shape", cwd=tmp_path)
    assert code == 0, shown
    code, shown = run("--producer", "own:Nothing", "-k", "cai-shape or anything", cwd=tmp_path)
    assert code == 0, shown
    assert "only some of the requirements were run here" in shown


def test_a_library_that_leaves_has_failed(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    code, shown = run("--producer", "own:Leaving", "-k", "cai-readonly", cwd=tmp_path)
    assert code == 1, shown
    assert "seen: raised SystemExit: 0" in shown


def test_the_device_is_given_back_to_the_tests_behind(tmp_path):
    test = tmp_path / "test_own.py"
    test.write_text(
        "from cai_bridge.testing import SimulatedCuda, simulated_cuda\n\n"
        "def test_it():\n    assert SimulatedCuda.current() is None\n"
        "    with simulated_cuda():\n        pass\n"
    )
    code, shown = run("--producer", TOY, "-k", "cai-shape or test_it", test, cwd=tmp_path)
    assert code == 0, shown
    assert counted(shown, "passed") == 2
