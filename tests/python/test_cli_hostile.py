"""The command and libraries that leave, crash, print, or say what cannot be shown."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_cli import MATRIX

from cai_bridge._cli.command import main
from cai_bridge.testing import SimulatedCuda, simulated_cuda

HERE = Path(__file__).parent

LIBRARY = r"""
import os, sys
import cli_subjects
from cai_bridge.conformance import ProducerAdapter

print("imported")
os.write(1, b"imported, natively\n")

class Noisy(cli_subjects.Producer):
    name = "noisy"
    def make(self, shape, dtype):
        print("made")
        os.write(1, b"made, natively\n")
        return super().make(shape, dtype)

class Leaving(cli_subjects.Producer):
    name = "leaving"
    def make(self, shape, dtype):
        sys.exit(0)

class Aborting(cli_subjects.Producer):
    name = "aborting"
    def readonly(self, array):
        os.abort()

class LeavingAtOnce(cli_subjects.Producer):
    def __init__(self):
        sys.exit(0)

class Unprintable(cli_subjects.Producer):
    name = "two\nlines \x1b[31m \udcff"
    def make(self, shape, dtype):
        raise ValueError("a half \udcff, a colour \x1b[31m")

class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")

class Silent(cli_subjects.Producer):
    name = "silent"
    def make(self, shape, dtype):
        raise Wordless

def noisy_array():
    print("made")
    os.write(1, b"made, natively\n")
    return cli_subjects.array()

def wordless():
    raise Wordless

def surrogate():
    raise ValueError("a half \udcff, a colour \x1b[31m,\na line")

def interrupted():
    raise KeyboardInterrupt
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the library, and with modules that leave or do not parse."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(LIBRARY)
    (folder / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (folder / "no_python.py").write_text("def (\n")
    return folder


@pytest.fixture
def run(place):
    def ran(*arguments, **environment):
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, "-m", "cai_bridge", *arguments],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            cwd=place,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )

    return ran


def verdicts(done):
    (report,) = json.loads(done.stdout)["reports"]
    return {one["requirement"]: one for one in report["verdicts"]}


def test_what_ends_the_process_costs_the_verdicts_that_meet_it_and_is_one_cause(run):
    done = run("check", "hostile:Aborting", "--simulated", "--only", "cai-*", "--json")
    assert done.returncode == 1, done.stderr
    (report,) = json.loads(done.stdout)["reports"]
    found = verdicts(done)
    failed = {name for name, one in found.items() if one["outcome"] == "failed"}
    assert "cai-readonly" in failed
    assert all("SIGABRT" in found[name]["evidence"] for name in failed)
    assert len(failed - report["follows"].keys()) == 1
    assert found["cai-stream"]["outcome"] == "passed"


def test_a_library_that_leaves_has_failed(run):
    done = run("check", "hostile:Leaving", "--only=cai-shape", "--only=cai-typestr", "--json")
    assert done.returncode == 1, done.stderr
    assert {one["evidence"] for one in verdicts(done).values()} == {"raised SystemExit: 0"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "leaves:Producer"], "'leaves:Producer' does not import: SystemExit: 0"),
        (["check", "leaves:Producer()"], "SystemExit: 0"),
        (["check", "no_python:Producer"], "does not import: SyntaxError"),
        (["check", "hostile:LeavingAtOnce"], "SystemExit"),
        (["check", "to_cai(leaves:Producer)"], "SystemExit: 0"),
        (["matrix", "leaves:Producer"], "SystemExit: 0"),
        (["inspect", "leaves:x"], "SystemExit: 0"),
        (["inspect", "hostile:sys.exit(0)"], "'sys.exit(0)' raised SystemExit: 0"),
        (["inspect", "hostile:wordless()"], "Wordless: its text raised RuntimeError"),
        (["inspect", "hostile:surrogate()"], r"a half \udcff, a colour \x1b[31m,\na line"),
    ],
)
def test_what_leaves_before_it_is_judged_ends_with_2_and_a_line(arguments, said, run):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    *_, last = done.stderr.splitlines()
    assert last.startswith(f"cai-bridge {arguments[0]}: ")
    assert said in last


def test_an_interruption_is_one(run):
    done = run("inspect", "hostile:interrupted()")
    # An interruption within eval() makes the interpreter end itself by the signal.
    assert done.returncode in (130, -signal.SIGINT)
    assert done.stdout == ""


STAYING = {
    "a thread": "threading.Thread(target=time.sleep, args=(60,)).start()",
    "a process": "os.fork() or time.sleep(60)",
}


@pytest.mark.parametrize("stays", STAYING)
def test_what_stays_when_all_is_judged_is_not_waited_for(stays: str, place: Path, run: Any) -> None:
    program = f"""
import os, threading, time
from cli_subjects import *

class Staying(Producer):
    def make(self, shape, dtype):
        {STAYING[stays]}
        return super().make(shape, dtype)
"""
    (place / "staying.py").write_text(program)
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
@pytest.mark.parametrize("command", [["check"], ["matrix"], ["matrix", "--jobs", "2"]])
def test_what_ends_a_command_ends_its_children(
    command: list[str], sent: signal.Signals, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    (tmp_path / "sleeping.py").write_text(SLEEPING.format(said=str(said)))
    name, *options = command
    parent = subprocess.Popen(
        [sys.executable, "-m", "cai_bridge", name, "sleeping:Sleeping", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(HERE)])},
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
        ["check", "hostile:Noisy", "--only", "cai-shape"],
        ["inspect", "--simulated", "hostile:noisy_array()"],
    ],
)
def test_json_is_alone_on_the_standard_output(arguments, run):
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert "imported, natively" in done.stderr


