"""The matrix as a whole: what it counts, names and clears away; its program, and its processes."""

from __future__ import annotations

import fcntl
import io
import json
import subprocess
import sys
import time
import warnings
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import pytest
from matrix_libraries import Heedless, OldDict, Producer, device, lab

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


def test_nothing_is_left_behind_where_a_consumer_refuses_too_late(lab):
    queued = []

    class ReadsAndRefuses(Heedless):
        def take(self, x):
            region, _ = super().take(x)
            # On a stream that nothing orders behind the write.
            queued.append(self.stream().read(region))
            raise BufferError("not today")

    matrix = run_matrix([OldDict], [ReadsAndRefuses], lab=lab, aspects=["handover"])
    assert {one["handover"].outcome for one in matrix.cells} == {"refused"}
    assert len(queued) == len(ROUTES)
    assert all(one.done for one in queued)
    assert lab.reports() == []


def test_what_libraries_warn_of_is_no_refusal(lab):
    class Warns(Heedless):
        def take(self, x):
            warnings.warn("slow", stacklevel=1)
            return super().take(x)

    matrix = run_matrix([Producer], [Warns], lab=lab, aspects=["values"])
    assert {one["values"].outcome for one in matrix.cells} == {"right"}


class Other(Producer):
    """Is called as no subject is."""

    name = "tvm-ffi"


ROW = ["--producer", "test_matrix_program:Other", "--consumer", "simulated", "--way", "native"]


@pytest.mark.parametrize("option", ["--producer", "--consumer", "--json"])
def test_the_program_says_what_it_needs(option, capsys):
    needed = {"--producer": "simulated", "--consumer": "simulated", "--json": "row.json"}
    del needed[option]
    with pytest.raises(SystemExit) as ended:
        __main__.main([word for pair in needed.items() for word in pair])
    assert ended.value.code == 2
    assert f"required: {option}" in capsys.readouterr().err


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


def test_a_crash_in_the_middle_of_a_pair_costs_the_rest_of_it(monkeypatch):
    matrix, made, told = of_children(monkeypatch, ["simulated"], rights=2, code=-11)
    assert [one.route for one in matrix.cells] == [route.name for route in ROUTES]
    assert [one["values"].outcome for one in matrix.cells] == ["right"] * 2 + ["crashed"] * 5
    assert matrix.cells[2]["values"].detail == "the process ended by SIGSEGV"
    assert told == list(matrix.cells)
    assert len(made) == 1


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
