"""What the command is asked about, foreign code that it runs for that, and the streams it has."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cai_bridge._cli import checking, matrix, output, page, subjects, theirs
from cai_bridge._cli.command import main
from cai_bridge._cli.exits import UsageError
from cai_bridge._cli.libraries import Found
from cai_bridge._cli.text import escaped, prepare_streams
from cai_bridge.testing import simulated_cuda

HERE = Path(__file__).parent
SEEN = ["--only", "cai-shape", "--simulated"]

LIBRARY = """
import os, sys
import cli_subjects

make = cli_subjects.make
adapter = cli_subjects.Poor()
array = cli_subjects.array

class Counting(cli_subjects.Producer):
    dtypes = ("float32", "float64", "int16", "uint8", "int64", "complex64", "int8", "uint16")

    def make(self, shape, dtype):
        with open("made", "a") as to:
            to.write(".")
        return super().make(shape, dtype)

class DyingApart(cli_subjects.Producer):
    def __init__(self):
        if "isolated" in sys.argv[0]:
            os._exit(3)

def unordered():
    from cai_bridge.testing import SimulatedCuda

    cuda = SimulatedCuda.current()
    made = cuda.array([1.0], stream=cuda.stream(), speaks="cai")
    made.assign(2.0)
    return made
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a library that is on no path, as it is for an installed script."""
    (tmp_path / "beside.py").write_text(LIBRARY)
    monkeypatch.chdir(tmp_path)
    without = [one for one in sys.path if one not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", without)
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    yield tmp_path
    sys.modules.pop("beside", None)


# --- where modules are found ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "--simulated", "beside:array()"],
        ["check", "beside:make", *SEEN],
        ["check", "to_cai(beside:make)", *SEEN],
    ],
)
def test_a_module_of_the_working_directory_is_found(arguments, here, capsys):
    assert main(arguments) == 0
    assert capsys.readouterr().err == ""


def test_a_module_of_the_working_directory_comes_first(here, tmp_path_factory, monkeypatch, capsys):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "beside.py").write_text("raise ImportError('another one')\n")
    monkeypatch.syspath_prepend(elsewhere)
    assert main(["inspect", "--simulated", "beside:array()"]) == 0


def test_what_is_shown_need_not_be_in_order(here, capsys):
    # The host writes while a stream may still write: that is not what is asked.
    assert main(["inspect", "--simulated", "beside:unordered()"]) == 0
    assert "nothing to compare" in capsys.readouterr().out


# --- subjects and their roles ---------------------------------------------------------------------


def test_an_adapter_that_was_made_has_its_own_roles_only(here, capsys):
    assert list(subjects.adapters_named("beside:adapter", "")) == ["producer"]
    assert main(["check", "beside:adapter", "--role", "consumer"]) == 2
    assert "got 'beside:adapter', which is no consumer" in capsys.readouterr().err


def test_what_has_no_signature_is_taken_for_what_is_asked():
    with pytest.raises(UsageError, match="pass --role producer or --role consumer"):
        subjects.adapters_named("builtins:dict", "")
    assert list(subjects.adapters_named("builtins:dict", "consumer")) == ["consumer"]


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("nothing", "got 'nothing'; allowed: torch, jax"),
        ("to_cai(simulated)", "got 'to_cai(simulated)'; allowed: torch, jax"),
    ],
)
def test_a_subject_without_a_role_that_is_asked_for_is_refused(subject, said, capsys):
    assert main(["check", subject, "--role", "both", "--only", "cai-shape"]) == 2
    assert said in capsys.readouterr().err


def test_requirements_of_the_other_role_are_told_of(capsys):
    assert main(["check", "cli_subjects:make", "--only", "takes-*"]) == 2
    assert "--only takes-* has no requirement of that role" in capsys.readouterr().err


def test_a_library_that_dies_where_it_is_judged_ends_with_2_and_a_line(here, capsys):
    assert main(["check", "beside:DyingApart", *SEEN]) == 2
    assert capsys.readouterr().err == (
        "cai-bridge check: beside:DyingApart: the child process did not begin: exit code 3\n"
    )


@pytest.mark.parametrize("in_place", [False, True])
def test_a_thorough_check_judges_more_cases(in_place, here, capsys):
    def made(*options):
        (here / "made").write_text("")
        with simulated_cuda() if in_place else contextlib.nullcontext():
            main(["check", "beside:Counting", "--only", "cai-values", "--simulated", *options])
        return len((here / "made").read_text())

    assert made("--thorough") > made() > 0


def test_what_is_judged_on_the_device_in_place_is_told(monkeypatch, capsys):
    told = []
    monkeypatch.setattr(checking.Progress, "step", lambda self, label: told.append(label))
    # No child has the device.
    monkeypatch.delattr("cai_bridge.conformance.isolated.check_isolated")
    with simulated_cuda(check=False):
        assert main(["check", "cli_subjects:make", "--only", "cai-shape"]) == 0
    assert told == ["make as a producer: cai-shape"]


def test_a_matrix_of_all_is_of_the_installed_that_have_adapters(monkeypatch, tmp_path, capsys):
    installed = tuple(Found(name, name, "1") for name in ("numpy", "simulated", "ml_dtypes"))
    monkeypatch.setattr("cai_bridge.conformance.lab.cuda.why_no_gpu", lambda: None)
    monkeypatch.setattr(matrix, "find_libraries", lambda: installed)
    asked = []

    def run_isolated(producers, consumers, *, progress, **more):
        asked.append((producers, consumers))
        raise RuntimeError("the device\nis gone")

    monkeypatch.setattr("cai_bridge.conformance.matrix.run_isolated", run_isolated)
    assert main(["matrix"]) == 2
    assert asked == [(["simulated"], ["simulated"])]
    assert capsys.readouterr().err == "cai-bridge matrix: the device\\nis gone\n"


def test_a_matrix_tells_each_cell_as_it_is_done(monkeypatch, tmp_path, capsys):
    told = []
    monkeypatch.setattr(matrix.Progress, "done", lambda self, *what: told.append(what))
    assert main(["matrix", "simulated", "--way", "convert"]) == 0
    assert told == [(1, 1, "simulated -> simulated, convert(x, library)")]


# --- foreign code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [UsageError("its own"), KeyboardInterrupt("its own")])
def test_a_refusal_and_an_interruption_stay_what_they_are(raised):
    with pytest.raises(type(raised)) as found, theirs.guarded("something raised "):
        raise raised
    assert found.value is raised


def test_what_foreign_code_prints_is_not_the_commands(capsys):
    with theirs.own_stdout():
        print("theirs")
    print("ours")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("ours\n", "theirs\n")


PRINTING = """
import sys
from cai_bridge._cli.theirs import own_stdout
print("before")
with own_stdout():
    sys.__stdout__.write("theirs, of the stream that Python began with\\n")
