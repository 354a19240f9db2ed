"""The matrix with its rows in processes of their own, and the program that each of them runs."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import pytest
from matrix_libraries import CONVERT, Heedless, Producer, device, lab

from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.matrix import (
    ROUTES,
    Aspect,
    Cell,
    Matrix,
    __main__,
    run_isolated,
    run_matrix,
)
from cai_bridge.conformance.matrix.versions import versions_of

__all__ = ["device", "lab"]
HERE = Path(__file__).parent


class Crashes(Heedless):
    """Ends the process by CAI; has another name than the one that it is found by."""

    name = "my library"

    def take(self, x):
        if not hasattr(type(x), "__dlpack__"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().take(x)


class Hangs(Heedless):
    """Never comes back."""

    name = "test_matrix_processes:Hangs"

    def take(self, x):
        signal.pause()


@pytest.fixture
def importable(monkeypatch):
    monkeypatch.syspath_prepend(HERE)


class Noted(simulated.Consumer):
    """Takes its time, and notes when."""

    name = "test_matrix_processes:Noted"

    def convert(self, x, stream, *, readonly=None):
        with Path(os.environ["TEST_MATRIX_JOURNAL"]).open("a") as file:
            print("begin", os.getpid(), file=file, flush=True)
            time.sleep(0.3)
            print("end", os.getpid(), file=file)
        return super().convert(x, stream, readonly=readonly)


def test_a_crash_costs_the_rest_of_a_pair(importable):
    seen = []
    matrix = run_isolated(
        ["simulated"],
        ["simulated", "test_matrix_processes:Crashes", "simulated"],
        aspects=["values"],
        progress=lambda *said: seen.append(said),
    )
    assert [one["values"].outcome for one in matrix.cells] == [
        *["right"] * 7,
        *["crashed"] * 7,
        *["right"] * 7,
    ]
    first, second = matrix.cells[7:9]
    assert first["values"].detail.startswith("the process ended by SIGKILL")
    assert second["values"].detail == "an earlier route ended the process"
    assert [done for done, _, _ in seen] == list(range(1, 22))
    assert matrix.consumers == ("simulated", "my library", "simulated")
    assert {one.consumer for one in matrix.cells[7:14]} == {"my library"}


def test_rows_that_start_at_once_judge_one_after_another(importable, tmp_path, monkeypatch):
    journal = tmp_path / "journal"
    monkeypatch.setenv("TEST_MATRIX_JOURNAL", str(journal))
    consumers = ["test_matrix_processes:Noted", "simulated"]
    seen = []
    matrix = run_isolated(
        ["simulated", "to_cai(simulated)"],
        consumers,
        aspects=["values"],
        ways=["convert"],
        jobs=2,
        progress=lambda *said: seen.append(said),
    )
    assert [(one.producer, one.consumer, one.route) for one in matrix.cells] == [
        (producer, consumer, CONVERT)
        for producer in ("simulated", "to_cai(simulated)")
        for consumer in consumers
    ]
    assert {one["values"].outcome for one in matrix.cells} == {"right"}
    assert [(done, count) for done, count, _ in seen] == [(n, 4) for n in range(1, 5)]
    # Who began has ended before the other begins.
    begun = [line.split() for line in journal.read_text().splitlines()]
    assert [word for word, _ in begun] == ["begin", "end"] * 2
    assert len({process for _, process in begun}) == 2


class Waits(Heedless):
    """Goes on when a file is there: so that it can be seen how far it is told to be."""

    name = "test_matrix_processes:Waits"

    def take(self, x):
        if hasattr(type(x), "__dlpack__"):
            while not Path(os.environ["TEST_MATRIX_GOES_ON"]).exists():
                time.sleep(0.02)
        return super().take(x)


@pytest.mark.parametrize("jobs", [1, 2])
def test_cells_are_told_while_their_row_is_run(jobs, importable, monkeypatch, tmp_path):
    goes_on = tmp_path / "goes-on"
    monkeypatch.setenv("TEST_MATRIX_GOES_ON", str(goes_on))
    seen = []

    def told(count, total, cell):
        seen.append((count, total, cell, goes_on.exists()))
        goes_on.touch()

    producers = ["simulated", "to_cai(simulated)"][:jobs]
    matrix = run_isolated(
        producers, ["test_matrix_processes:Waits"], aspects=["values"], jobs=jobs, progress=told
    )
    count = jobs * len(ROUTES)
    assert [said[:2] for said in seen] == [(number, count) for number in range(1, count + 1)]
    # Either row may be the first, and each is told in its order.
    for producer in producers:
        row = [cell for cell in matrix.cells if cell.producer == producer]
        assert [cell for _, _, cell, _ in seen if cell.producer == producer] == row
    # The second waits for what is done when the first is told.
    assert not seen[0][3]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_ends_the_processes(jobs, importable, monkeypatch):
    children = []
    begin = subprocess.Popen

    def begun(*arguments, **more):
        children.append(begin(*arguments, **more))
        return children[-1]

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", begun)
    producers = ["simulated", "to_cai(simulated)"]
    consumers = ["simulated", "test_matrix_processes:Hangs"]
    with pytest.raises(KeyboardInterrupt):
        run_isolated(producers, consumers, aspects=["values"], jobs=jobs, progress=interrupt)
    # Else each would hang until its limit.
    assert 1 <= len(children) <= jobs
    assert {child.returncode for child in children} == {-signal.SIGKILL}


def test_a_row_that_cannot_begin_is_a_mistake():
    with pytest.raises(ValueError, match="abacus"):
        run_isolated(["abacus"], ["simulated"])
    for producers, consumers in (([], ["simulated"]), (["simulated"], [])):
        with pytest.raises(ValueError, match="got none; allowed: one or more"):
            run_isolated(producers, consumers)


class Other(Producer):
    """Is called as no subject is."""

    name = "tvm-ffi"


ROW = ["--producer", "test_matrix_processes:Other", "--consumer", "simulated", "--way", "native"]


def test_the_file_says_names_versions_and_rounds_as_its_cells_do(device, tmp_path, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "1.2")
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    path = tmp_path / "row.json"
    assert __main__.main([*ROW, "--aspect", "handover", "--rounds", "3", "--json", str(path)]) == 0
    matrix = Matrix.from_dict(json.loads(path.read_text()))
    assert {one.producer for one in matrix.cells} == set(matrix.producers)
    assert set(matrix.versions) == {"apache-tvm-ffi", "numpy", "ml_dtypes"}
    assert {matrix.rounds, *(one["handover"].rounds for one in matrix.cells)} == {3}
    # Nobody waits for the end of the program to read them.
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(b"1/2 tvm-ffi -> simulated, x by CAI: handover ")


def test_versions_are_of_the_libraries_that_are_named(lab, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "1.2")
    assert set(versions_of(["torch", "to_cai(tvm-ffi)"])) == {
        *("torch", "apache-tvm-ffi", "numpy", "ml_dtypes")
    }
    assert set(versions_of(["simulated", "module:torch"])) == {"numpy", "ml_dtypes"}
    consumer = simulated.Consumer()
    consumer.name = "torch"
    matrix = run_matrix([Other()], [consumer], lab=lab, aspects=["values"])
    assert set(matrix.versions) == {"apache-tvm-ffi", "torch", "numpy", "ml_dtypes"}


def test_an_interrupted_program_leaves_what_it_is_about(device, tmp_path, monkeypatch):
    path, turn = tmp_path / "row.json", tmp_path / "turn"

    def interrupt(consumer, x):
        # Nobody else can judge meanwhile.
        with turn.open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        raise KeyboardInterrupt

    monkeypatch.setattr(metadata, "version", lambda name: "1.2")
    monkeypatch.setattr(simulated.Consumer, "take", interrupt)
    monkeypatch.setattr(__main__, "producer_named", lambda name: Other())
    asked = ["--producer", "tvm-ffi", *ROW[2:], "--aspect", "values", "--json", str(path)]
    with pytest.raises(KeyboardInterrupt):
        __main__.main([*asked, "--turn", str(turn)])
    matrix = Matrix.from_dict(json.loads(path.read_text()))
    assert "apache-tvm-ffi" in matrix.versions
    assert matrix.cells == ()


class Child:
    """A process of a row: writes the first cells of its row, and ends, or is ended."""

    made = ()
    rights = 0
    """How many of the cells it writes."""
    code = 0
    last = 0
    """How many it writes while it is being ended."""

    def __init__(self, command, **more):
        type(self).made = (*self.made, command)
        assert len(self.made) < 10
        self.path = Path(command[command.index("--json") + 1])
        said = list(pairwise(command))
        (self.producer,) = [value for name, value in said if name == "--producer"]
        consumers = [value for name, value in said if name == "--consumer"]
        self.cells = [
            Cell(self.producer, one, r.name, r.door, r.bridged, {"values": Aspect("right")})
            for one in consumers
            for r in ROUTES
        ]
        self.write(self.rights)

    def write(self, count):
        cells = tuple(self.cells[:count])
        made = Matrix("here", "today", "0", {}, 1, (self.producer,), ("simulated",), cells)
        self.path.write_text(made.to_json())

    def wait(self, timeout=None):
        if self.code is None and timeout is not None:
            time.sleep(timeout)
            raise subprocess.TimeoutExpired("child", timeout)
        return self.code

    def kill(self):
        self.write(self.rights + self.last)


def of_children(monkeypatch, producers, jobs=1, limit_s=60.0, **how):
    """A matrix whose processes are children, how they were begun, and what was told."""
    kind, told = type("Begun", (Child,), how), []
    monkeypatch.setattr(subprocess, "Popen", kind)
    matrix = run_isolated(
        producers,
        ["simulated"],
        aspects=["values"],
        jobs=jobs,
        limit_s=limit_s,
        progress=lambda done, count, cell: told.append(cell),
    )
    return matrix, kind.made, told


def test_what_a_process_writes_last_is_told_and_the_limit_is_for_all_at_once(monkeypatch):
    matrix, _, told = of_children(
        monkeypatch, ["one", "two"], jobs=2, limit_s=0.5, rights=1, last=1, code=None
    )
    assert [one["values"].outcome for one in matrix.cells] == [
        *["right", "right", *["crashed"] * 5] * 2
    ]
    assert matrix.cells[2]["values"].detail == "the process was ended after 1 s"
    for producer in ("one", "two"):
        row = [one for one in matrix.cells if one.producer == producer]
        assert [one for one in told if one.producer == producer] == row


def test_a_row_that_cannot_begin_ends_the_others_at_once(monkeypatch):
    class Absent(Child):
        def __init__(self, command, **more):
            super().__init__(command, **more)
            if self.producer == "absent":
                self.code = 2
                self.path.unlink()

        def kill(self):
            pass

    monkeypatch.setattr(subprocess, "Popen", type("Begun", (Absent,), {"code": None}))
    start = time.monotonic()
    with pytest.raises(ValueError, match="got 'absent'"):
        run_isolated(["hangs", "absent"], ["simulated"], jobs=2, limit_s=5.0)
    assert time.monotonic() - start < 5.0
