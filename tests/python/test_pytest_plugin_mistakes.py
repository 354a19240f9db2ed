"""Mistakes that an author makes with the pytest plugin, and what is said of each."""

from __future__ import annotations

import pytest
from plugin_runs import ONE, TOY, counted, run, run_somebody_elses


def test_without_a_subject_nothing_is_judged(tmp_path):
    code, shown = run(cwd=tmp_path)
    assert code == 2, shown
    assert "no --cai-producer was given" in shown
    assert "cai_bridge: nothing was judged; add --pyargs cai_bridge.conformance" in shown
    assert counted(shown, "passed") == 0


def test_a_subject_without_the_kit_is_an_error(tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    code, shown = run_somebody_elses(tmp_path, "--cai-producer", "simulated")
    assert (code, counted(shown, "passed")) == (2, 1), shown
    assert "cai_bridge: nothing was judged; add --pyargs cai_bridge.conformance" in shown
    code, shown = run_somebody_elses(tmp_path)
    assert (code, counted(shown, "passed")) == (0, 1), shown


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
        ("nothing", "got 'nothing'; allowed: torch"),
        ("no_such_module:x", "No module named 'no_such_module'"),
        ("toy_library:x", "toy_library has no 'x'"),
        ("leaves:Producer", "--cai-producer leaves:Producer: SystemExit: 0"),
        ("no_python:Producer", "--cai-producer no_python:Producer: SyntaxError: invalid syntax"),
        ("raises:Producer", "--cai-producer raises:Producer: RuntimeError: out of luck"),
        ("a_list:Producer", "make: got list; allowed: a ProducerAdapter"),
        ("wants_arguments:Producer", "which takes arguments"),
    ],
)
def test_a_subject_that_is_a_mistake_is_told_without_a_traceback(subject, message, tmp_path):
    for name, text in MISTAKES.items():
        (tmp_path / name).write_text(text)
    code, shown = run("--cai-producer", subject, cwd=tmp_path)
    assert code == 4, shown
    assert message in shown
    assert "Traceback" not in shown
    assert "INTERNALERROR" not in shown


NEAR = b'["toy_libary:Producer"]\ncai-shape = "x"\n'
OWN = f'["{TOY}"]\n'.encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "No such file"),
        (b'"x" = 3\n', "x: got 3; allowed: a table of requirement = reason"),
        (b'[x]\nreason = "\xff"\n', "can't decode byte 0xff"),
        (b"[x\n", "Expected"),
        (b'[somebody_else]\ncai-colour = "x"\n', "somebody_else: there is no 'cai-colour'"),
        (OWN + b'cai-colour = "x"\n', "there is no 'cai-colour'"),
        (OWN + b'cai-shap = "x"\n', "there is no 'cai-shap' (did you mean 'cai-shape'?)"),
        (
            NEAR,
            f"got tables of toy_libary:Producer; allowed: one of what is judged at least, {TOY}",
        ),
    ],
)
@pytest.mark.parametrize("option", ["--cai-xfails-file", "--cai-skips-file"])
def test_a_file_that_is_a_mistake_is_told_without_a_traceback(option, data, message, tmp_path):
    file = tmp_path / "known.toml"
    if data is not None:
        file.write_bytes(data)
    code, shown = run("--cai-producer", TOY, option, file, cwd=tmp_path)
    assert code == 4, shown
    assert f"{option}: {file}: " in shown
    assert message in shown
    assert ("did you mean" in shown) == (data == NEAR or "did you mean" in message)
    assert "Traceback" not in shown


def test_a_table_of_nothing_that_is_judged_is_no_mistake_beside_one_that_is(tmp_path):
    file = tmp_path / "known.toml"
    file.write_bytes(NEAR + OWN + b'cai-shape = "x"\n')
    code, shown = run("--cai-producer", TOY, "--cai-xfails-file", file, *ONE, cwd=tmp_path)
    assert code == 1, shown
    assert "XPASS(strict)" in shown
