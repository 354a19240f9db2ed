"""The command `matrix`: what it runs, shows, writes and refuses."""

from __future__ import annotations

import copy
import functools
import json
import random
import re
import sys
from typing import get_args

import pytest
from test_cli import MATRIX

from cai_bridge._cli import libraries, matrix, matrix_page, table
from cai_bridge._cli.command import main
from cai_bridge._cli.libraries import INSTALLABLE, Found
from cai_bridge._cli.marks import OUTCOMES
from cai_bridge.conformance.matrix import ASPECTS, ROUTES, WAYS, Aspect, Cell, Matrix, Outcome

PAIR = ("a", "b")
# Each route by its first letters.
NAMED = {
    "cai": ("x by CAI", "cai", False),
    "dlpack": ("x by DLPack", "dlpack", False),
    "to_cai": ("to_cai(x)", "cai", True),
    "from_cai": ("from_cai(x)", "dlpack", True),
    "convert": ("convert(x, library)", "convert", True),
}


def a_matrix(**routes):
    """A table of one pair: the outcome of each route's values, or of several aspects."""
    cells = []
    for route, outcomes in routes.items():
        said = {"values": outcomes} if isinstance(outcomes, str) else outcomes
        aspects = {name: Aspect(outcome, f"{name} told") for name, outcome in said.items()}
        cells.append(Cell(*PAIR, *NAMED[route], aspects))
    return table.Table(Matrix("here", "2026", "0", {}, 1, ("a",), ("b",), tuple(cells)))


def of_all_sides():
    return a_matrix(cai="wrong", to_cai="waits", from_cai="refused", convert="right")


