"""The command: what each part of it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from cai_bridge._cli.command import main
from cai_bridge.conformance import requirements

HERE = Path(__file__).parent
MATRIX = HERE.parent / "data" / "matrix_example.json"

EMPTY = {
    "place": "nowhere",
    "date": "2026-11-20",
    "version": "0",
    "versions": {},
    "rounds": 1,
    "producers": [],
    "consumers": [],
    "cells": [],
}

CELL = {
    "producer": "a",
    "consumer": "b",
    "route": "to_cai(x)",
    "door": "cai",
    "bridged": True,
    "aspects": {},
}

# A finder that finds no rich and no jinja2, before the command is imported.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("rich", "jinja2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from cai_bridge._cli.command import main
sys.exit(main(sys.argv[1:]))
"""


def run(*arguments, program=("-m", "cai_bridge"), **more):
    return subprocess.run(
        [sys.executable, "-W", "error", *program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=HERE,
        **more,
    )


def test_importing_the_package_imports_none_of_it():
    shown = run(
        program=("-c", "import cai_bridge, sys; print([n for n in sys.modules if '_cli' in n])")
    )
    assert shown.stdout == "[]\n"


def test_importing_the_command_imports_no_terminal_or_template_library():
    program = "import cai_bridge._cli.command, sys; print({'rich', 'jinja2'} & set(sys.modules))"
    assert run(program=("-c", program)).stdout == "set()\n"


@pytest.mark.parametrize(
    "arguments",
    [["doctor"], ["check", "simulated", "--only", "cai-shape"], ["check", "--help"], ["--version"]],
)
def test_it_runs_as_a_module(arguments):
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_script_is_the_module():
    script = metadata.entry_points(group="console_scripts", name="cai-bridge")
    for entry in script:  # there is one where the package was installed with it
        assert entry.load() is main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required"),
        (["dance"], "dance"),
        (["check"], "required"),
        (["check", "torch", "--simulated", "--gpu"], "not allowed"),
        (["check", "torch", "--role", "audience"], "audience"),
        (["inspect"], "required"),
    ],
)
def test_what_cannot_be_parsed_ends_with_2(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "nothing"], "got 'nothing'; allowed: torch, jax"),
        (["check", "nothing", "--role", "producer"], "got 'nothing'; allowed: torch, jax"),
        (["check", "no.such.module:make"], "No module named 'no'"),
        (["check", "cli_subjects:nothing"], "has no 'nothing'"),
        (["check", "cli_subjects:neither"], "pass --role producer or --role consumer"),
        (["check", "cli_subjects:Poor", "--role", "consumer"], "is no consumer"),
        (["check", "cli_subjects:Consumer", "--role", "both"], "is no producer"),
        (["check", "cli_subjects:make", "--only", "cai-nothing"], "got 'cai-nothing'; allowed"),
        (["check", "cli_subjects:make", "--html", ""], "--html: got no path"),
        (["matrix", "--from", str(MATRIX), "--html", ""], "--html: got no path"),
        (["matrix", "--from", str(MATRIX), "--output", ""], "--output: got no path"),
        (["doctor", "--output", ""], "--output: got no path"),
        (["inspect", "cli_subjects:3", "--output", ""], "--output: got no path"),
        (["check", "cli_subjects:make", "--output", ""], "--output: got no path"),
        (
            ["check", "cli_subjects:make", "--only", "cai-stirdes"],
            "got 'cai-stirdes' (did you mean 'cai-strides'?)",
        ),
        (["inspect", "cli_subjects"], "allowed: module:expression"),
        (["inspect", "cli_subjects:nothing"], "raised NameError"),
        (["inspect", "cli_subjects:fails()"], "raised RuntimeError: out of luck"),
        (["inspect", "cli_subjects:("], "raised SyntaxError"),
        (["inspect", "cli_subjects:3"], "'3' gave int; allowed"),
        (["inspect", "cli_subjects:fails"], "capsule, such as cli_subjects:fails()"),
        (["inspect", "no_such_module:3"], "does not import: ModuleNotFoundError"),
        (["matrix", "torch", "--from", str(MATRIX)], "takes no subjects"),
        (["matrix", "simulated", "--jobs", "0"], "--jobs: got 0; allowed: 1 or more"),
        (["matrix", "--way", "native", "--from", str(MATRIX)], "takes neither --way nor --jobs"),
        (["matrix", "--jobs", "2", "--from", str(MATRIX)], "takes neither --way nor --jobs"),
        (["matrix", "--from", "no-such-file"], "no-such-file: No such file"),
        (["matrix", "--from", str(MATRIX.with_name("stream.toml"))], "Expecting value"),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_a_line(arguments, said, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"cai-bridge {arguments[0]}: ")
    assert said in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["doctor"], ["matrix", "--from", str(MATRIX)]])
def test_a_reader_that_has_enough_is_no_error(arguments):
    program = f"from cai_bridge._cli.command import main; raise SystemExit(main({arguments}))"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 2, "not that the answer is no"


# --- inspect --------------------------------------------------------------------------------------


def test_inspect_shows_each_door_and_that_they_agree(capsys):
    assert main(["inspect", "--simulated", "cli_subjects:array(speaks=('cai', 'dlpack'))"]) == 0
    printed = capsys.readouterr().out
    assert "CAI" in printed
    assert "__dlpack__" in printed
    assert printed.endswith("The protocols agree.\n")


