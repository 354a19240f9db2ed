"""What the command writes: to a terminal, to a file, as JSON, and before it starts anything."""

from __future__ import annotations

import json
import re
import sys
import time

import pytest
from test_cli import MATRIX
from test_cli_progress import Terminal

from cai_bridge._cli import checking, doctor, inspection, libraries, matrix, progress, table
from cai_bridge._cli.advice import Advice
from cai_bridge._cli.command import main
from cai_bridge._cli.libraries import Doors, Found
from cai_bridge._cli.machine import Driver, this_interpreter
from cai_bridge.conformance.matrix import Aspect, Cell, Matrix

NAME = "Gerät"
ESCAPE = re.compile("\x1b\\[[0-9;]*m")

# --- JSON -----------------------------------------------------------------------------------------


@pytest.fixture
def named(monkeypatch, tmp_path):
    """Every part of the command tells of something whose name is not ASCII."""
    matrix = {**json.loads(MATRIX.read_text("utf-8")), "place": NAME}
    (tmp_path / "matrix.json").write_text(json.dumps(matrix))
    monkeypatch.setattr(doctor, "find_driver", lambda: Driver("13.0", (NAME,)))
    monkeypatch.setattr(inspection, "inspect", lambda subject: Told())
    (tmp_path / "umlaut.py").write_text(f"from cli_subjects import make as {NAME}\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


class Told:
    """Stands in for what was found of an array."""

    is_wrong = False

    def to_dict(self):
        return {"why": NAME}


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
    if arguments[0] == "check":
        # The name is that of the factory, which the file that defines it has to have.
        (named / "umlaut.py").write_text(
            f"import cli_subjects\ndef {NAME}(shape, dtype):\n"
            "    return cli_subjects.make(shape, dtype)\n"
        )
        sys.modules.pop("umlaut", None)
    assert main([*arguments, "--json"]) == 0
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert NAME in str(json.loads(printed))
    assert main([*arguments, "--json", "--output", "written.json"]) == 0
    written = (named / "written.json").read_text("utf-8")
    assert NAME in written
    assert json.loads(written) == json.loads(printed)


# --- before anything is run -----------------------------------------------------------------------


@pytest.mark.parametrize("command", [["check", "simulated"], ["matrix", "simulated"]])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--output", ""], "--output: got no path; allowed: one"),
        (["--html", ""], "--html: got no path; allowed: one"),
        (["--html", "page.html"], "--html needs Jinja, which is not installed"),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_a_run_of_minutes(
    command, flags, said, monkeypatch, capsys
):
    run = []
    monkeypatch.setattr(checking, "judged", lambda *what: run.append(what) or [])
    monkeypatch.setattr(matrix, "_run", lambda *what: run.append(what))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main([*command, *flags]) == 2
    assert said in capsys.readouterr().err
    assert run == []


def test_text_needs_no_template_library(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["check", "cli_subjects:make", "--only", "cai-shape", "--simulated"]) == 0
    assert main(["matrix", "--from", str(MATRIX)]) == 0


# --- the doctor -----------------------------------------------------------------------------------


def findings(*advice):
    known = (Found("torch", "torch", "2.11.0", Doors(dlpack=True, cai=2)),)
    return doctor.Findings(this_interpreter(), Driver("13.0", ("a device",)), known, advice)


def advised(name, level, action="Do it."):
    return Advice(name, level, lambda surroundings: True, f"This is {name}.", action, "a text")


def test_the_doctor_tells_each_advice_under_its_level():
    text = str(findings(advised("first", "unsafe"), advised("second", "slow")))
    _, told = text.split("torch", 1)
    assert [line for line in told.splitlines() if line][1:] == [
        *("unsafe: a setting makes values wrong", "  - This is first.", "    -> Do it."),
        "slow: the host waits, or a conversion takes longer than needed",
        *("  - This is second.", "    -> Do it."),
    ]


def test_the_doctor_tells_what_a_library_speaks():
    (row,) = [line for line in str(findings()).splitlines() if line.startswith("torch")]
    assert row == "torch  torch 2.11.0  __dlpack__; CAI v2, no stream"


@pytest.mark.parametrize("before", range(60, 90, 3))
def test_what_is_to_be_typed_is_not_broken_at_its_hyphens(before):
    action = "x" * before + " pip-install-of-a-name --with-an-option"
    lines = str(findings(advised("it", "slow", action))).splitlines()
    assert {"pip-install-of-a-name", "--with-an-option"} <= {
        w for one in lines for w in one.split()
    }


def test_the_doctor_imports_nothing_unasked(monkeypatch):
    broken = libraries.Known("broken", ("numpy",), "no_such_module_at_all:Array")
    monkeypatch.setattr(libraries, "INSTALLABLE", (broken,))
    assert [one.error for one in doctor.examine().libraries] == [""]


# --- the matrix -----------------------------------------------------------------------------------


def a_table(consumers=("taker",), outcome="right"):
    cells = tuple(
        Cell("maker", one, "to_cai(x)", "cai", True, {"values": Aspect(outcome)})
        for one in consumers
    )
    return table.Table(
        Matrix("H200, driver 580.95", "2026", "0", {}, 1, ("maker",), consumers, cells)
    )


def test_each_cell_stands_under_the_name_of_its_consumer():
    consumers = ("a library of a rather long name", "short", "last")
    lines = matrix.plain(a_table(consumers)).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("All pairs by the bridge"))
    head, row = lines[at + 1 : at + 3]
    starts = [head.index(one) for one in consumers]
    assert [found.start() for found in re.finditer("R right", row)] == starts
    for one, following in zip(consumers, starts[1:], strict=False):
        assert head[head.index(one) + len(one) : following].strip() == ""
        assert following >= head.index(one) + len(one) + 2


