"""The command and foreign code that stays, crashes or prints; what cannot be shown or written."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_cli import MATRIX

from cai_bridge._cli import checking, theirs
from cai_bridge._cli.command import main
from cai_bridge._cli.exits import UsageError
from cai_bridge._cli.text import escaped, prepare_streams
from cai_bridge.testing import SimulatedCuda, simulated_cuda

HERE = Path(__file__).parent
CHECK = ("check", "cli_subjects:make", "--simulated", "--only", "cai-shape")
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")

NOISY = r"""
import os
import cli_subjects

print("imported")
os.write(1, b"imported, natively\n")

class Noisy(cli_subjects.Producer):
    name = "noisy"
    def make(self, shape, dtype):
        print("made")
        os.write(1, b"made, natively\n")
        return super().make(shape, dtype)

def noisy_array():
    print("made")
    os.write(1, b"made, natively\n")
    return cli_subjects.array()
"""


def environment(folder, **more):
    """One that finds the subjects, and in which what is printed is buffered."""
    path = os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")])
    own = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**own, "PYTHONPATH": path, **more}


@pytest.fixture
def run(tmp_path):
    """Runs the command, or a program, in a process of its own."""

    def ran(*arguments, program=("-m", "cai_bridge"), variables=(), **more):
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
        return subprocess.run(
            [sys.executable, *program, *arguments],
            timeout=100,
            check=False,
            cwd=tmp_path,
            env=environment(tmp_path, **dict(variables)),
            **how,
        )

    return ran


def test_an_interruption_is_one(run):
    done = run("inspect", "cli_subjects:interrupted()")
    # An interruption within eval() makes the interpreter end itself by the signal.
    assert done.returncode in (130, -signal.SIGINT)
    assert done.stdout == ""


STAYING = {
    "a thread": "threading.Thread(target=time.sleep, args=(60,)).start()",
    "a process": "os.fork() or time.sleep(60)",
}


@pytest.mark.parametrize("stays", STAYING)
def test_what_stays_when_all_is_judged_is_not_waited_for(stays, run, tmp_path):
    (tmp_path / "staying.py").write_text(f"""
import os, threading, time
from cli_subjects import *

class Staying(Producer):
    def make(self, shape, dtype):
        {STAYING[stays]}
        return super().make(shape, dtype)
""")
    begin = time.monotonic()
    done = run("check", "staying:Staying", "--simulated", "--only", "cai-version")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 30


SLEEPING = """
import os, time
from cli_subjects import *

class Sleeping(Both):
    def make(self, shape, dtype):
        with open({said!r}, "a") as file:
            print(os.getpid(), file=file)
        time.sleep(600)
"""


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("options", [["check"], ["matrix"], ["matrix", "--jobs", "2"]])
def test_what_ends_a_command_ends_its_children(options, sent, tmp_path):
    said = tmp_path / "said"
    (tmp_path / "sleeping.py").write_text(SLEEPING.format(said=str(said)))
    parent = subprocess.Popen(
        [sys.executable, "-m", "cai_bridge", *options, "sleeping:Sleeping"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while not (said.exists() and said.read_text().endswith("\n")):
        assert time.monotonic() < end
        assert parent.poll() is None
        time.sleep(0.05)
    parent.send_signal(sent)
    assert parent.wait(30) == -sent
    for one in said.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(one), 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "noisy:Noisy", "--only", "cai-shape"],
        ["inspect", "--simulated", "noisy:noisy_array()"],
    ],
)
def test_json_is_alone_on_the_standard_output(arguments, run, tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY)
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert "imported, natively" in done.stderr


@pytest.mark.parametrize("raised", [UsageError("its own"), KeyboardInterrupt("its own")])
def test_a_refusal_and_an_interruption_stay_what_they_are(raised):
    with pytest.raises(type(raised)) as found, theirs.guarded("something raised "):
        raise raised
    assert found.value is raised


PRINTING = """
import sys
from cai_bridge._cli.theirs import own_stdout
print("before")
with own_stdout():
    print("theirs")
    sys.__stdout__.write("theirs, of the stream that Python began with\\n")