print("after")
"""


def run(program, *arguments, **more):
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def test_what_was_buffered_goes_where_it_was_printed_for():
    done = run(PRINTING)
    assert done.stdout == "before\nafter\n"
    assert done.stderr == "theirs, of the stream that Python began with\n"


def test_foreign_code_leaves_no_descriptor_open():
    def count():
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for _ in range(3):
        with theirs.own_stdout():
            pass
    assert count() == before


# --- the streams ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("é\x00\n", "é\\x00\n"),
        ("é", "é"),
        ("plain\ttext", "plain\ttext"),
    ],
)
def test_what_steers_a_terminal_is_escaped_and_nothing_else(text, shown):
    assert escaped(text) == shown


def test_what_a_stream_cannot_encode_is_escaped(monkeypatch):
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    # One that a program put in place is left as it is.
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    prepare_streams()
    print("é", flush=True)
    assert out.getvalue() == b"\\xe9\n"


CLOSED = """
import os, sys
for number in map(int, sys.argv[1:]):
    os.close(number)
from cai_bridge._cli.text import prepare_streams
prepare_streams()
with open(os.devnull) as file:
    sys.exit(0 if file.fileno() > 2 else f"the next file is {file.fileno()}")
"""


@pytest.mark.parametrize("numbers", [["0"], ["1"], ["0", "1"]])
def test_no_file_is_taken_for_a_standard_stream_that_is_closed(numbers):
    done = run(CLOSED, *numbers)
    assert (done.returncode, done.stderr) == (0, "")


BOTH = """
import sys
from cai_bridge._cli.command import main
sys.exit(main(sys.argv[1:]))
"""


def test_what_is_printed_is_there_before_its_page(monkeypatch):
    printed, seen = io.BytesIO(), []
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed))
    monkeypatch.setattr(page, "write", lambda path, text: seen.append(printed.getvalue()))
    output.give("what was found", None, {"page.html": "the page"})
    assert seen == [b"what was found\n"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("flag", ["--output", "--html"])
def test_what_was_found_comes_before_the_line_that_no_file_could_be_written(flag):
    pytest.importorskip("jinja2", reason="the pages need the extra cli")
    path = "/dev/full"
    command = [sys.executable, "-c", BOTH, "check", "cli_subjects:make", *SEEN, flag, path]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
        cwd=HERE,
        env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    assert done.returncode == 2
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("make as a producer on ")
    assert last == f"cai-bridge check: {path}: No space left on device"
