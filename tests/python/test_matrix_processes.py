"""The matrix with its rows in processes of their own: crashes, hangs and interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from matrix_libraries import CONVERT, Heedless

from cai_bridge.conformance.libraries import simulated
from cai_bridge.conformance.matrix import ROUTES, run_isolated

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
