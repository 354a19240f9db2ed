"""Adapters of an author's own under the pytest plugin, judged as `cai-bridge check` judges them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from plugin_runs import INSTALLED, NAMED, ROOT, counted, run

from cai_bridge.conformance.isolated import check_isolated

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
        time.sleep(0.04)
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


@pytest.mark.parametrize(
    ("subject", "code", "texts"),
    [
        ("Leaving", 1, ["seen: raised SystemExit: 0"]),
        ("Failing", 1, ["return self.locked(array)", "in locked"]),
        (
            "Caching",
            0,
            [
                "the adapter has no readonly(); see Caching, own.py:"
                f"{OWN.splitlines().index('class Caching(toy_library.Producer):') + 1}"
            ],
        ),
    ],
)
def test_what_an_adapter_does_or_lacks_is_told_with_its_lines(subject, code, texts, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    ended, shown = run("--cai-producer", f"own:{subject}", "-k", "cai-readonly", cwd=tmp_path)
    assert ended == code, shown
    words = " ".join(shown.split())
    assert [text for text in texts if text not in words] == []
    if subject == "Failing":
        traceback = shown[shown.index("Traceback (most recent call last):") :].splitlines()
        assert "own.py" in traceback[1]
        assert traceback[1].endswith(", in readonly")
        assert "cai_bridge/conformance" not in "\n".join(traceback[: traceback.index("")])


def test_a_requirement_that_takes_long_is_named_while_it_does(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    arguments = ["--cai-producer", "own:Slow", "-k", "cai-readonly or cai-shape"]
    _, shown = run(*arguments, "--cai-slow-after", "0.3", cwd=tmp_path)
    assert "cai_bridge: own:Slow: cai-readonly has run for 0.3 s" in shown
    assert "cai-shape has run" not in shown
    _, shown = run(*arguments, cwd=tmp_path)
    assert "has run" not in shown
