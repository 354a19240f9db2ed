"""The gate of `make counts`: what it reads of callgrind, and when it fails."""

import tomllib

import pytest
from tests.counts import __main__ as counts
from tests.counts.__main__ import grown, line, rows, text
from tests.counts.callgrind import part, read
from tests.counts.growth import grown as has_grown

OUTPUT = """\
version: 1
positions: instr
ob=(1) /somewhere/cai_bridge/_core.abi3.so
fn=(1) cai_bridge::py::doors::of_dlpack::to_cai
0x1000 1000
0x1004 1000
0x1040 1000
0x2000 300
cob=(2) /usr/lib/libpython3.11.so.1.0
cfn=(2) PyObject_GetAttr
calls=2000 0
0x1044 5000
cob=(3) /usr/lib/libc.so.6
cfn=(3) malloc
calls=1000 0
0x1048 800
cfn=(4) PyEval_SaveThread
calls=1000 0
0x1048 800
cfn=(5) cuEventRecord
calls=2000 0
0x104c 14

ob=(2)
fn=(6) PyDict_New
0x9000 1000
0x9040 2000
cob=(3)
cfn=(3)
calls=5000 0
0x9044 5000

totals: 4321000
"""
KNOWN = {
    "instructions": 4321,
    "lines": 4,
    "pages": 2,
    "own_lines": 2,
    "own_pages": 1,
    "allocations": 1,
    "python": 2,
    "releases": 1,
    "driver": {"cuEventRecord": 2},
    "parts": {"bridge": 3, "Python": 3},
}


@pytest.fixture
def costs(tmp_path, monkeypatch):
    monkeypatch.setattr(counts, "ROUNDS", 1000)
    file = tmp_path / "callgrind.1"
    file.write_text(OUTPUT)
    return line(read(file, 1000))


@pytest.mark.parametrize(
    ("library", "function", "whose"),
    [
        ("/a_core/libc.so.6", "_int_free", "allocations"),
        ("/usr/lib/libc.so.6", "memcpy@GLIBC_2.2.5", "libc"),
        ("/usr/lib/ld-linux-x86-64.so.2", "__tls_get_addr", "libc"),
        ("/a/fake_libraries.abi3.so", "free_of_charge", "libraries"),
        ("/a/libcuda.so.1", "cuEventRecord", "driver"),
        ("/usr/bin/python3.11", "malloc", "Python"),
    ],
)
def test_an_instruction_is_of_one_part(library, function, whose):
    assert part(library, function) == whose


def test_a_row_that_misses_its_aim_says_whose_its_instructions_are(costs):
    aimed = {row["statement"]: row["aim"] for row in counts.table() if "aim" in row}
    (first, aim), *others = aimed.items()
    found = {row: {**costs, "instructions": aim} for row, aim in others}
    missed = {**costs, "instructions": aim + 1}
    assert counts.aims({**dict.fromkeys(rows(), costs), **found, first: missed}) == [
        f"{first}: {aim + 1:,}, aim {aim:,}: bridge 3, Python 3"
    ]


def test_what_costs_the_same_passes_and_code_of_other_versions_is_not_compared(costs):
    assert grown(KNOWN, costs) == []
    assert grown(KNOWN, {**costs, "instructions": 4321 * 1.009}) == []
    assert grown(KNOWN, {**costs, "pages": 3, "own_pages": 2}) == []
    assert grown(KNOWN, {**costs, "instructions": 1, "python": 0, "driver": {}}) == []
    more = dict.fromkeys(("instructions", "lines", "pages", "own_lines", "own_pages"), 9999)
    assert grown(KNOWN, {**costs, **more}, like=False) == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"instructions": 4365}, "instructions 4321 -> 4365"),
        ({"lines": 5}, "lines 4 -> 5"),
        ({"pages": 3.1}, "pages 2 -> 3.1"),
        ({"own_lines": 3}, "own_lines 2 -> 3"),
        ({"own_pages": 2.1}, "own_pages 1 -> 2.1"),
        ({"allocations": 2}, "allocations 1 -> 2"),
        ({"python": 3}, "python 2 -> 3"),
        ({"releases": 2}, "releases 1 -> 2"),
        ({"driver": {"cuEventRecord": 3}}, "cuEventRecord 2 -> 3"),
        ({"driver": {"cuCtxSynchronize": 1}}, "cuCtxSynchronize 0 -> 1"),
    ],
)
def test_what_grows_is_named(costs, more, said):
    assert grown(KNOWN, {**costs, **more}) == [said]


def test_the_table_has_each_row_and_is_read_back_as_it_was_written(costs):
    # The allocations of Python's own are not the bridge's. What some rounds alone run is no line of
    # a call; nor is the line before which the cost of a callee stands.
    assert costs == KNOWN
    assert set(tomllib.loads(counts.TABLE.read_text())) == {"versions", *rows()}
    written = tomllib.loads(text({"row": costs}))["row"]
    assert written == {name: cost for name, cost in costs.items() if name != "parts"}


@pytest.mark.parametrize(
    ("each", "costs", "bad"),
    [
        (False, [100.0, 119.0, 100.0], False),
        (False, [100.0, 121.0, 100.0], True),
        (False, [121.0, 100.0, 100.0], True),
        (True, [1000.0, 2000.0, 4000.0], False),
        (True, [1000.0, 2000.0, 4500.0], True),
    ],
)
def test_what_costs_more_beside_more_of_it_has_grown(each, costs, bad):
    row = {"what": "trees", "sizes": [10, 20, 40], "each": each}
    assert has_grown(row, costs) is bad