def test_a_library_that_leaves_when_the_doctor_imports_it_does_not_import(run, place):
    known = place / "cupy-13.0.dist-info"
    known.mkdir(exist_ok=True)
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: cupy\nVersion: 13.0\n")
    (place / "cupy.py").write_text("print('hello')\nimport sys\nsys.exit(0)\n")
    done = run("doctor", "--import", "--json")
    errors = {one["name"]: one["error"] for one in json.loads(done.stdout)["libraries"]}
    assert errors["cupy"] == "SystemExit: 0"


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_cannot_be_shown_is_escaped(encoding, run, tmp_path):
    page = tmp_path / "page.html"
    arguments = ["check", "hostile:Unprintable", "--only", "cai-shape", "--html", str(page)]
    pytest.importorskip("jinja2", reason="the pages need the extra cli")
    done = run(*arguments, PYTHONIOENCODING=encoding)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    for text in (done.stdout, page.read_text("utf-8")):
        assert "\x1b" not in text
        assert r"a half \udcff, a colour \x1b[31m" in text
    assert done.stdout.startswith(r"two\nlines \x1b[31m \udcff as a producer on ")


def test_an_exception_without_words_is_told(run):
    done = run("check", "hostile:Silent", "--only", "cai-shape", "--json")
    (verdict,) = verdicts(done).values()
    assert verdict["evidence"] == "raised Wordless: its text raised RuntimeError"


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
    ("command", "option"),
    [
        *(
            (one, "--output")
            for one in ("check", "matrix", "doctor", "inspect", "perturb", "races")
        ),
        *((one, "--html") for one in ("check", "matrix")),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    command, option, path, reason, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("as it was")
    work = {
        "check": ["simulated"],
        "matrix": ["--from", str(MATRIX)],
        "doctor": [],
        "inspect": ["nothing:there"],
        "perturb": ["--", "touch", "ran"],
        "races": ["--", "touch", "ran"],
    }
    assert main([command, option, path, *work[command]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err
    assert [one.name for one in tmp_path.iterdir()] == ["a_file"]
    assert main(["doctor", "--output", "a_file"]) in (0, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_what_was_found_is_shown_where_the_page_cannot_be_written(run):
    pytest.importorskip("jinja2", reason="the pages need the extra cli")
    done = run("check", "hostile:Noisy", "--only", "cai-shape", "--html", "/dev/full")
    assert done.returncode == 2
    assert "1 passed" in done.stdout
    assert done.stderr.splitlines()[-1] == ("cai-bridge check: /dev/full: No space left on device")
    done = run("matrix", "--from", str(MATRIX), "--html", "/dev/full", "--output", "/dev/full")
    assert done.returncode == 2
    assert "torch -> cupy" in done.stdout
    assert "/dev/full: No space left on device; /dev/full: No space" in done.stderr


def test_the_page_is_written_where_nobody_reads_the_output(tmp_path):
    pytest.importorskip("jinja2", reason="the pages need the extra cli")
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "cai_bridge", "matrix", "--from", MATRIX, "--html", page]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert page.exists()


def test_the_simulated_device_that_is_in_place_is_judged_on(capfd):
    with simulated_cuda(check=False) as cuda:
        first = cuda.stream().handle + 1
        assert main(["check", "simulated", "--role", "producer", "--only", "dlpack-pending"]) == 0
        assert SimulatedCuda.current() is cuda
        assert cuda.stream().handle > first
    assert "1 passed" in capfd.readouterr().out


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_standard_stream_may_be_closed(closed, place):
    number = {"stdout": 1, "stderr": 2}[closed]
    done = subprocess.run(
        [sys.executable, "-m", "cai_bridge", "check", "simulated", "--only", "cai-shape"],
        capture_output=True,
        check=False,
        cwd=place,
        timeout=100,
        preexec_fn=lambda: os.close(number),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"1 passed" in done.stdout) == (closed == "stderr")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["doctor"], "[Errno 28] No space left on device"),
        (
            ["check", "simulated", "--only", "cai-shape", "--html", "/dev/full"],
            "/dev/full: No space left on device",
        ),
    ],
    ids=["alone", "and a page that cannot be written"],
)
def test_a_full_disk_is_told_in_a_line(place, command, told):
    # What is not printed at once is flushed again at the interpreter's end.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cai_bridge", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            cwd=place,
            env=buffered,
            timeout=100,
        )
    assert done.returncode == 2
    assert done.stderr.decode() == f"cai-bridge {command[0]}: {told}\n"


def test_a_report_of_nothing_is_no_success(run):
    done = run("check", "cli_subjects:make", "--only", "cai-readonly")
    assert done.returncode == 2
    told = "nothing was judged: every requirement was skipped; the report says why"
    assert done.stderr == f"cai-bridge check: {told}\n"
    assert "0 passed, 0 failed, 1 skipped: nothing was judged" in done.stdout