def test_matrix_runs_one_way_in_several_processes(tmp_path, monkeypatch, capsys):
    written = tmp_path / "matrix.json"
    told = []
    monkeypatch.setattr(matrix.Progress, "done", lambda self, *what: told.append(what))
    asked = ["matrix", "simulated", "to_cai(simulated)", "--way", "convert", "--jobs", "2"]
    assert main([*asked, "--json", "--output", str(written)]) == 0
    assert capsys.readouterr().out == ""
    made = Matrix.from_dict(json.loads(written.read_text("utf-8")))
    assert [(one.producer, one.route) for one in made.cells] == [
        ("simulated", "convert(x, library)"),
        ("to_cai(simulated)", "convert(x, library)"),
    ]
    shown = table.Table(made)
    assert [shown.by_convert(pair) for pair in shown.pairs] == ["right", "right"]
    assert shown.sides == ["native", "views", "convert"]
    assert main(["matrix", "--from", str(written)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert grids(lines) == {
        "by themselves, on the best route": [["\u2013 none"], ["\u2013 none"]],
        "by the bridge's views, on the route that is advised": [["\u2013 none"], ["\u2013 none"]],
        "by convert()": [["R right"], ["R right"]],
    }
    # Whichever process is done first is told first.
    assert [what[:2] for what in told] == [(1, 2), (2, 2)]
    assert {what[2] for what in told} == {
        f"{one} -> simulated, convert(x, library)" for one in ("simulated", "to_cai(simulated)")
    }


def shown_matrix(capsys, *arguments):
    assert main(["matrix", "--from", str(MATRIX), *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def grids(lines):
    """The rows of each grid of pairs, by what stands above it."""
    found = {}
    for n, line in enumerate(lines):
        if line.startswith("All pairs "):
            rows = lines[n + 2 : lines.index("", n)]
            found[line.removeprefix("All pairs ").removesuffix(":")] = [
                re.split("  +", row)[1:] for row in rows
            ]
    return found


def test_matrix_shows_each_pair_by_its_best_routes(capsys):
    lines = shown_matrix(capsys)
    heads = [line for line in lines if line.startswith("from \\ to")]
    libraries = ["torch", "jax", "cupy", "numba", "cuda.core", "tvm-ffi"]
    assert [head.split()[3:] for head in heads] == [libraries, libraries]
    names = [row.split()[0] for row in lines[3 : lines.index("", 2)]]
    native, views = grids(lines).values()
    assert native[names.index("jax") - 1] == [
        *("W wrong", "\u2013 none", "W wrong", "W wrong", "X refused", "W wrong")
    ]
    assert views[names.index("jax") - 1] == [
        *("R right", "\u2013 none", "R right", "B blocks", "R right", "R right")
    ]


def test_convert_is_shown_and_counted_beside_the_views():
    shown = of_all_sides()
    assert grids(matrix.plain(shown).splitlines()) == {
        "by themselves, on the best route": [["W wrong"]],
        "by the bridge's views, on the route that is advised": [["X refused"]],
        "by convert()": [["R right"]],
    }
    assert (shown.with_bridge(PAIR), shown.by_convert(PAIR)) == ("refused", "right")
    judged = {side: set(shown.outcomes(side)) - {"none"} for side in shown.sides}
    assert judged == {"native": {"wrong"}, "views": {"refused"}, "convert": {"right"}}


def test_matrix_shows_each_route_of_a_pair_in_words_under_their_names(capsys):
    lines = shown_matrix(capsys)
    at = next(n for n, line in enumerate(lines) if line.startswith("torch -> cupy"))
    assert lines[at].split()[3:] == list(ASPECTS)
    names = [re.split("  +", line.strip())[0] for line in lines[at + 1 : at + 7]]
    assert names == [
        *("x by CAI", "x by DLPack", "to_cai(x, stream=s)", "to_cai(x)", "from_cai(x)"),
        "from_cai(to_cai(x)) (advised)",
    ]
    groups = ("RWWRRW", "RRWRRX", "RRRRRX", "RRRBRX", "RRRRRX", "RRRRRX")
    for line, letters in zip(lines[at + 1 : at + 7], groups, strict=True):
        # Of the last aspect the example says nothing.
        assert re.split("  +", line.strip())[1:] == [
            next(f"{one.letter} {one.word}" for one in OUTCOMES.values() if one.letter == letter)
            for letter in (*letters, OUTCOMES["none"].letter)
        ]
        # Each stands under its name.
        for aspect in ASPECTS:
            assert line[lines[at].index(aspect) - 1] == " "
            assert line[lines[at].index(aspect)] != " "


def test_matrix_tells_what_its_words_mean(capsys):
    lines = shown_matrix(capsys)
    for mark in OUTCOMES.values():
        (told,) = [line for line in lines if line.startswith(f"{mark.letter} {mark.word} ")]
        assert told.endswith(mark.meaning)


@pytest.mark.parametrize(
    "command",
    [
        "doctor",
        "inspect --simulated cli_subjects:array(speaks='cai')",
        "check cli_subjects:make --only cai-shape",
        f"matrix --from {MATRIX}",
    ],
)
def test_everything_goes_to_a_file_by_output(command, tmp_path, capsys):
    def lines(text):
        return [re.sub("0x[0-9a-f]+", "", line) for line in text.splitlines()]

    main(command.split())
    printed = capsys.readouterr().out
    main([*command.split(), "--output", str(tmp_path / "out")])
    assert capsys.readouterr().out == ""
    assert lines((tmp_path / "out").read_text("utf-8")) == lines(printed)


def test_the_words_are_the_engines():
    assert tuple(table.ASPECTS) == ASPECTS
    assert set(OUTCOMES) == set(get_args(Outcome))
    assert {route.door for route in ROUTES} == {*table.DOORS, table.CONVERT}
    assert tuple(table.SIDES) == WAYS
    for route in ROUTES:
        assert table.Route(route.name, route.door, route.bridged).side == route.way


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ({"values": "right", "dtypes": "refused"}, "right"),
        ({"values": "refused"}, "refused"),
        ({"values": "right", "handover": "waits", "host": "waits"}, "waits"),
        ({"values": "right", "release": "wrong", "host": "waits"}, "wrong"),
        ({"values": "wrong", "release": "crashed"}, "crashed"),
        ({"values": "none"}, "none"),
        ({}, "none"),
    ],
)
def test_a_route_is_as_good_as_its_worst_aspect(outcomes, said):
    shown = a_matrix(cai=outcomes, to_cai="right")
    assert [route.name for route in shown.routes] == ["x by CAI", "to_cai(x)"]
    assert shown.best(PAIR, bridged=False) == said
    assert shown.best(PAIR, bridged=True) == shown.with_bridge(PAIR) == "right"
    assert shown.best(PAIR, door="dlpack", bridged=True) == shown.by_convert(PAIR) == "none"
    assert shown.sides == ["native", "views"]


def test_the_best_route_counts():
    shown = a_matrix(cai="wrong", dlpack="waits", to_cai="crashed", from_cai="right")
    assert shown.best(PAIR, bridged=False) == "waits"
    assert shown.best(PAIR, bridged=True) == "right"
    assert shown.best(PAIR, door="cai", bridged=False) == "wrong"
    assert shown.best(PAIR, door="cai", bridged=True) == "crashed"
    assert a_matrix(cai="none", dlpack="wrong").best(PAIR, bridged=False) == "wrong"
    assert list(shown.outcomes("native")).count("waits") == 1
    assert "right" in shown.outcomes("views")
    assert "crashed" not in shown.outcomes("views")


def test_the_page_tells_the_libraries_by_themselves_from_the_bridge():
    shown = matrix_page._shown(a_matrix(cai="wrong", dlpack="ignored", from_cai="right"))
    assert shown["shares"] == [
        {"name": "By themselves", "count": 0},
        {"name": "By the bridge's views", "count": 1},
    ]
    (pair,) = shown["pairs"]
    assert [mark.word for mark in pair["native"]] == ["wrong", "ignored"]
    assert [mark.word for mark in pair["bridged"]] == ["right"]
    groups = [(one["side"], [r["name"] for r in one["routes"]]) for one in pair["groups"]]
    assert groups == [("native", ["x by CAI", "x by DLPack"]), ("views", ["from_cai(x)"])]
    assert [r["advised"] for one in pair["groups"] for r in one["routes"]] == [False, False, True]
    tally = {
        one["kind"].word: [(n["count"], n["share"]) for n in one["counts"]]
        for one in shown["tally"]
    }
    # Each outcome is counted in one row.
    words = ["right", "refused", "blocks", "ignored", "wrong", "crashed", "none"]
    assert list(tally) == words
    assert tally["wrong"] == [(1, "50 %"), (0, "0 %")]
    assert tally["ignored"] == [(1, "50 %"), (0, "0 %")]
    assert tally["right"] == [(0, "0 %"), (1, "100 %")]


def test_what_was_seen_of_a_pair_comes_gravest_first():
    outcomes = {"values": "right", "handover": "waits", "dtypes": "wrong"}
    (pair,) = matrix_page._shown(a_matrix(cai=outcomes))["pairs"]
    assert (pair["producer"], pair["consumer"]) == PAIR
    seen = [(one["kind"].word, one["aspect"], one["detail"], one["route"]) for one in pair["seen"]]
    assert seen == [
        ("wrong", "dtypes", "dtypes told", "x by CAI"),
        ("blocks", "handover", "handover told", "x by CAI"),
        ("right", "values", "values told", "x by CAI"),
    ]


def test_what_matrix_writes_it_reads(tmp_path, capsys):
    written = tmp_path / "matrix.json"
    assert main(["matrix", "--from", str(MATRIX), "--json", "--output", str(written)]) == 0
    assert json.loads(written.read_text("utf-8")) == json.loads(MATRIX.read_text("utf-8"))
    capsys.readouterr()
    assert main(["matrix", "--from", str(written), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(MATRIX.read_text("utf-8"))


EMPTY = {
    "place": "nowhere",
    "date": "2026-11-20",
    "version": "0",
    "versions": {},
    "rounds": 1,
    "producers": [],
    "consumers": [],
    "cells": [],
}
CELL = {
    "producer": "a",
    "consumer": "b",
    "route": "to_cai(x)",
    "door": "cai",
    "bridged": True,
    "aspects": {},
}


def aspect(**fields):
    """A cell with one aspect of these fields."""
    return {**CELL, "aspects": {"values": {"outcome": "right", **fields}}}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "got no matrix (TypeError"),
        ({"cells": []}, "got no matrix (KeyError"),
        ({**EMPTY, "cells": [3]}, "got no matrix (TypeError"),
        ({**EMPTY, "cells": {"a": 3}}, "got no matrix (TypeError"),
        ({**EMPTY, "date": 3}, "date: got 3; allowed: a string"),
        ({**EMPTY, "versions": 3}, "versions: got 3; allowed: an object"),
        ({**EMPTY, "versions": {"a": "\ud800"}}, "versions: got {'a': '\\ud800'}; allowed"),
        ({**EMPTY, "rounds": True}, "rounds: got True; allowed: an integer"),
        ({**EMPTY, "consumers": [3]}, "consumers: got [3]; allowed: a list of names"),
        ({**EMPTY, "producers": "torch"}, "producers: got 'torch'; allowed: a list of names"),
        ({**EMPTY, "cells": [{**CELL, "door": "front"}]}, "door: got 'front'; allowed: 'cai'"),
        ({**EMPTY, "cells": [{**CELL, "door": ["cai"]}]}, "got no matrix ("),
        ({**EMPTY, "cells": [{**CELL, "bridged": 1}]}, "bridged: got 1; allowed: true or false"),
        ({**EMPTY, "cells": [{**CELL, "route": []}]}, "route: got []; allowed: a string"),
        ({**EMPTY, "cells": [{**CELL, "aspects": {"odd": {"outcome": "right"}}}]}, "got 'odd'"),
        ({**EMPTY, "cells": [aspect(wrong=1.5)]}, "wrong and rounds: got 1.5 and None; allowed"),
        ({**EMPTY, "cells": [aspect(ms=float("nan"))]}, "ms: got nan; allowed: a number"),
        ({**EMPTY, "cells": [aspect(ms="1")]}, "ms: got '1'; allowed: a number"),
        ({**EMPTY, "cells": [aspect(detail=None)]}, "detail: got None; allowed: a string"),
        (
            {**EMPTY, "cells": [{"aspects": {"values": {"outcome": "<b>"}}}]},
            "got no matrix (ValueError: outcome: got '<b>'; allowed: right",
        ),
    ],
)
def test_what_is_no_matrix_is_refused(data, said, tmp_path, capsys):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(data))
    assert main(["matrix", "--from", str(path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5_000, '{"place": ', "\ufeff"])
def test_what_cannot_be_read_is_refused(text, tmp_path, capsys):
    path = tmp_path / "data.json"
    path.write_text(text, "utf-8")
    assert main(["matrix", "--from", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"cai-bridge matrix: {path}: ")


VALUES = [None, True, -1, 1.5, float("nan"), float("inf"), "", "\ud800", "\x1b[31m", [], {}, [1]]
VALUES += [{"a": 1}, 10**30, "right"]


def places(data, place=()):
    """Every place in it, as the keys that lead there."""
    yield place
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        yield from places(data[key], (*place, key))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_file_holds_is_shown_or_refused(seed, tmp_path, capsys):
    """One value of a real file is another, or is gone: nothing but a refusal may come of it."""
    whole = json.loads(MATRIX.read_text("utf-8"))
    whole["cells"] = whole["cells"][:3]
    path, page, drawn = tmp_path / "data.json", tmp_path / "page.html", random.Random(seed)
    all_places = [place for place in places(whole) if place]
    for _ in range(60):
        data = copy.deepcopy(whole)
        *outer, key = drawn.choice(all_places)
        inside = functools.reduce(lambda found, key: found[key], outer, data)
        if isinstance(inside, dict) and drawn.random() < 0.2:
            del inside[key]
        else:
            inside[key] = drawn.choice(VALUES)
        path.write_text(json.dumps(data))
        for wishes in ([], ["--json"], ["--html", str(page)]):
            assert main(["matrix", "--from", str(path), *wishes]) in {0, 2}
    capsys.readouterr()


@pytest.mark.parametrize(
    ("reason", "known", "said"),
    [
        ("no driver", INSTALLABLE, "there is no driver; name a subject"),
        (None, (), "none of these is installed"),
    ],
)
def test_a_matrix_of_nothing_says_what_there_is_not(reason, known, said, monkeypatch, capsys):
    monkeypatch.setattr("cai_bridge.conformance.lab.cuda.why_no_gpu", lambda: reason)
    monkeypatch.setattr(libraries, "INSTALLABLE", known)
    assert main(["matrix"]) == 2
    assert said in capsys.readouterr().err


def test_a_matrix_of_all_is_of_the_installed_that_have_adapters(monkeypatch, capsys):
    installed = tuple(Found(name, name, "1") for name in ("numpy", "simulated", "ml_dtypes"))
    monkeypatch.setattr("cai_bridge.conformance.lab.cuda.why_no_gpu", lambda: None)
    monkeypatch.setattr(matrix, "find_libraries", lambda: installed)
    asked = []

    def run_isolated(producers, consumers, *, progress, **more):
        asked.append((producers, consumers))
        raise RuntimeError("the device\nis gone")

    monkeypatch.setattr("cai_bridge.conformance.matrix.run_isolated", run_isolated)
    assert main(["matrix"]) == 2
    assert asked == [(["simulated"], ["simulated"])]
    assert capsys.readouterr().err == "cai-bridge matrix: the device\\nis gone\n"


def test_an_empty_matrix_is_shown(tmp_path, capsys):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(EMPTY))
    assert main(["matrix", "--from", str(path), "--html", str(tmp_path / "page.html")]) == 0


def named(*consumers, outcome="right"):
    cells = tuple(
        Cell("maker", one, "to_cai(x)", "cai", True, {"values": Aspect(outcome)})
        for one in consumers
    )
    place = "H200, driver 580.95"
    return table.Table(Matrix(place, "2026", "0", {}, 1, ("maker",), consumers, cells))


def test_each_cell_stands_under_the_name_of_its_consumer():
    consumers = ("a library of a rather long name", "short", "last")
    lines = matrix.plain(named(*consumers)).splitlines()
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
    shown = named("taker", outcome="wrong")
    matrix.show(shown)
    printed = capsys.readouterr().out
    assert re.sub("\x1b\\[[0-9;]*m", "", printed).splitlines() == matrix.plain(shown).splitlines()
    lines = printed.splitlines()
    assert lines[0] == "H200, driver 580.95"
    assert any("\x1b[1;31mW wrong" in line for line in lines)


def test_without_a_terminal_library_the_matrix_is_text(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    matrix.show(of_all_sides())
    assert capsys.readouterr().out == matrix.plain(of_all_sides()) + "\n"
