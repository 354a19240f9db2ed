"""The progress bar of the command."""

from __future__ import annotations

import sys

import pytest

from cai_bridge._cli.command import main


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


@pytest.mark.parametrize(("delay", "shown"), [(0.0, True), (30.0, False)])
def test_a_bar_is_shown_on_a_terminal_after_a_while(delay, shown, monkeypatch):
    import time

    from cai_bridge._cli import progress

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "DELAY", delay)
    monkeypatch.setenv("TERM", "xterm")
    with progress.Progress(3) as bar:
        bar.step("the first")
        end = time.monotonic() + 10
        while shown and bar._bar is None and time.monotonic() < end:
            time.sleep(0.01)
        bar.step("the second [of two]")
    assert ("the second [of two]" in terminal.text) == shown


class Bar:
    """Stands in for the bar, and keeps what it was told."""

    def __init__(self):
        self.told = []

    def update(self, task, **what):
        self.told.append(what)

    def stop(self):
        self.told.append("stopped")


def test_the_bar_counts_what_is_done():
    from cai_bridge._cli import progress

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


def test_a_bar_that_comes_late_begins_where_it_is(monkeypatch):
    from cai_bridge._cli import progress

    monkeypatch.setattr(sys, "stderr", Terminal())
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
    from cai_bridge._cli import checking

    told = []
    monkeypatch.setattr(checking.Progress, "step", lambda self, label: told.append(label))
    names = ["--only", "cai-shape", "--only", "cai-data"]
    assert main(["check", "cli_subjects:make", *names, "--simulated"]) == 0
    assert told == ["make as a producer: cai-shape", "make as a producer: cai-data"]


def test_an_interruption_says_what_it_was_at(monkeypatch, capsys):
    from cai_bridge.conformance import isolated

    def hang(role, subject, *, progress, **more):
        progress("cai-readonly")
        raise KeyboardInterrupt

    monkeypatch.setattr(isolated, "check_isolated", hang)
    assert main(["check", "cli_subjects:make", "--simulated"]) == 130
    said = capsys.readouterr().err
    assert said == "cai-bridge check: interrupted at make as a producer: cai-readonly\n"


def test_where_there_is_no_terminal_there_is_no_bar(monkeypatch):
    from cai_bridge._cli import progress

    monkeypatch.setattr(progress, "DELAY", 0.0)
    with progress.Progress(1) as bar:
        bar.step("the only one")
        assert not bar._timer.is_alive()
