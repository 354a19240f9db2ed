"""`cai-bridge perturb`: what it started ends with it, by whatever signal it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from perturbing import needs

pytestmark = needs

PROGRAM = """
import os, pathlib, subprocess, sys, time
children = [subprocess.Popen(["sleep", "60"], start_new_session=own) for own in (False, True)]
said = pathlib.Path(sys.argv[1])
said.with_suffix(".part").write_text(" ".join(map(str, [os.getpid(), *(c.pid for c in children)])))
said.with_suffix(".part").rename(said)
time.sleep(60)
"""


def until(holds):
    end = time.monotonic() + 30
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.01)
    return held


def lives(process):
    """Whether it runs; one that nobody has asked for its status has ended too."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def started(folder, *before, options=()):
    """Start the command, and return it and the processes of its program."""
    said, temporary = folder / "said", folder / "temporary"
    temporary.mkdir()
    command = [*before, sys.executable, "-m", "cai_bridge", "perturb", *options, "--"]
    perturb = subprocess.Popen(
        [*command, sys.executable, "-c", PROGRAM, str(said)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert until(said.exists)
    return perturb, [int(one) for one in said.read_text().split()]


def assert_all_ended(processes):
    try:
        assert until(lambda: not any(map(lives, processes)))
    finally:
        for one in filter(lives, processes):
            os.kill(one, signal.SIGKILL)


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGINT", "SIGUSR1"])
@pytest.mark.parametrize("times", [1, 200])
def test_its_program_and_what_that_started_end_with_it(number, times, tmp_path):
    perturb, processes = started(tmp_path)
    sent = signal.Signals[number]
    for _ in range(times):
        perturb.send_signal(sent)
        time.sleep(0.0005)
    out, errors = perturb.communicate(timeout=30)
    assert_all_ended(processes)
    assert not list((tmp_path / "temporary").iterdir())
    assert out == ""
    ends = [130, -sent] if sent == signal.SIGINT else [-sent]
    # A second interrupt may meet the command while it says that there was one.
    assert times > 1 or perturb.returncode in ends, errors


def test_a_signal_that_is_ignored_ends_nothing(tmp_path):
    perturb, processes = started(tmp_path, "nohup")
    perturb.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert all(map(lives, processes))
    perturb.terminate()
    perturb.communicate(timeout=30)
    assert_all_ended(processes)


def test_a_child_in_a_session_of_its_own_ends_with_a_program_that_takes_too_long(tmp_path):
    perturb, processes = started(tmp_path, options=["--timeout", "2"])
    out, errors = perturb.communicate(timeout=30)
    assert_all_ended(processes)
    assert "ended after 2.0 s" in out, errors
