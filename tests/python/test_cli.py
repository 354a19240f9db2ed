"""The command: what each part of it prints, how it ends, and which mistakes it tells in a line."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from cai_bridge._cli import checking, matrix, subjects
from cai_bridge._cli.command import main
from cai_bridge._cli.exits import UsageError
from cai_bridge.conformance import requirements
from cai_bridge.conformance.lab import find

HERE = Path(__file__).parent
MATRIX = HERE.parent / "data" / "matrix_example.json"

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


def run(*arguments, program=("-m", "cai_bridge")):
    return subprocess.run(
        [sys.executable, "-W", "error", *program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=HERE,
    )


@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("import cai_bridge, sys; print([n for n in sys.modules if '_cli' in n])", "[]\n"),
        (
            "import cai_bridge._cli.command, sys; print({'rich', 'jinja2'} & set(sys.modules))",
            "set()\n",
        ),
    ],
)
def test_what_is_imported_imports_no_more_than_it_needs(program, shown):
    assert run(program=("-c", program)).stdout == shown


def test_the_script_is_the_module():
    script = metadata.entry_points(group="console_scripts", name="cai-bridge")
    for entry in script:  # there is one where the package was installed with it
        assert entry.load() is main


@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "check --help",
        "doctor",
        "doctor --json",
        "check cli_subjects:make --only cai-shape",
        "check cli_subjects:make --only cai-shape --json",
        "inspect --simulated cli_subjects:array(speaks='cai')",
        f"matrix --from {MATRIX}",
        f"matrix --from {MATRIX} --json",
    ],
)
def test_it_runs_as_a_module_and_text_and_json_need_no_extra(command):
    arguments = command.split()
    without = run(*arguments, program=("-c", WITHOUT))
    assert (without.returncode, without.stderr) == (0, "")
    assert without.stdout
    if arguments[0] != "inspect":  # whose pointers differ
        assert without.stdout == run(*arguments).stdout


@pytest.mark.parametrize("command", ["check simulated", f"matrix --from {MATRIX}"])
def test_a_page_without_its_extra_is_refused_before_a_run_of_minutes(command, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(checking, "judged", lambda *what: ran.append(what) or [])
    monkeypatch.setattr(matrix, "_run", lambda *what: ran.append(what))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main([*command.split(), "--html", "page.html"]) == 2
    said = capsys.readouterr().err
    assert "--html needs Jinja, which is not installed" in said
    assert said.endswith("pip install jinja2\n")
    assert ran == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "required"),
        ("dance", "dance"),
        ("check", "required"),
        ("check torch --simulated --gpu", "not allowed"),
        ("check torch --role audience", "audience"),
        ("inspect", "required"),
    ],
)
def test_what_cannot_be_parsed_ends_with_2(command, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Modules that leave, or do not parse."""
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "no_python.py").write_text("def (\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(find, "why_no_gpu", lambda: "no driver")


NAME = "allowed: the name of a module before the colon, such as cli_subjects"


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("check nothing", "got 'nothing'; allowed: torch, jax"),
        ("check nothing --role both", "got 'nothing'; allowed: torch, jax"),
        (
            "check to_cai(simulated) --role both --only cai-shape",
            "got 'to_cai(simulated)'; allowed: torch, jax",
        ),
        ("check no.such.module:make", "No module named 'no'"),
        ("check cli_subjects:nothing", "has no 'nothing'"),
        ("check ./cli_subjects.py:array", NAME),
        ("check cli_subjects:neither", "pass --role producer or --role consumer"),
        ("check cli_subjects:Poor --role consumer", "is no consumer"),
        ("check cli_subjects:poor --role consumer", "got 'cli_subjects:poor', which is no consu"),
        ("check cli_subjects:Consumer --role both", "is no producer"),
        ("check cli_subjects:make --only cai-stirdes", "'cai-stirdes' (did you mean 'cai-strides'"),
        ("check cli_subjects:make --only takes-*", "--only takes-* has no requirement of that ro"),
        ("check cli_subjects:make --gpu", "got 'gpu', but there is no driver"),
        ("check leaves:Producer", "'leaves:Producer' does not import: SystemExit: 0"),
        ("check to_cai(leaves:Producer)", "SystemExit: 0"),
        ("check no_python:Producer", "does not import: SyntaxError"),
        ("check cli_subjects:LeavingAtOnce", "SystemExit"),
        (
            "check cli_subjects:DyingApart --only cai-shape --simulated",
            "cli_subjects:DyingApart: the child process did not begin: exit code 3",
        ),
        ("inspect cli_subjects", "allowed: module:expression"),
        ("inspect cli_subjects.py:array", NAME),
        ("inspect cli_subjects:nothing", "raised NameError"),
        ("inspect cli_subjects:fails()", "raised RuntimeError: out of luck"),
        ("inspect cli_subjects:(", "raised SyntaxError"),
        ("inspect cli_subjects:3", "'3' gave int; allowed"),
        ("inspect cli_subjects:fails", "capsule, such as cli_subjects:fails()"),
        ("inspect no_such_module:3", "does not import: ModuleNotFoundError"),
        ("inspect leaves:x", "SystemExit: 0"),
        ("inspect cli_subjects:sys.exit(0)", "'sys.exit(0)' raised SystemExit: 0"),
        ("inspect cli_subjects:Silent().make(1,2)", "WordlessError: its text raised RuntimeError"),
        ("inspect cli_subjects:Unprintable().make(1,2)", r"a half \udcff, a colour \x1b[31m,\na"),
        (f"matrix torch --from {MATRIX}", "takes no subjects"),
        (f"matrix --way native --from {MATRIX}", "takes neither --way nor --jobs"),
        (f"matrix --jobs 2 --from {MATRIX}", "takes neither --way nor --jobs"),
        ("matrix --from no-such-file", "no-such-file: No such file"),
        (f"matrix --from {MATRIX.with_name('stream.toml')}", "Expecting value"),
        ("matrix simulated --jobs 0", "--jobs: got 0; allowed: 1 or more"),
        ("matrix cli_subjects:Consumer", "allowed: at least one that makes arrays"),
        ("matrix cli_subjects:make", "allowed: at least one that takes arrays"),
        ("matrix leaves:Producer", "SystemExit: 0"),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_a_line(command, said, capsys):
    arguments = command.split()
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"cai-bridge {arguments[0]}: ")
    assert said in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "status", "texts"),
    [
        (
            "inspect --simulated \"cli_subjects:array(speaks=('cai', 'dlpack'))\"",
            *(0, ["CAI", "__dlpack__", "The protocols agree.\n"]),
        ),
        (
            "inspect --simulated cli_subjects:Malformed()",
            1,
            ["CAI, malformed: data[0]: got 0; allowed: the address of the first", "nothing to com"],
        ),
        ("inspect cli_subjects:Unread()", 1, ["RuntimeError: no dict today"]),
        ("inspect --simulated cli_subjects:Contradicts()", 1, ["shape"]),
        # The host writes while a stream may still write: that is not what is asked.
        ("inspect --simulated cli_subjects:unordered()", 0, ["nothing to compare"]),
        (
            "check cli_subjects:make --only=cai-shape --only=cai-typestr",
            *(0, ["make as a producer on the simulated device: 2 passed, 0 failed"]),
        ),
        (
            "check cli_subjects:make --only cai-readonly",
            *(2, ["0 passed, 0 failed, 1 skipped: nothing was judged"]),
        ),
        ("check cli_subjects:Poor --only cai-typestr", 1, ["poor as a producer", "1 failed"]),
        ("check cli_subjects:Aborting --only cai-*", 1, ["SIGABRT", "(1 cause)"]),
        ("check cli_subjects:Leaving --only cai-shape", 1, ["raised SystemExit: 0"]),
        (
            "check cli_subjects:Silent --only cai-shape",
            *(1, ["raised WordlessError: its text raised RuntimeError"]),
        ),
    ],
)
def test_a_command_shows_what_it_found_and_its_status_is_the_answer(command, status, texts, capsys):
    assert main(shlex.split(command)) == status
    printed, said = capsys.readouterr()
    assert [text for text in texts if text not in printed] == []
    told = "nothing was judged: every requirement was skipped; the report says why"
    assert said == (f"cai-bridge check: {told}\n" if status == 2 else "")


