"""What tests/gpu/race_tools.py reads of other tools, and the table that is made of its results."""

import pytest

from gpu import perturb_judged, races_run
from gpu.race_reports import (
    csan_reports,
    framed,
    is_ours,
    judged,
    marks,
    sanitizer_errors,
    sanitizer_reports,
    verdict_of,
)
from gpu.race_reports import of_races as races_said
from gpu.race_tools import is_asked

CSAN = """
============================
CSAN detected a possible data race on tensor with data pointer 139
Access by stream 1001 during kernel:
    x.fill_(number)  # the write
Previous access by stream 0 during kernel:
    y = x.max().item()
Tensor was allocated with stack trace:
    x = torch.zeros(1)  # the read
Traceback (most recent call last):
    return play(number)  # the read
"""
ACCESS = """========= COMPUTE-SANITIZER
========= Stream-ordered race condition of size 4 bytes
=========     Saved host backtrace up to driver entry point
RESULT [1.0]
========= ERROR SUMMARY: 3 errors
"""


def test_what_csan_and_the_sanitizer_found():
    """The line of an allocation, and that of CSAN's own error, are no side of a race."""
    (report,) = csan_reports(CSAN)
    assert marks(report) == ["the write"]
    assert len(csan_reports(CSAN + CSAN)) == 2
    assert csan_reports("RESULT [1.0]") == []
    count, messages = sanitizer_errors(ACCESS)
    assert (count, [*messages]) == (3, ["Stream-ordered race condition of size 4 bytes"])
    assert sanitizer_errors(ACCESS.replace("3 errors", "0 errors"))[0] == 0
    for unfinished in ("RESULT [1.0]", f"========= Error: Device not supported\n{ACCESS}"):
        assert sanitizer_errors(unfinished)[0] is None, "without a summary nothing was checked"


FREED = """========= COMPUTE-SANITIZER
========= Use-before-alloc on allocation of size 262,144 bytes at 0x10
=========     Address 0x10 is potentially accessed before it is allocated
=========
=========         Host Frame: <module> in cupy_to_jax.py:9
=========
========= Invalid __global__ read of size 16 bytes
=========     and is inside the nearest allocation at 0x4920040400 of size 262,144 bytes
RESULT [1.0]
=========         Host Frame: read in torch_freed.py:LINE
=========         Host Frame: run in common.py:29
=========
========= Use-after-free on allocation of size 4 bytes at 0x20
=========         Host Frame: run in common.py:29
=========
========= Use-after-free on allocation of size 262,144 bytes at 0x10
=========         Host Frame: _start [0x257a04] in python3
=========
========= Error: process didn't terminate successfully
========= Target application returned an error
========= ERROR SUMMARY: 4 errors
Traceback (most recent call last):
    return y.max().get()  # the read
"""


def test_of_memcheck_only_reports_of_the_arrays_in_the_rounds_count():
    program = (races_run.HERE / "torch_freed.py").read_text().splitlines()
    number = next(at for at, line in enumerate(program, 1) if "# the read" in line)
    before, read, small, unknown = sanitizer_reports(FREED.replace("LINE", str(number)))
    ours = [is_ours(one, "torch_freed") for one in (before, read, small, unknown)]
    assert ours == [False, True, False, True]
    assert is_ours(small, "training")
    assert marks("\n".join(framed(read))) == ["the read"]
    assert framed(unknown) == []


@pytest.mark.parametrize(
    ("what", "verdict"),
    [
        ({"kind": "racy", "status": 1, "named": ["proven"], "certain": 1}, "named"),
        ({"kind": "racy", "status": 1, "named": ["suspect"], "certain": 1}, "found"),
        ({"kind": "racy", "status": 0, "named": ["suspect"], "certain": 0}, "not found"),
        ({"kind": "right", "status": 0, "named": [], "certain": 0}, "quiet"),
        ({"kind": "right", "status": 1, "named": [], "certain": 1}, "accused"),
        ({"kind": "right", "status": 2, "named": [], "certain": 0}, "failed"),
        ({"kind": "right", "status": 2, "conclusion": "it was ended for its time: x"}, "timed out"),
        ({"kind": "racy", "status": None, "error": "no JSON"}, "timed out"),
        ({"kind": "racy", "status": 3, "error": "no JSON"}, "failed"),
        ({"kind": "racy", "error": "not begun"}, "failed"),
    ],
)
def test_what_races_found_is_told_from_what_it_could_not_judge(what, verdict):
    assert races_said(what) == verdict
    assert [verdict_of(one) for one in (None, 0, 1, 2)] == [
        *("timed out", "not found", "found", "failed"),
    ]


@pytest.mark.parametrize(
    ("rules", "chosen"),
    [
        ([], ["races a racy", "races b right", "csan a racy", "csan b right"]),
        (["a"], ["races a racy", "csan a racy"]),
        (["races:b:*"], ["races b right", "csan a racy", "csan b right"]),
        (["races:*:racy", "csan:b:racy"], ["races a racy"]),
    ],
)
def test_a_program_is_named_for_every_part_or_for_one(rules, chosen):
    every = [(part, *one) for part in ("races", "csan") for one in (("a", "racy"), ("b", "right"))]
    assert [" ".join(one) for one in every if is_asked(rules, *one)] == chosen


def a_side(line):
    own = str(perturb_judged.PROGRAMS / "p.py")
    return {"stack": [[own, 1, "f", line], ["/elsewhere/torch.py", 2, "g", "# the read"]]}


@pytest.mark.parametrize(
    ("kind", "status", "late", "early", "conclusion", "verdict"),
    [
        ("racy", 1, "x.fill_(1)  # the write", "y.max()  # the read", "", "named"),
        ("racy", 1, "x.fill_(1)  # the write", "y.max()", "", "found"),
        ("racy", 1, "x.fill_(1)  # the write", "y.max()  # the read", "in its end", "failed"),
        ("racy", 0, "", "", "", "not found"),
        ("racy", 2, "", "", "", "failed"),
        ("right", 0, "", "", "", "quiet"),
        ("right", 1, "", "", "in its end", "accused"),
    ],
)
def test_what_perturb_found_is_named_if_both_lines_are_marked(
    kind, status, late, early, conclusion, verdict
):
    race = {"late": a_side(late), "early": a_side(early), "runs": 7} if late else None
    runs = [{"seconds": 2.0}] * 4
    found = {"status": status, "race": race, "runs": runs, "conclusion": conclusion}
    said = perturb_judged.judged("cupy_graph", kind, found)
    assert (said["verdict"], said["runs"]) == (verdict, 11 if late else 4)


BOTH = ["the write", "the read"]


@pytest.mark.parametrize(
    ("status", "kind", "count", "named", "program", "verdict"),
    [
        (0, "racy", 1, BOTH, "cupy_graph", "named"),
        (1, "racy", 1, BOTH[:1], "cupy_graph", "found"),
        (0, "racy", 1, BOTH[:1], "numpy_on_pinned", "named"),
        (0, "racy", 0, [], "cupy_graph", "not found"),
        (1, "racy", 0, [], "cupy_graph", "failed"),
        (None, "racy", 0, [], "cupy_graph", "timed out"),
        (0, "right", 0, [], "cupy_graph", "quiet"),
        (1, "right", 1, BOTH, "cupy_graph", "accused"),
        (0, "plain", 1, [], "training", "accused"),
    ],
)
def test_a_verdict_is_of_what_the_tool_found_and_of_how_the_program_ended(
    status, kind, count, named, program, verdict
):
    assert judged(status, kind, count, named, program)["verdict"] == verdict
