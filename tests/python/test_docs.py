"""The pages of docs/: what they list is what there is, and what they link to is there."""

import itertools
import json
import re
import runpy
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cai_bridge import _core, _libraries, convert, testing
from cai_bridge._cli.libraries import INSTALLABLE
from cai_bridge.conformance import named
from cai_bridge.conformance.matrix import Matrix
from generate import NAMES, files
from generating import explanations, scenes
from generating import matrix as of_matrix
from generating import modules as of_modules

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md")])


# `make lint` checks the stub and the licenses as well, for which this needs Cargo.
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"stub", "licenses"}))
def test_what_is_generated_is_of_the_sources_that_are_there(name):
    for path, text in files(name).items():
        assert path.read_text("utf-8") == text, path
        if path.suffix == ".svg":
            ElementTree.fromstring(text)


def test_each_public_name_for_tests_is_on_its_page():
    page = (ROOT / "docs/simulated-device.md").read_text()
    listed = re.findall(r"^\| `(\w+)[^`]*` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(testing.__all__)


SYSTEMS = tomllib.loads((ROOT / "tests/data/systems.toml").read_text())["system"]
# What the specifications name, and what is looked at beside it.
NAMED = {
    *("Numba", "CuPy", "PyTorch", "JAX", "mpi4py", "RMM", "cuDF, pylibcudf", "RAFT (pylibraft)"),
    *("cuML", "cuSignal", "PyArrow CUDA", "ArrayViews", "AMSO memory class"),
    *("Warp", "cuCIM", "ucxx", "NVIDIA DALI", "cuda.core", "tvm-ffi"),
    *("cuda.compute (CCCL)", "CV-CUDA", "Holoscan", "PyCUDA", "cuTile", "XGBoost"),
}


def test_every_system_is_in_the_table_once():
    names = [system["name"] for system in SYSTEMS]
    assert (set(names), len(names)) == (NAMED, len(NAMED))


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system["name"])
def test_each_direction_of_a_system_has_tests_that_are_there(system):
    for way in ("into", "out"):
        assert system[way]
        assert system[f"{way}_tests"]
        for test in system[f"{way}_tests"]:
            file, name = test.split("::")
            source = (ROOT / "tests" / file).read_text()
            assert re.search(rf"^def {name}\(", source, re.MULTILINE), test
    assert system["by"]


def test_every_kind_of_error_has_a_line_on_the_page_of_refusals():
    source = (ROOT / "src" / "error" / "kinds.rs").read_text("utf-8")
    kinds = re.findall(r'^ {4}\w+: (?:Buffer|Value|Type|Driver), "', source, re.MULTILINE)
    text = (ROOT / "docs" / "refusals.md").read_text("utf-8")
    lines = text.partition("## Arguments in Python")[0].splitlines()
    assert len(kinds) == sum("; allowed: " in line for line in lines if line.startswith("|"))


def test_the_picture_of_the_modules_has_every_file_and_its_uses_go_down():
    listed = of_modules.modules()
    source = ROOT / "src"
    there = {path.stem for path in source.iterdir() if path.suffix in {"", ".rs"}} - {"lib", "py"}
    there |= {f"py/{path.stem}" for path in (source / "py").iterdir()} - {"py/mod"}
    assert set(listed) == there
    lines = of_modules.lines(listed)
    assert sum(map(len, lines.values())) >= len(listed)
    for module, uses in lines.items():
        assert all(listed.index(other) > listed.index(module) for other in uses)


def test_a_recorded_race_is_one_without_the_bridge_alone():
    for scene in scenes.run().values():
        assert scene["alone"]["reports"]
        assert not scene["bridged"]["reports"]


