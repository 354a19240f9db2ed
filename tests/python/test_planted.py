"""The kit tried from outside: planted faults are caught by name, and unusual libraries pass."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import planted
import pytest
from fakes import FREE_THREADED

from cai_bridge import DriverError
from cai_bridge.conformance import (
    UnmetError,
    check_consumer,
    judging,
    requirements,
)
from cai_bridge.conformance.cases import AXES as AXES_DECLARED
from cai_bridge.conformance.cases import Case, cases_of, explains, shared, values_of
from cai_bridge.conformance.refusals import NotTakenError
from cai_bridge.testing import NotEquivalentError

FAULTS, RIGHT = planted.rows("planted"), planted.rows("unusual")
# A faulty library may also raise where nobody can pass it on, or delete a tensor twice.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.faulty,
]
# No function in Python can fail with an exception set.
NAMES = {one.name: one for one in requirements() if one.name != "exchange-errors"}
PLAIN = {
    requirement: (role, name)
    for role in planted.BASES
    for requirement, name in planted.plain(role).items()
}
# These are judged by all requirements here; `python tests/python/planted.py` takes each.
SAMPLE = [*dict.fromkeys([*PLAIN.values(), *[*FAULTS][::36]])]


def named(key):
    return f"{key[0]}-{key[1].replace(' ', '-')}"


def needs_one_thread(row):
    if FREE_THREADED and "dlpack-deleter-anywhere" in row["caught"]:
        pytest.skip("what the main thread made is let go of by the main thread")


@pytest.mark.some(5)
@pytest.mark.parametrize("key", FAULTS, ids=named)
def test_a_planted_fault_is_caught_by_name(key, lab):
    role, name = key
    row = FAULTS[key]
    needs_one_thread(row)
    report = planted.CHECKS[role](planted.library(role, name, row), lab=lab, only=row["caught"])
    assert [one.name for one in report.failed] == row["caught"]


@pytest.mark.some(27)
@pytest.mark.parametrize("key", SAMPLE, ids=named)
def test_a_planted_fault_leads_no_failure_of_another_demand(key, lab):
    role, name = key
    row = FAULTS[key]
    needs_one_thread(row)
    report = planted.CHECKS[role](planted.library(role, name, row), lab=lab)
    leads = {one.name: one.evidence for one in report.causes if one.requirement.level == "must"}
    assert leads.keys() <= set(row["caught"]), leads
    assert report.ok == all(NAMES[one].level == "should" for one in row["caught"])


SAID = {
    "cai-stream-lifetime": ", which is gone with its object: cuEventRecord: got CUDA_ERROR_",
    "cai-shape": "shape is [3, 4], a list",
    "dlpack-no-host-wait": "the host waited for the write",
}


@pytest.mark.parametrize("requirement", PLAIN)
def test_a_failure_comes_with_a_program_that_shows_it(requirement, lab):
    role, name = PLAIN[requirement]
    needs_one_thread(FAULTS[role, name])
    kind = planted.faulty(role, requirement)
    found = planted.CHECKS[role](kind, lab=lab, only=requirement)[requirement]
    assert SAID.get(requirement, "") in found.evidence
    program = found.program
    assert repr(f"{kind.__module__}:{planted.CLASSES[role]}") in program
    # What the library does at its worst is raised by the driver.
    expected = (UnmetError, NotEquivalentError, NotTakenError, DriverError, BufferError, KeyError)
    with pytest.raises((*expected, RuntimeError, AssertionError)):
        planted.run_printed(program)
    right = f"{planted.BASES[role].stem}:{planted.CLASSES[role]}"
    planted.run_printed(NAMES[requirement].program(right))


ORDER = ("takes-cai-stream", "takes-cai-return", "takes-cai-return-write", "takes-dlpack-pending")


@pytest.mark.parametrize("name", ORDER)
def test_a_missing_order_shows_in_the_values_too(name, lab, monkeypatch):
    monkeypatch.setattr(lab, "reports", list)
    verdict = check_consumer(planted.faulty("consumer", name), lab=lab, only=name)[name]
    assert verdict.outcome == "failed"
    assert "saw" in verdict.evidence or "instead of" in verdict.evidence


# `python tests/python/planted.py` takes each.
JUDGED = [
    *[*RIGHT][::18],
    ("producer", "slices are copies"),
    ("producer", "the shape is a subclass of tuple, and numbers are of int"),
    ("producer", "the device is a named tuple with an enum"),
    ("producer", "data is the allocation's start, byte_offset says the rest"),
    ("consumer", "it copies what it takes"),
]


@pytest.mark.some(4)
@pytest.mark.parametrize("key", dict.fromkeys(JUDGED), ids=named)
def test_an_unusual_library_that_is_right_is_not_accused(key, lab):
    role, name = key
    report = planted.CHECKS[role](planted.library(role, name, RIGHT[key]), lab=lab)
    accused = {one.name: one.evidence for one in report.failed if one.requirement.level == "must"}
    assert accused == {}


@pytest.mark.parametrize("role", planted.BASES)
def test_the_library_that_faults_are_planted_in_keeps_all_along_each_axis(role, lab, monkeypatch):
    seen = {}
    judged = judging._judge_in

    def noted(requirement, case, *more):
        made = judged(requirement, case, *more)
        seen.setdefault(requirement.name, set()).update(case.looked_at)
        return made

    monkeypatch.setattr(judging, "_judge_in", noted)
    begin = time.process_time()
    report = planted.CHECKS[role](planted.library(role, "right", {"change": []}), lab=lab)
    assert time.process_time() - begin < 30
    left = {one.name for one in report.verdicts if one.outcome != "passed"}
    # A function in Python cannot leave an exception set for who calls it by a table.
    assert left == ({"exchange-errors"} if role == "producer" else set())
    if role == "producer":
        assert "(1, 0) is served" in report["dlpack-dl-device"].evidence.split("; ")
    unread = {
        one.name: missing
        for one in requirements(role)
        if (missing := {axis for axis in one.over if len(one.over[axis]) > 1} - seen[one.name])
    }
    assert unread == {}


def test_what_rows_name_exists_and_there_are_enough():
    for (role, _), row in (*FAULTS.items(), *RIGHT.items()):
        planted.source(role, row)  # each text that it changes occurs once
    count = Counter(name for row in FAULTS.values() for name in row["caught"])
    assert count.keys() == NAMES.keys()
    assert {name: times for name, times in count.items() if times < 3} == {}
    assert len(RIGHT) >= 40


# Not `current`: what it finds, `around` and `through` find as well.
AXES = {"layout": 1, "dtype": 1, "work": 1, "stream": 1, "route": 1, "moment": 1}


@pytest.mark.some(3)
@pytest.mark.parametrize("axis", AXES)
def test_each_axis_finds_faults_that_are_missed_without_it(axis, lab):
    missed = planted.missed_without(axis, lab, enough=AXES[axis])
    assert len(missed) >= AXES[axis]


def test_pairs_of_values_are_together_in_some_case():
    over = {
        "work": ("a write", "two writes", "a copy"),
        "layout": ("whole", "rows", "columns", "permuted"),
        "moment": ("first", "again", "after an end"),
        "flag": ("writable", "read-only"),
    }
    cases = cases_of(over, ("float32",))
    thorough = cases_of(over, ("float32",), thorough=True)
    assert cases[0] == Case()
    assert len(cases) < len(thorough) < 3 * 4 * 3 * 2
    for strength, some in ((2, cases), (3, thorough)):
        for axes in itertools.combinations(over, strength):
            together = {tuple(one.at(axis) for axis in axes) for one in some}
            assert together == set(itertools.product(*(over[axis] for axis in axes)))


def test_a_failure_explains_those_with_its_layouts_traits():
    over = {"layout": ("whole", "columns", "permuted")}
    assert explains(Case(), over, Case(layout="permuted", moment="again"))
    assert explains(Case(layout="columns"), over, Case(layout="every second of 1-D"))
    assert not explains(Case(layout="columns"), over, Case())
    assert not explains(Case(layout="permuted"), over, Case(layout="columns"))


def test_what_failures_share_is_told():
    every = [Case(), Case(dtype="float64"), Case(layout="rows", dtype="float64")]
    assert shared(every[1:], every) == "dtype 'float64'"
    assert shared(every, every) == ""


@pytest.mark.parametrize("one", requirements(), ids=lambda one: one.name)
def test_a_requirement_holds_along_each_axis_of_its_door_or_says_why_not(one):
    axes = {axis for axis in AXES_DECLARED if values_of(axis, one.role, one.door)}
    assert one.over.keys() | one.left_out.keys() == axes
    assert not one.over.keys() & one.left_out.keys()
    for reason in one.left_out.values():
        assert len(reason.split()) > 1