def test_on_a_terminal_outcomes_have_colours_and_nothing_else_has(monkeypatch, capsys):
    pytest.importorskip("rich", reason="colours need the extra cli")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = a_table(outcome="wrong")
    matrix.show(shown)
    printed = capsys.readouterr().out
    assert ESCAPE.sub("", printed).splitlines() == matrix.plain(shown).splitlines()
    lines = printed.splitlines()
    assert lines[0] == "H200, driver 580.95"
    assert any("\x1b[1;31mW wrong" in line for line in lines)


def test_without_a_terminal_library_the_matrix_is_text(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    matrix.show(a_table())
    assert capsys.readouterr().out == matrix.plain(a_table()) + "\n"


@pytest.mark.parametrize(
    ("door", "bridged"), [("cai", "yes"), ("cai", 1), ("front", True), (["cai"], True)]
)
def test_a_file_whose_cells_are_of_no_side_is_refused(door, bridged, tmp_path, capsys):
    data = json.loads(MATRIX.read_text("utf-8"))
    data["cells"][0] |= {"door": door, "bridged": bridged}
    path = tmp_path / "matrix.json"
    path.write_text(json.dumps(data))
    assert main(["matrix", "--from", str(path)]) == 2
    assert f"{path}: got no matrix (" in capsys.readouterr().err


# --- progress -------------------------------------------------------------------------------------


def on_a_terminal(monkeypatch):
    """Put a terminal in the place of stderr, as no fixture can: each phase has its own."""
    pytest.importorskip("rich", reason="the bar needs the extra cli")
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm")
    return made


def test_a_bar_is_wiped_when_all_is_done(monkeypatch):
    terminal = on_a_terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with progress.Progress(3) as bar:
        bar.step("the only step")
        end = time.monotonic() + 10
        while "the only step" not in terminal.text and time.monotonic() < end:
            time.sleep(0.01)
    _, _, behind = terminal.text.rpartition("the only step")
    assert "\x1b[1A\x1b[2K" in behind


def test_no_bar_comes_after_the_end(monkeypatch):
    terminal = on_a_terminal(monkeypatch)
    with progress.Progress(3) as bar:
        bar.step("the only step")
    # As a timer does that was running just then.
    bar._show()
    assert terminal.text == ""


def test_what_is_over_soon_leaves_no_thread_behind(monkeypatch):
    on_a_terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY", 60.0)
    with progress.Progress(3) as bar:
        assert bar._timer.is_alive()
    bar._timer.join(10)
    assert not bar._timer.is_alive()
