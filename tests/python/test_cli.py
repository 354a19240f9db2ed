"""The command: what each part of it prints, and how it ends."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import get_args

import pytest

from cai_bridge._cli import libraries, pairs, table
from cai_bridge._cli.command import main
from cai_bridge._cli.libraries import KNOWN
from cai_bridge._cli.marks import OUTCOMES
from cai_bridge.conformance import requirements
from cai_bridge.conformance.matrix import ASPECTS, ROUTES, WAYS, Aspect, Cell, Matrix, Outcome

HERE = Path(__file__).parent
MATRIX = HERE.parent / "data" / "matrix_example.json"

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

# A finder that finds no rich and no jinja2, before the command is imported.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("rich", "jinja2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from cai_bridge._cli.command import main
sys.exit(main(sys.argv[1:]))
"""


def run(*arguments, program=("-m", "cai_bridge"), **more):
    return subprocess.run(
        [sys.executable, "-W", "error", *program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=HERE,
        **more,
    )


def test_importing_the_package_imports_none_of_it():
    shown = run(
        program=("-c", "import cai_bridge, sys; print([n for n in sys.modules if '_cli' in n])")
    )
    assert shown.stdout == "[]\n"


def test_importing_the_command_imports_no_terminal_or_template_library():
    program = "import cai_bridge._cli.command, sys; print({'rich', 'jinja2'} & set(sys.modules))"
    assert run(program=("-c", program)).stdout == "set()\n"


@pytest.mark.parametrize(
    "arguments",
    [["doctor"], ["check", "simulated"], ["check", "--help"], ["--version"], ["--help"]],
)
def test_it_runs_as_a_module(arguments):
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_script_is_the_module():
    script = metadata.entry_points(group="console_scripts", name="cai-bridge")
    for entry in script:  # there is one where the package was installed with it
        assert entry.load() is main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "required"),
        (["dance"], "dance"),
        (["check"], "required"),
        (["check", "torch", "--simulated", "--gpu"], "not allowed"),
        (["check", "torch", "--role", "audience"], "audience"),
        (["inspect"], "required"),
    ],
)
def test_what_cannot_be_parsed_ends_with_2(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "nothing"], "got 'nothing'; allowed: torch, jax"),
        (["check", "nothing", "--role", "producer"], "got 'nothing'; allowed: torch, jax"),
        (["check", "no.such.module:make"], "No module named 'no'"),
        (["check", "cli_subjects:nothing"], "has no 'nothing'"),
        (["check", "cli_subjects:neither"], "pass --role producer or --role consumer"),
        (["check", "cli_subjects:Poor", "--role", "consumer"], "is no consumer"),
        (["check", "cli_subjects:Consumer", "--role", "both"], "is no producer"),
        (["check", "cli_subjects:make", "--only", "cai-nothing"], "got 'cai-nothing'; allowed"),
        (["check", "cli_subjects:make", "--html", ""], "--html: got no path"),
        (["matrix", "--from", str(MATRIX), "--html", ""], "--html: got no path"),
        (["matrix", "--from", str(MATRIX), "--output", ""], "--output: got no path"),
        (["doctor", "--output", ""], "--output: got no path"),
        (["inspect", "cli_subjects:3", "--output", ""], "--output: got no path"),
        (["check", "cli_subjects:make", "--output", ""], "--output: got no path"),
        (
            ["check", "cli_subjects:make", "--only", "cai-stirdes"],
            "got 'cai-stirdes' (did you mean 'cai-strides'?)",
        ),
        (["inspect", "cli_subjects"], "allowed: module:expression"),
        (["inspect", "cli_subjects:nothing"], "raised NameError"),
        (["inspect", "cli_subjects:fails()"], "raised RuntimeError: out of luck"),
        (["inspect", "cli_subjects:("], "raised SyntaxError"),
        (["inspect", "cli_subjects:3"], "got int; allowed"),
        (["inspect", "no_such_module:3"], "does not import: ModuleNotFoundError"),
        (["matrix", "torch", "--from", str(MATRIX)], "takes no subjects"),
        (["matrix", "--from", "no-such-file"], "no-such-file: No such file"),
        (["matrix", "--from", str(MATRIX.with_name("stream.toml"))], "Expecting value"),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_a_line(arguments, said, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"cai-bridge {arguments[0]}: ")
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_reader_that_has_enough_is_no_error():
    program = "from cai_bridge._cli.command import main; raise SystemExit(main(['doctor']))"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


