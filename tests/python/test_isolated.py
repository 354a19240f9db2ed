"""Judging in a child process: what ends the process is a verdict, and the rest is judged."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cai_bridge.conformance import check_producer, isolated, requirements
from cai_bridge.conformance.isolated import check_isolated


@pytest.fixture(autouse=True)
def a_library_that_dies(tmp_path, monkeypatch):
    (tmp_path / "dying.py").write_text(
        """
import os, time
import producers

class Aborting(producers.Library):
    def readonly(self, array):
        print("about to end", flush=True)
        os.abort()

class Hanging(producers.Library):
    def readonly(self, array):
        time.sleep(60)

class Lingering(producers.Library):
    def readonly(self, array):
        import atexit
        atexit.register(time.sleep, 60)
        print(b"\\xff".decode("latin-1"))
        os.write(1, b"\\xff")
        return super().readonly(array)

class Dead(producers.Library):
    def __init__(self):
        os._exit(3)

class Raising(producers.Library):
    def __init__(self):
        raise RuntimeError("out of luck")

class Interrupted(producers.Library):
    def __init__(self):
        raise KeyboardInterrupt

class Leaving(producers.Library):
    def make(self, shape, dtype):
        import atexit
        atexit.register(self.leave)
        return super().make(shape, dtype)

    def leave(self):
        time.sleep(0.3)
        with open("left", "w") as file:
            file.write("at its leisure")
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.syspath_prepend(Path(__file__).parent.parent)


def test_the_verdicts_are_those_of_this_process():
    import producers

    apart = check_isolated("producer", "producers:ListedShape", where="simulated")
    here = check_producer(producers.ListedShape)
    assert [(one.name, one.outcome) for one in apart.verdicts] == [
        (one.name, one.outcome) for one in here.verdicts
    ]
    assert apart.failed[0].evidence == here.failed[0].evidence
    assert apart.place == here.place
    assert apart.subject == here.subject


def test_what_ends_the_process_costs_the_requirements_that_meet_it_and_is_one_cause():
    judged = []
    report = check_isolated("producer", "dying:Aborting", where="simulated", progress=judged.append)
    ended = [one for one in report.failed if one.name != "exchange-errors"]
    names = {one.name for one in ended}
    assert names >= {"cai-readonly", "dlpack-readonly", "exchange-readonly"}
    assert len(names - report.follows.keys()) == 1
    for one in ended:
        assert "SIGABRT" in one.evidence
        assert "about to end" in one.evidence
        assert "producer_named('dying:Aborting')" in one.program
        assert "open_lab('simulated')" in one.program
    assert [one.name for one in report.verdicts] == [one.name for one in requirements("producer")]
    # What is told is what begins, so that the last is what ended it.
    assert judged == [one.name for one in report.verdicts]
    for one in ended:
        assert one.traceback.splitlines()[0].endswith("(most recent call first):")
        assert "dying.py" in one.traceback.splitlines()[1]
        assert one.traceback.splitlines()[1].endswith("in readonly")
        assert len(one.traceback.splitlines()) == 2


def test_what_does_not_end_is_ended():
    start = time.monotonic()
    report = check_isolated(
        "producer", "dying:Hanging", where="simulated", only="cai-readonly", limit_s=5
    )
    assert "more than 5 s" in report["cai-readonly"].evidence
    assert "dying.py" in report["cai-readonly"].traceback
    assert "Fatal Python error" not in report["cai-readonly"].evidence
    assert time.monotonic() - start < 30


def test_a_child_that_does_not_leave_is_ended_and_its_verdicts_are_kept(monkeypatch):
    monkeypatch.setattr(isolated, "_LAST_WORDS_S", 1.0)
    start = time.monotonic()
    report = check_isolated(
        "producer", "dying:Lingering", where="simulated", only="cai-readonly", limit_s=5
    )
    import producers

    here = check_producer(producers.Library, only="cai-readonly")
    assert report["cai-readonly"].outcome == here["cai-readonly"].outcome
    assert time.monotonic() - start < 30


def children():
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_an_interruption_ends_the_child():
    others, started = children(), set()

    def interrupt(name):
        started.update(children() - others)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_isolated("producer", "dying:Hanging", where="simulated", progress=interrupt)
    assert started
    assert not started & children()


def test_a_child_that_is_done_may_leave_in_its_own_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = check_isolated("producer", "dying:Leaving", only="cai-shape")  # judged where it can be
    assert report["cai-shape"].outcome == "passed"
    assert (tmp_path / "left").read_text() == "at its leisure"


@pytest.mark.parametrize(
    ("subject", "only", "error", "said"),
    [
        # No endless loop.
        ("Dead", "cai-shape", RuntimeError, "did not begin: exit code 3"),
        ("Interrupted", "cai-shape", RuntimeError, "did not begin: SIGINT"),
        ("Raising", "cai-shape", ValueError, "dying:Raising', which raised RuntimeError: out of"),
        ("Nothing", "cai-shape", ValueError, "got 'dying:Nothing'"),
        ("Aborting", "no-such-requirement", ValueError, "allowed: cai-entries"),
    ],
)
def test_a_child_that_cannot_begin_is_an_error(subject, only, error, said):
    with pytest.raises(error, match=said):
        check_isolated("producer", f"dying:{subject}", only=only)
