"""Mistakes that an author makes with the pytest plugin, and what is said of each."""

from __future__ import annotations

import pytest
from plugin_runs import ONE, TOY, counted, run, run_somebody_elses, run_with

from cai_bridge.conformance import requirements

# --- options and subjects -------------------------------------------------------------------------


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


# --- modules --------------------------------------------------------------------------------------

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


# --- files of what is known -----------------------------------------------------------------------


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