# --- inspect --------------------------------------------------------------------------------------


def test_inspect_shows_each_door_and_that_they_agree(capsys):
    assert main(["inspect", "--simulated", "cli_subjects:array(speaks=('cai', 'dlpack'))"]) == 0
    printed = capsys.readouterr().out
    assert "CAI" in printed
    assert "__dlpack__" in printed
    assert printed.endswith("The protocols agree.\n")


def test_inspect_of_one_protocol_has_nothing_to_compare(capsys):
    assert main(["inspect", "--simulated", "cli_subjects:array(speaks='cai')", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["agree"] is None
    assert told["why"] == "It speaks only CAI: nothing to compare."
    assert [one["door"] for one in told["said"]] == ["CAI"]


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_inspect_of_a_contradiction_ends_with_1(flags, capsys):
    assert main(["inspect", "--simulated", "cli_subjects:Contradicts()", *flags]) == 1
    printed = capsys.readouterr().out
    assert "shape" in printed
    if flags:
        assert json.loads(printed)["agree"] is False


# --- check ----------------------------------------------------------------------------------------


def test_check_prints_the_report(capsys):
    assert main(["check", "cli_subjects:make", "--only=cai-shape", "--only=cai-typestr"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("make as a producer on the simulated device: 2 passed, 0 failed")


def test_check_of_what_fails_ends_with_1(capsys):
    assert main(["check", "cli_subjects:Poor", "--only", "cai-typestr", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    (report,) = told["reports"]
    (verdict,) = report["verdicts"]
    assert (report["subject"], verdict["outcome"]) == ("poor", "failed")


def test_check_takes_patterns_of_names(capsys):
    assert main(["check", "cli_subjects:make", "--only", "cai-s*", "--simulated", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    every = [one.name for one in requirements("producer")]
    judged = [one["requirement"] for one in report["verdicts"]]
    assert judged == [name for name in every if name.startswith("cai-s")]


@pytest.mark.parametrize(
    ("subject", "roles"),
    [
        ("cli_subjects:Producer", ["producer"]),
        ("cli_subjects:Consumer", ["consumer"]),
        ("cli_subjects:Both", ["producer", "consumer"]),
        ("cli_subjects:make", ["producer"]),
        ("cli_subjects:take", ["consumer"]),
    ],
)
def test_a_subject_is_judged_in_the_roles_that_it_has(subject, roles):
    from cai_bridge._cli.subjects import adapters_named

    assert list(adapters_named(subject, "")) == roles


def test_a_gpu_that_is_not_there_ends_with_2(capsys, monkeypatch):
    from cai_bridge.conformance.lab import find

    monkeypatch.setattr(find, "why_no_gpu", lambda: "no driver")
    assert main(["check", "cli_subjects:make", "--gpu"]) == 2
    assert "got 'gpu', but there is no driver" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("subject", "roles"),
    [
        ("simulated", ["producer", "consumer"]),
        ("to_cai(simulated)", ["producer"]),
        ("from_cai(simulated)", ["producer"]),
    ],
)
def test_check_knows_libraries_and_views_of_the_bridge(subject, roles, capsys):
    assert main(["check", subject, "--simulated", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["reports"]
    assert [(one["subject"], one["role"]) for one in told] == [(subject, role) for role in roles]


def test_check_runs_as_a_module_from_the_working_directory():
    done = run("check", "cli_subjects:make", "--only", "cai-shape")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 passed" in done.stdout


# --- matrix ---------------------------------------------------------------------------------------


def test_matrix_runs_what_is_named(tmp_path, capsys):
    written = tmp_path / "matrix.json"
    assert main(["matrix", "simulated", "--json", "--output", str(written)]) == 0
    assert capsys.readouterr().out == ""
    matrix = Matrix.from_dict(json.loads(written.read_text("utf-8")))
    assert (matrix.producers, matrix.consumers) == (("simulated",), ("simulated",))
    assert matrix.cell("simulated", "simulated", "to_cai(x)")["handover"].outcome == "right"


def test_matrix_runs_one_way_in_several_processes(tmp_path, capsys):
    written = tmp_path / "matrix.json"
    asked = ["matrix", "simulated", "to_cai(simulated)", "--way", "convert", "--jobs", "2"]
    assert main([*asked, "--json", "--output", str(written)]) == 0
    assert capsys.readouterr().out == ""
    matrix = Matrix.from_dict(json.loads(written.read_text("utf-8")))
    assert [(one.producer, one.route) for one in matrix.cells] == [
        ("simulated", "convert(x, library)"),
        ("to_cai(simulated)", "convert(x, library)"),
    ]
    shown = table.Table(matrix)
    assert [shown.by_convert(pair) for pair in shown.pairs] == ["right", "right"]
    assert shown.sides == ["native", "views", "convert"]
    assert main(["matrix", "--from", str(written)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert grids(lines) == {
        "by themselves, on the best route": [["\u2013 none"], ["\u2013 none"]],
        "by the bridge's views, on the route that is advised": [["\u2013 none"], ["\u2013 none"]],
        "by convert()": [["R right"], ["R right"]],
    }
    assert [line.split("  ")[1] for line in lines if line.startswith("  ")] == [
        *["convert(x, library)"] * 2
    ]


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


def test_matrix_shows_convert_beside_the_views():
    assert grids(pairs.plain(of_all_sides()).splitlines()) == {
        "by themselves, on the best route": [["W wrong"]],
        "by the bridge's views, on the route that is advised": [["X refused"]],
        "by convert()": [["R right"]],
    }


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


def test_text_goes_to_a_file_as_it_is_printed(tmp_path, capsys):
    printed = shown_matrix(capsys)
    assert shown_matrix(capsys, "--output", str(tmp_path / "matrix.txt")) == []
    assert (tmp_path / "matrix.txt").read_text("utf-8").splitlines() == printed


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"],
        ["inspect", "--simulated", "cli_subjects:array(speaks='cai')"],
        ["check", "cli_subjects:make", "--only", "cai-shape"],
        ["matrix", "--from", str(MATRIX)],
    ],
)
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_everything_goes_to_a_file_by_output(arguments, flags, tmp_path, capsys):
    main([*arguments, *flags])
    printed = capsys.readouterr().out
    file = tmp_path / "out"
    main([*arguments, *flags, "--output", str(file)])
    assert capsys.readouterr().out == ""
    text = file.read_text("utf-8")
    if flags:
        assert json.loads(text).keys() == json.loads(printed).keys()
    else:
        assert text.splitlines()[0].split("(")[0] == printed.splitlines()[0].split("(")[0]
        assert len(text.splitlines()) == len(printed.splitlines())


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
    aspects = {name: Aspect(outcome) for name, outcome in outcomes.items()}
    bad = Cell("a", "b", "x by CAI", "cai", False, aspects)
    good = Cell("a", "b", "to_cai(x)", "cai", True, {"values": Aspect("right")})
    versions = {"a": "1", "b": "2"}
    matrix = Matrix("here", "2026", "0", versions, 1, ("a",), ("b",), (bad, good))
    shown = table.Table(matrix)
    assert [route.name for route in shown.routes] == ["x by CAI", "to_cai(x)"]
    assert shown.best(("a", "b"), bridged=False) == said
    assert shown.best(("a", "b"), bridged=True) == "right"
    assert shown.with_bridge(("a", "b")) == "right"
    assert shown.best(("a", "b"), door="dlpack", bridged=True) == "none"
    assert shown.by_convert(("a", "b")) == "none"
    assert shown.sides == ["native", "views"]


def of_all_sides():
    cells = [
        Cell("a", "b", name, door, name != "x by CAI", {"values": Aspect(outcome)})
        for name, door, outcome in (
            ("x by CAI", "cai", "wrong"),
            ("to_cai(x)", "cai", "waits"),
            ("from_cai(x)", "dlpack", "refused"),
            ("convert(x, library)", "convert", "right"),
        )
    ]
    return table.Table(Matrix("here", "2026", "0", {}, 1, ("a",), ("b",), tuple(cells)))


def test_convert_is_counted_apart_from_the_views():
    shown, pair = of_all_sides(), ("a", "b")
    assert (shown.with_bridge(pair), shown.by_convert(pair)) == ("refused", "right")
    judged = {side: set(shown.outcomes(side)) - {"none"} for side in shown.sides}
    assert judged == {"native": {"wrong"}, "views": {"refused"}, "convert": {"right"}}


def a_matrix(**routes):
    """A matrix of one pair: the outcome of each route, by its first letters."""
    names = {
        "cai": ("x by CAI", "cai", False),
        "dlpack": ("x by DLPack", "dlpack", False),
        "to_cai": ("to_cai(x)", "cai", True),
        "from_cai": ("from_cai(x)", "dlpack", True),
    }
    cells = tuple(
        Cell("a", "b", *names[route], {"values": Aspect(outcome)})
        for route, outcome in routes.items()
    )
    return table.Table(Matrix("here", "2026", "0", {}, 1, ("a",), ("b",), cells))


def test_the_best_route_counts():
    pair = ("a", "b")
    shown = a_matrix(cai="wrong", dlpack="waits", to_cai="crashed", from_cai="right")
    assert shown.best(pair, bridged=False) == "waits"
    assert shown.best(pair, bridged=True) == "right"
    assert shown.best(pair, door="cai", bridged=False) == "wrong"
    assert shown.best(pair, door="cai", bridged=True) == "crashed"
    assert a_matrix(cai="none", dlpack="wrong").best(pair, bridged=False) == "wrong"
    assert list(shown.outcomes("native")).count("waits") == 1
    assert "right" in shown.outcomes("views")
    assert "crashed" not in shown.outcomes("views")


def test_the_page_shows_convert_beside_the_views():
    from cai_bridge._cli import pairs_page

    shown = pairs_page._shown(of_all_sides())
    assert shown["sides"] == ["by themselves", "by the bridge's views", "by convert()"]
    assert [one["count"] for one in shown["shares"]] == [0, 0, 1]
    (pair,) = shown["pairs"]
    assert [mark.word for mark in pair["bridged"]] == ["refused", "right"]
    assert [(one["side"], [r["name"] for r in one["routes"]]) for one in pair["groups"]] == [
        ("native", ["x by CAI"]),
        ("views", ["to_cai(x)", "from_cai(x)"]),
        ("convert", ["convert(x, library)"]),
    ]


def test_the_page_tells_the_libraries_by_themselves_from_the_bridge():
    from cai_bridge._cli import pairs_page

    shown = pairs_page._shown(a_matrix(cai="wrong", dlpack="ignored", from_cai="right"))
    assert shown["shares"] == [
        {"name": "By themselves", "count": 0},
        {"name": "By the bridge's views", "count": 1},
    ]
    (pair,) = shown["pairs"]
    assert [mark.word for mark in pair["native"]] == ["wrong", "ignored"]
    assert [mark.word for mark in pair["bridged"]] == ["right"]
    assert [(one["side"], [r["name"] for r in one["routes"]]) for one in pair["groups"]] == [
        ("native", ["x by CAI", "x by DLPack"]),
        ("views", ["from_cai(x)"]),
    ]
    assert [r["advised"] for one in pair["groups"] for r in one["routes"]] == [False, False, True]
    tally = {one["kind"].word: [n["count"] for n in one["counts"]] for one in shown["tally"]}
    assert (tally["wrong"], tally["ignored"], tally["right"]) == ([1, 0], [1, 0], [0, 1])
    shares = {one["kind"].word: [n["share"] for n in one["counts"]] for one in shown["tally"]}
    assert (shares["wrong"], shares["right"]) == (["50 %", "0 %"], ["0 %", "100 %"])


def test_what_matrix_writes_it_reads(tmp_path, capsys):
    written = tmp_path / "matrix.json"
    assert main(["matrix", "--from", str(MATRIX), "--json", "--output", str(written)]) == 0
    assert json.loads(written.read_text("utf-8")) == json.loads(MATRIX.read_text("utf-8"))
    capsys.readouterr()
    assert main(["matrix", "--from", str(written), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(MATRIX.read_text("utf-8"))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "got no matrix (TypeError"),
        ({"cells": []}, "got no matrix (KeyError"),
        ({**EMPTY, "cells": [3]}, "got no matrix (TypeError"),
        ({**EMPTY, "cells": {"a": 3}}, "got no matrix (TypeError"),
        ({**EMPTY, "date": 3}, "date: got 3; allowed: a string"),
        ({**EMPTY, "versions": 3}, "versions: got 3; allowed: an object"),
        ({**EMPTY, "cells": [{**CELL, "door": "front"}]}, "door and bridged: got 'front' and True"),
        ({**EMPTY, "cells": [{**CELL, "route": []}]}, "got no matrix (TypeError"),
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


@pytest.mark.parametrize(
    ("reason", "known", "said"),
    [("no driver", KNOWN, "there is no driver; name a subject"), (None, (), "none of these is installed")],
)
def test_a_matrix_of_nothing_says_what_there_is_not(reason, known, said, monkeypatch, capsys):
    monkeypatch.setattr("cai_bridge.conformance.lab.cuda.why_no_gpu", lambda: reason)
    monkeypatch.setattr(libraries, "KNOWN", known)
    assert main(["matrix"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("subject", "said"), [("cli_subjects:Consumer", "makes"), ("cli_subjects:make", "takes")]
)
def test_a_matrix_needs_both_sides(subject, said, capsys):
    assert main(["matrix", subject]) == 2
    assert f"of which none {said} arrays" in capsys.readouterr().err


def test_an_empty_matrix_is_shown(tmp_path, capsys):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(EMPTY))
    assert main(["matrix", "--from", str(path), "--html", str(tmp_path / "page.html")]) == 0


# --- without the extra ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"],
        ["doctor", "--json"],
        ["check", "cli_subjects:make", "--only", "cai-shape"],
        ["check", "cli_subjects:make", "--only", "cai-shape", "--json"],
        ["inspect", "--simulated", "cli_subjects:array(speaks='cai')"],
        ["matrix", "--from", str(MATRIX)],
        ["matrix", "--from", str(MATRIX), "--json"],
    ],
)
def test_text_and_json_need_no_extra(arguments):
    without = run(*arguments, program=("-c", WITHOUT))
    assert (without.returncode, without.stderr) == (0, "")
    if arguments[0] != "inspect":  # whose pointers differ
        assert without.stdout == run(*arguments).stdout


@pytest.mark.parametrize(
    "arguments", [["check", "cli_subjects:make"], ["matrix", "--from", str(MATRIX)]]
)
def test_a_page_without_the_extra_says_what_to_install(arguments, tmp_path):
    path = tmp_path / "page.html"
    done = run(*arguments, "--html", str(path), program=("-c", WITHOUT))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("pip install 'cai-bridge[cli]'\n")
    assert not path.exists()


# --- the progress bar -----------------------------------------------------------------------------


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