def told(command, capsys, status=0):
    """What a command says as JSON."""
    assert main([*command.split(), "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_inspect_as_json_says_whether_the_protocols_agree(capsys):
    one = told("inspect --simulated cli_subjects:array(speaks='cai')", capsys)
    assert (one["agree"], one["why"]) == (None, "It speaks only CAI: nothing to compare.")
    assert [said["door"] for said in one["said"]] == ["CAI"]
    assert told("inspect --simulated cli_subjects:Contradicts()", capsys, 1)["agree"] is False


def test_check_as_json_has_the_verdicts(capsys):
    poor = told("check cli_subjects:Poor --only cai-typestr", capsys, 1)
    assert poor["ok"] is False
    ((report,), every) = poor["reports"], [one.name for one in requirements("producer")]
    assert [report["subject"], report["verdicts"][0]["outcome"]] == ["poor", "failed"]
    (report,) = told("check cli_subjects:make --only cai-s* --simulated", capsys)["reports"]
    judged = [one["requirement"] for one in report["verdicts"]]
    assert judged == [name for name in every if name.startswith("cai-s")]


@pytest.mark.parametrize(
    ("subject", "roles"),
    [
        ("simulated", ["producer", "consumer"]),
        ("to_cai(simulated)", ["producer"]),
        ("from_cai(simulated)", ["producer"]),
    ],
)
def test_check_knows_libraries_and_views_of_the_bridge(subject, roles, capsys):
    only = " ".join(
        f"--only {one}"
        for one in ("cai-shape", "dlpack-shape", "takes-cai-values")[: 1 + len(roles)]
    )
    reports = told(f"check {subject} --simulated {only}", capsys)["reports"]
    assert [(one["subject"], one["role"]) for one in reports] == [(subject, one) for one in roles]


@pytest.mark.parametrize(
    ("subject", "roles"),
    [
        ("cli_subjects:Producer", ["producer"]),
        ("cli_subjects:Consumer", ["consumer"]),
        ("cli_subjects:Both", ["producer", "consumer"]),
        ("cli_subjects:make", ["producer"]),
        ("cli_subjects:take", ["consumer"]),
        ("cli_subjects:poor", ["producer"]),  # an adapter that was made
    ],
)
def test_a_subject_is_judged_in_the_roles_that_it_has(subject, roles):
    assert list(subjects.adapters_named(subject, "")) == roles


def test_what_has_no_signature_is_taken_for_what_is_asked():
    with pytest.raises(UsageError, match="pass --role producer or --role consumer"):
        subjects.adapters_named("builtins:dict", "")
    assert list(subjects.adapters_named("builtins:dict", "consumer")) == ["consumer"]


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A working directory with a module that is on no path, as it is for an installed script."""
    (tmp_path / "beside.py").write_text("from cli_subjects import array, make\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", str(tmp_path))])
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    yield
    sys.modules.pop("beside", None)


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize(
    "command",
    [
        "inspect --simulated beside:array()",
        "check beside:make --only cai-shape --simulated",
        "check to_cai(beside:make) --only cai-shape --simulated",
    ],
)
def test_a_module_of_the_working_directory_is_found(command, tmp_path_factory, monkeypatch, capsys):
    # It comes before another one of that name.
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "beside.py").write_text("raise ImportError('another one')\n")
    monkeypatch.syspath_prepend(elsewhere)
    assert main(command.split()) == 0
    assert capsys.readouterr().err == ""