def test_what_a_run_shows_is_explained_and_nothing_else():
    bad, explained = explanations.Bad, explanations.explained
    lazy = bad("torch", "cupy", "from_cai(x)", "lazy", "refused")
    odd = bad("cupy", "torch", "from_cai(x)", "values", "wrong")
    (line,) = explained([lazy])
    assert line.startswith("- **X** for lazy (torch → cupy): torch has recorded the values")
    told = "- **W** for cupy → torch, `from_cai(x)`, values: not explained yet."
    assert explained([odd, lazy]) == [line, told]
    assert explained([]) == []
    assert "not explained yet" not in of_matrix.tables()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page):
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]+`", "", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


# What each library does by itself, on the GPU that the data is of.
NATIVE = [
    *(("torch", to, "x by CAI", "handover", "wrong") for to in ("cupy", "numba")),
    *(("jax", to, "x by CAI", "handover", "wrong") for to in ("cupy", "numba")),
    ("cupy", "torch", "x by CAI", "handover", "wrong"),
    ("torch", "cupy", "x by DLPack", "release", "wrong"),
    ("cupy", "numba", "x by CAI", "host", "waits"),
    ("jax", "torch", "x by DLPack", "readonly", "wrong"),
    ("torch", "cupy", "x by CAI", "lazy", "wrong"),
    ("torch", "tvm-ffi", "x by DLPack", "lazy", "wrong"),
    ("cupy", "jax", "x by CAI", "handover", "refused"),
]


def test_what_is_wrong_natively_is_in_the_data_and_nothing_by_an_advised_route():
    (run,) = (ROOT / "docs" / "matrix").glob("*.json")
    matrix = Matrix.from_dict(json.loads(run.read_text()))
    for producer, consumer, route, aspect, outcome in NATIVE:
        found = matrix.cell(producer, consumer, route)[aspect].outcome
        assert found == outcome, (producer, consumer, route)
    for producer, consumer in itertools.product(matrix.producers, matrix.consumers):
        cell = matrix.advised(producer, consumer)
        outcomes = {} if cell is None else {n: o.outcome for n, o in cell.aspects.items()}
        assert not {"wrong", "crashed"} & set(outcomes.values()), (producer, consumer, outcomes)


@pytest.mark.parametrize(
    ("markup", "wrong"),
    [
        ('<a href="other.html#there">', None),
        ('<a href="#here">', None),
        ('<a href="https://elsewhere.example">', None),
        ('<link rel="canonical" href="https://elsewhere.example">', None),
        ('<a href="missing.html">', "links to missing.html, which is not there"),
        ('<a href="other.html#gone">', "links to other.html#gone, whose anchor is not there"),
        ('<script src="https://elsewhere.example/x.js">', "fetches https://elsewhere.example/x.js"),
        ('<link rel="stylesheet" href="//elsewhere.example/x.css">', "fetches //elsewhere.example"),
        ('<img src="gone.svg">', "links to gone.svg, which is not there"),
    ],
)
def test_the_check_of_the_built_manual_finds_what_does_not_hold(tmp_path, markup, wrong):
    problems = runpy.run_path(str(ROOT / "make" / "check_site.py"))["problems"]
    (tmp_path / "index.html").write_text(f'<p id="here">{markup}')
    (tmp_path / "other.html").write_text('<p id="there">')
    found = problems(tmp_path)
    assert len(found) == (wrong is not None)
    assert wrong is None or wrong in found[0]


def test_a_search_that_does_not_find_its_page_is_found_and_each_is_for_one_that_is_there():
    """`make docs` runs the searches, over the site that it has built."""
    check = runpy.run_path(str(ROOT / "make" / "check_search.py"))
    wanted = [("my own stream", "own-stream.md")]
    for found in (["own-stream.html"], ["faq.html", "own-stream.html", "index.html"]):
        assert check["problems"](wanted, [found]) == []
    for found in ([], ["faq.html", "index.html", "own-stream.html"]):
        (line,) = check["problems"](wanted, [found])
        assert "'my own stream' finds" in line
    asked = check["asked"]()
    assert len({query for query, _ in asked}) == len(asked) >= 40
    assert [page for _, page in asked if not (ROOT / "docs" / page).exists()] == []


def test_each_question_of_a_tracker_has_a_thread_of_its_own_and_a_page():
    page = (ROOT / "docs" / "trackers.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if "github.com" in line]
    row = re.compile(
        r"\| [^|]+ \| \[[\w./-]+ (\d+)\]\((https://github\.com/[\w-]+/[\w-]+/(?:issues|pull)/\1)\)"
        r" \| \[[^|]+\]\(([\w-]+\.md)[^)]*\) \|"
    )
    assert [line for line in lines if not row.fullmatch(line)] == []
    assert len({row.fullmatch(line)[2] for line in lines}) == len(lines) >= 40


LIBRARIES = {*_libraries.FILES} - {"cai", "dlpack", "jaxlib"}


def words_of(docstring):
    """The libraries that a docstring lists."""
    listed = docstring.split("The bridge knows")[1].split(";", maxsplit=1)[0]
    return set(re.findall(r"\w+", listed)) - {"and", "core"}


# Where libraries are listed.
PLACES = {
    "the docstring of convert": lambda: words_of(convert.__doc__),
    "docs/libraries.md": lambda: (
        {*re.findall(r"(?m)^\| [^|]+ \| `(\w+)` \|", (ROOT / "docs/libraries.md").read_text())}
        - {"to"}
    ),
    "doctor": lambda: {re.split("[.:]", one.array)[0] for one in INSTALLABLE if one.array},
}


@pytest.mark.parametrize("place", PLACES)
def test_a_list_of_libraries_has_them_all(place):
    assert PLACES[place]() == LIBRARIES


def test_each_file_of_a_library_or_of_adapters_is_found_by_a_name():
    folder = Path(_libraries.__file__).parent
    files_there = {one.stem for one in folder.glob("*.py")} - {"__init__", "_library"}
    assert files_there == {one.partition(":")[0] for one in _libraries.FILES.values()}
    folder = Path(named.__file__).parent / "libraries"
    files_there = {one.stem for one in folder.glob("[!_]*.py")} - {"bridged"}
    assert files_there == {re.sub("[.-]", "_", name) for name in named.LIBRARIES}


def test_a_library_has_one_name_in_rust_in_python_and_in_the_tests():
    def files(folder, pattern):
        return {one.stem for one in (ROOT / folder).glob(pattern)}

    python = {one.removeprefix("_") for one in files("python/cai_bridge/_libraries", "_[!_]*.py")}
    python -= {"library", "views"}
    others = {"mod", "ordinary", "habits_only", "registered", "simulated"}
    assert files("src/py/libraries", "*.rs") - others - python == set()
    assert {f"test_{one}" for one in python} - files("tests/python/libraries", "test_*.py") == set()


def test_each_typestr_that_says_nothing_of_its_type_is_named_where_that_is_said():
    kinds = (ROOT / "src/error/kinds.rs").read_text("utf-8")
    kind = next(line for line in kinds.splitlines() if "DtypeAmbiguous:" in line)
    page = (ROOT / "docs/dtypes.md").read_text("utf-8")
    said = next(line for line in page.splitlines() if line.startswith("CAI has no typestr for"))
    for typestr in {typestr for _, _, _, typestr in _core._dtypes() if typestr[1] == "V"}:
        assert typestr in kind, typestr
        assert f"`{typestr}`" in said, typestr