print("after")
"""


def test_what_foreign_code_prints_is_not_the_commands_and_what_was_buffered_goes_where_it_was_to(
    run,
):
    done = run(program=("-c", PRINTING))
    assert done.stdout == "before\nafter\n"
    assert "theirs\n" in done.stderr
    assert "theirs, of the stream that Python began with\n" in done.stderr


def test_foreign_code_leaves_no_descriptor_open():
    def count():
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for _ in range(3):
        with theirs.own_stdout():
            pass
    assert count() == before


@pytest.mark.parametrize("in_place", [False, True])
def test_a_thorough_check_judges_more_cases(in_place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def made(*options):
        Path("made").write_text("")
        with simulated_cuda() if in_place else contextlib.nullcontext():
            main(
                ["check", "cli_subjects:Counting", "--only", "cai-values", "--simulated", *options]
            )
        return len(Path("made").read_text())

    assert made("--thorough") > made() > 0


def test_the_simulated_device_that_is_in_place_is_judged_on(monkeypatch, capfd):
    told = []
    monkeypatch.setattr(checking.Progress, "step", lambda self, label: told.append(label))
    # No child has the device.
    monkeypatch.delattr("cai_bridge.conformance.isolated.check_isolated")
    with simulated_cuda(check=False) as cuda:
        first = cuda.stream().handle + 1
        assert main(["check", "simulated", "--role", "producer", "--only", "dlpack-pending"]) == 0
        assert SimulatedCuda.current() is cuda
        assert cuda.stream().handle > first
    assert "1 passed" in capfd.readouterr().out
    assert told == ["simulated as a producer: dlpack-pending"]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_cannot_be_shown_is_escaped(encoding, run, tmp_path):
    pytest.importorskip("jinja2", reason="the pages need the extra cli")
    shown = tmp_path / "page.html"
    done = run(
        *("check", "cli_subjects:Unprintable", "--only", "cai-shape", "--html", str(shown)),
        variables={"PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    for text in (done.stdout, shown.read_text("utf-8")):
        assert "\x1b" not in text
        assert r"a half \udcff, a colour \x1b[31m" in text
    assert done.stdout.startswith(r"two\nlines \x1b[31m \udcff as a producer on ")


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


@pytest.mark.parametrize("number", [1, 2])
def test_a_standard_stream_may_be_closed(number, run):
    done = run("check", "simulated", *CHECK[2:], preexec_fn=lambda: os.close(number))
    assert (done.returncode, done.stderr) == (0, "")
    assert ("1 passed" in done.stdout) == (number == 2)


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
def test_no_file_is_taken_for_a_standard_stream_that_is_closed(numbers, run):
    done = run(*numbers, program=("-c", CLOSED))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "got no path"),
        ("none/x", "none/x: No such file or directory"),
        (".", ".: Is a directory"),
        ("a_file/x", "a_file/x: Not a directory"),
    ],
)
@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--output", ["check", "simulated"]),
        ("--output", ["matrix", "--from", str(MATRIX)]),
        ("--output", ["doctor"]),
        ("--output", ["inspect", "nothing:there"]),
        ("--output", ["perturb", "--", "touch", "ran"]),
        ("--output", ["races", "--", "touch", "ran"]),
        ("--html", ["check", "simulated"]),
        ("--html", ["matrix", "--from", str(MATRIX)]),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    option, command, path, reason, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("as it was")
    assert main([command[0], option, path, *command[1:]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err
    assert [one.name for one in tmp_path.iterdir()] == ["a_file"]
    assert main(["doctor", "--output", "a_file"]) in (0, 1)


@FULL
@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [
        ([*CHECK, "--output", "/dev/full"], "make as a producer on ", "check: /dev/full: No space"),
        ([*CHECK, "--html", "/dev/full"], "make as a producer on ", "check: /dev/full: No space"),
        (
            ["matrix", "--from", MATRIX, "--html", "/dev/full", "--output", "/dev/full"],
            "NVIDIA H200, driver ",
            "matrix: /dev/full: No space left on device; /dev/full: No space",
        ),
    ],
)
def test_what_was_found_comes_before_the_line_that_no_file_could_be_written(
    arguments, first, last, run
):
    pytest.importorskip("jinja2", reason="the pages need the extra cli")
    done = run(*arguments, stderr=subprocess.STDOUT)
    assert done.returncode == 2
    lines = done.stdout.splitlines()
    assert lines[0].startswith(first)
    assert lines[-1].startswith(f"cai-bridge {last}")


@FULL
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["doctor"], "[Errno 28] No space left on device"),
        # With a page that cannot be written either.
        ([*CHECK, "--html", "/dev/full"], "/dev/full: No space left on device"),
    ],
)
def test_a_full_disk_is_told_in_a_line(command, told, run):
    # What is not printed at once is flushed again at the interpreter's end.
    with Path("/dev/full").open("w") as full:
        done = run(*command, stdout=full)
    assert done.returncode == 2
    assert done.stderr == f"cai-bridge {command[0]}: {told}\n"


@pytest.mark.parametrize("command", [["doctor"], ["matrix", "--from", MATRIX, "--html", "page"]])
def test_a_reader_that_has_enough_is_no_error_and_the_page_is_written(command, tmp_path):
    pytest.importorskip("jinja2", reason="the pages need the extra cli")
    with subprocess.Popen(
        [sys.executable, "-m", "cai_bridge", *command],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 2, "not that the answer is no"
    assert (tmp_path / "page").exists() == ("--html" in command)
