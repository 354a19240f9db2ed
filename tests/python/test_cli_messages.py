"""The command's JSON, in a file and printed, and its progress bar."""

from __future__ import annotations

import json
import sys
import time

import pytest
from test_cli import MATRIX

from cai_bridge._cli import checking, doctor, inspection, progress
from cai_bridge._cli.command import main
from cai_bridge._cli.machine import Driver
from cai_bridge.conformance import isolated

NAME = "Gerät"


class Told:
    """Stands in for what was found of an array."""

    is_wrong = False

    def to_dict(self):
        return {"why": NAME}


@pytest.fixture
def named(monkeypatch, tmp_path):
    """Every part of the command tells of something whose name is not ASCII."""
    matrix = {**json.loads(MATRIX.read_text("utf-8")), "place": NAME}
    (tmp_path / "matrix.json").write_text(json.dumps(matrix))
    monkeypatch.setattr(doctor, "find_driver", lambda: Driver("13.0", (NAME,)))
    monkeypatch.setattr(inspection, "inspect", lambda subject: Told())
    # The name is that of the factory, which the file that defines it has to have.
    (tmp_path / "umlaut.py").write_text(
        f"import cli_subjects\ndef {NAME}(shape, dtype):\n"
        "    return cli_subjects.make(shape, dtype)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"],
        ["inspect", "umlaut:x"],
        ["check", "umlaut:" + NAME, "--only", "cai-shape", "--simulated"],
        ["matrix", "--from", "matrix.json"],
    ],
)
def test_json_is_ascii_where_it_is_printed_and_utf_8_in_a_file(
    arguments, named, capsys, monkeypatch
):
    monkeypatch.chdir(named)
    assert main([*arguments, "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert NAME in str(json.loads(printed))
    assert main([*arguments, "--json", "--output", "written.json"]) == 0
    written = (named / "written.json").read_text("utf-8")
    assert NAME in written
    assert json.loads(written) == json.loads(printed)


class Terminal:
    """Stands in for stderr on a terminal."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass


@pytest.fixture
def terminal(monkeypatch):
    """A terminal in the place of stderr, for the body of the test: pytest puts its own there."""

    def put():
        pytest.importorskip("rich", reason="the bar needs the extra cli")
        made = Terminal()
        monkeypatch.setattr(sys, "stderr", made)
        monkeypatch.setenv("TERM", "xterm")
        return made

    return put


@pytest.mark.parametrize(("delay", "shown"), [(0.0, True), (30.0, False)])
def test_a_bar_is_shown_on_a_terminal_after_a_while_and_wiped_at_the_end(
    delay, shown, terminal, monkeypatch
):
    screen = terminal()
    monkeypatch.setattr(progress, "DELAY", delay)
    with progress.Progress(3) as bar:
        bar.step("the first")
        end = time.monotonic() + 10
        while shown and bar._bar is None and time.monotonic() < end:
            time.sleep(0.01)
        bar.step("the second [of two]")
    assert ("the second [of two]" in screen.text) == shown
    if shown:
        assert "\x1b[1A\x1b[2K" in screen.text.rpartition("the second [of two]")[2]
    # What is over soon leaves no thread behind, and no bar comes after the end, as a timer shows
    # one that was running just then.
    bar._timer.join(10)
    assert not bar._timer.is_alive()
    before = screen.text
    bar._show()
    assert screen.text == before


class Bar:
    """Stands in for the bar, and keeps what it was told."""

    def __init__(self):
        self.told = []

    def update(self, task, **what):
        self.told.append(what)

    def stop(self):
        self.told.append("stopped")


def test_the_bar_counts_what_is_done():
    with progress.Progress(3) as counted:
        counted.step("the first")
        counted._bar = bar = Bar()
        counted.step("the second")
        assert counted.label == "the second"
        counted.step("the third")
        counted.done(7, 9, "something else")
    assert bar.told == [
        {"completed": 1, "description": "the second"},
        {"completed": 2, "description": "the third"},
        {"completed": 7, "total": 9, "description": "something else"},
        "stopped",
    ]


def test_a_bar_that_comes_late_begins_where_it_is(terminal):
    terminal()
    counted = progress.Progress(3)
    counted.step("the first")
    counted.step("the second")
    counted._show()
    (task,) = counted._bar.tasks
    counted._bar.stop()
    assert (task.completed, task.total, task.description) == (1, 3, "the second")
    counted = progress.Progress(None)
    counted.done(7, 9, "of a row")
    counted._show()
    (task,) = counted._bar.tasks
    counted._bar.stop()
    assert (task.completed, task.total, task.description) == (7, 9, "of a row")


def test_check_tells_what_is_judged_next(monkeypatch, capsys):
    told = []
    monkeypatch.setattr(checking.Progress, "step", lambda self, label: told.append(label))
    names = ["--only", "cai-shape", "--only", "cai-data"]
    assert main(["check", "cli_subjects:make", *names, "--simulated"]) == 0
    assert told == ["make as a producer: cai-shape", "make as a producer: cai-data"]


def test_an_interruption_says_what_it_was_at(monkeypatch, capsys):
    def hang(role, subject, *, progress, **more):
        progress("cai-readonly")
        raise KeyboardInterrupt

    monkeypatch.setattr(isolated, "check_isolated", hang)
    assert main(["check", "cli_subjects:make", "--simulated"]) == 130
    said = capsys.readouterr().err
    assert said == "cai-bridge check: interrupted at make as a producer: cai-readonly\n"


def test_where_there_is_no_terminal_there_is_no_bar(monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with progress.Progress(1) as bar:
        bar.step("the only one")
        assert not bar._timer.is_alive()