def test_inspect_of_one_protocol_has_nothing_to_compare(capsys):
    assert main(["inspect", "--simulated", "cli_subjects:array(speaks='cai')", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["agree"] is None
    assert told["why"] == "It speaks only CAI: nothing to compare."
    assert [one["door"] for one in told["said"]] == ["CAI"]


@pytest.mark.parametrize("command", ["inspect", "check"])
@pytest.mark.parametrize("file", ["./cli_subjects.py", "cli_subjects.py", "tests/cli_subjects"])
def test_a_file_in_place_of_a_module_is_told_its_name(command, file, capsys):
    assert main([command, f"{file}:array"]) == 2
    said = capsys.readouterr().err
    assert "allowed: the name of a module before the colon, such as cli_subjects" in said


def test_inspect_of_what_is_malformed_ends_with_1(capsys):
    assert main(["inspect", "--simulated", "cli_subjects:Malformed()"]) == 1
    printed = capsys.readouterr().out
    assert "CAI, malformed: data[0]: got 0; allowed: the address of the first item" in printed
    assert "nothing to compare" in printed


def test_inspect_of_what_cannot_be_read_ends_with_1(capsys):
    assert main(["inspect", "cli_subjects:Unread()"]) == 1
    assert "RuntimeError: no dict today" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_inspect_of_a_contradiction_ends_with_1(flags, capsys):
    assert main(["inspect", "--simulated", "cli_subjects:Contradicts()", *flags]) == 1
    printed = capsys.readouterr().out
    assert "shape" in printed
    if flags:
        assert json.loads(printed)["agree"] is False


# --- check ----------------------------------------------------------------------------------------


def test_check_prints_the_report(capsys):
    assert main(["check", "cli_subjects:make", "--only=cai-shape", "--only=cai-typestr"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("make as a producer on the simulated device: 2 passed, 0 failed")


def test_check_of_what_fails_ends_with_1(capsys):
    assert main(["check", "cli_subjects:Poor", "--only", "cai-typestr", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    (report,) = told["reports"]
    (verdict,) = report["verdicts"]
    assert (report["subject"], verdict["outcome"]) == ("poor", "failed")


def test_check_takes_patterns_of_names(capsys):
    assert main(["check", "cli_subjects:make", "--only", "cai-s*", "--simulated", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    every = [one.name for one in requirements("producer")]
    judged = [one["requirement"] for one in report["verdicts"]]
    assert judged == [name for name in every if name.startswith("cai-s")]


@pytest.mark.parametrize(
    ("subject", "roles"),
    [
        ("cli_subjects:Producer", ["producer"]),
        ("cli_subjects:Consumer", ["consumer"]),
        ("cli_subjects:Both", ["producer", "consumer"]),
        ("cli_subjects:make", ["producer"]),
        ("cli_subjects:take", ["consumer"]),
    ],
)
def test_a_subject_is_judged_in_the_roles_that_it_has(subject, roles):
    from cai_bridge._cli.subjects import adapters_named

    assert list(adapters_named(subject, "")) == roles


def test_a_gpu_that_is_not_there_ends_with_2(capsys, monkeypatch):
    from cai_bridge.conformance.lab import find

    monkeypatch.setattr(find, "why_no_gpu", lambda: "no driver")
    assert main(["check", "cli_subjects:make", "--gpu"]) == 2
    assert "got 'gpu', but there is no driver" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("subject", "roles"),
    [
        ("simulated", ["producer", "consumer"]),
        ("to_cai(simulated)", ["producer"]),
        ("from_cai(simulated)", ["producer"]),
    ],
)
def test_check_knows_libraries_and_views_of_the_bridge(subject, roles, capsys):
    names = ("cai-shape", "dlpack-shape", "takes-cai-values")[: 1 + len(roles)]
    only = [word for name in names for word in ("--only", name)]
    assert main(["check", subject, "--simulated", "--json", *only]) == 0
    told = json.loads(capsys.readouterr().out)["reports"]
    assert [(one["subject"], one["role"]) for one in told] == [(subject, role) for role in roles]


def test_check_runs_as_a_module_from_the_working_directory():
    done = run("check", "cli_subjects:make", "--only", "cai-shape")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 passed" in done.stdout


# --- without the extra ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"],
        ["doctor", "--json"],
        ["check", "cli_subjects:make", "--only", "cai-shape"],
        ["check", "cli_subjects:make", "--only", "cai-shape", "--json"],
        ["inspect", "--simulated", "cli_subjects:array(speaks='cai')"],
        ["matrix", "--from", str(MATRIX)],
        ["matrix", "--from", str(MATRIX), "--json"],
    ],
)
def test_text_and_json_need_no_extra(arguments):
    without = run(*arguments, program=("-c", WITHOUT))
    assert (without.returncode, without.stderr) == (0, "")
    if arguments[0] != "inspect":  # whose pointers differ
        assert without.stdout == run(*arguments).stdout


@pytest.mark.parametrize(
    "arguments", [["check", "cli_subjects:make"], ["matrix", "--from", str(MATRIX)]]
)
def test_a_page_without_the_extra_says_what_to_install(arguments, tmp_path):
    path = tmp_path / "page.html"
    done = run(*arguments, "--html", str(path), program=("-c", WITHOUT))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("pip install jinja2\n")
    assert not path.exists()
