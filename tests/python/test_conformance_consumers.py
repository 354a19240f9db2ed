"""What is required of consumers: one that keeps it all, and one for each that breaks it."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from broken_consumers import BROKEN
from planted import rows, run_printed

from cai_bridge import conformance
from cai_bridge.conformance import (
    check_consumer,
    consumer_named,
    requirements,
)
from cai_bridge.conformance.libraries.simulated import Consumer
from cai_bridge.conformance.missing import near
from cai_bridge.conformance.refusals import NotTakenError

# A faulty library may also raise where nobody can pass it on.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.faulty,
]

ALL = requirements("consumer")
SAME = {
    # A change of a method that others rest on, too.
    "takes-dlpack-columns": {"takes-dlpack-columns", "takes-dlpack-byte-offset"},
    # Tensors of three axes that are shifted, too, and reversed ones of the older structure.
    "takes-dlpack-values": {"takes-dlpack-values", "takes-dlpack-byte-offset"},
    "takes-dlpack-legacy": {
        *("takes-dlpack-legacy", "takes-dlpack-byte-offset", "takes-dlpack-reversed"),
    },
    "takes-cai-readonly": {"takes-cai-readonly", "takes-cai-other-stream"},
    "takes-dlpack-readonly": {
        *("takes-dlpack-readonly", "takes-dlpack-other-stream", "takes-dlpack-deleter-queued"),
    },
    "takes-cai-return": {"takes-cai-return", "takes-dlpack-deleter-queued"},
}
TEXTS = tomllib.loads(files(conformance).joinpath("requirements.toml").read_text("utf-8"))
EXAMPLES = Path(__file__).parents[2] / "examples"
TOY = (EXAMPLES / "toy_library.py").read_text().splitlines()
LINE = TOY.index("class Consumer(ConsumerAdapter):") + 1
PLACE = f"Consumer, {near(str(EXAMPLES / 'toy_library.py'))}:{LINE}"


def not_passed(report):
    return {one.name: one.evidence for one in report.verdicts if one.outcome != "passed"}


def test_the_careful_consumer_keeps_every_promise(lab):
    report = check_consumer(consumer_named("simulated"), lab=lab)
    assert not_passed(report) == {}
    assert [one.name for one in report.verdicts] == [one.name for one in ALL]


# Dicts before version 3 name no stream.
@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
def test_the_toy_library_of_the_examples_keeps_all_that_applies(lab, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    report = check_consumer(consumer_named("toy_library:Consumer"), lab=lab)
    assert report.ok
    assert {one.requirement.level for one in report.failed} <= {"should"}
    assert set(report.missing()) == {("fill(array, value)", PLACE)}


def test_a_consumer_of_one_protocol_is_judged_by_it_only(lab):
    class OnlyCai(Consumer):
        doors = ("cai",)

    report = check_consumer(OnlyCai, lab=lab)
    assert report.ok
    assert {one.requirement.door: one.outcome for one in report.verdicts} == {
        "cai": "passed",
        "dlpack": "skipped",
    }


def test_there_is_a_consumer_that_breaks_each():
    planted = {name for row in rows("planted").values() for name in row["caught"]}
    assert {one.name for one in ALL} - planted <= set(BROKEN) <= {one.name for one in ALL}


@pytest.mark.some(12)
@pytest.mark.parametrize("name", BROKEN)
def test_a_consumer_that_breaks_one_fails_in_that_one_and_what_follows(name, lab):
    report = check_consumer(BROKEN[name], lab=lab)
    assert report[name].outcome == "failed"
    others = {
        one.name: one.evidence for one in report.causes if one.name not in SAME.get(name, {name})
    }
    assert others == {}


ORDER = [
    *("takes-cai-stream", "takes-cai-return", "takes-cai-return-write", "takes-dlpack-pending"),
]


@pytest.mark.parametrize("name", ORDER)
def test_a_missing_order_shows_in_the_values_too(name, lab, monkeypatch):
    monkeypatch.setattr(lab, "reports", list)
    verdict = check_consumer(BROKEN[name], lab=lab, only=name)[name]
    assert verdict.outcome == "failed"
    assert "saw" in verdict.evidence or "instead of" in verdict.evidence


@pytest.mark.parametrize(
    "one", [one for one in ALL if one.name in BROKEN], ids=lambda one: one.name
)
def test_a_failure_comes_with_a_program_that_shows_it(one, lab):
    program = check_consumer(BROKEN[one.name], lab=lab, only=one.name)[one.name].program
    assert repr(f"broken_consumers:{BROKEN[one.name].__name__}") in program
    with pytest.raises((AssertionError, BufferError, KeyError, NotTakenError, RuntimeError)):
        run_printed(program)
    run_printed(one.program("simulated"))


@pytest.mark.parametrize("one", requirements(), ids=lambda one: one.name)
def test_a_requirement_says_where_it_is_written(one):
    assert one.specification.url.startswith("https://")
    assert one.section
    assert one.rule
    assert one.why
    assert one.level in ("must", "should")
    if one.role == "consumer":
        assert one.door in ("cai", "dlpack")
        assert one.name.startswith(f"takes-{one.door}-")


def test_each_row_of_the_requirements_has_a_check():
    assert TEXTS.keys() == {one.name for one in requirements()}


def test_a_requirement_comes_after_those_that_it_rests_on():
    before = set()
    for one in requirements():
        assert before.issuperset(one.rests_on), one.name
        before.add(one.name)


def test_a_requirement_quotes_the_sentence_of_its_section():
    (one,) = (one for one in requirements() if one.name == "cai-shape")
    assert one.quote == "A tuple of int (or long) representing the size of each dimension."
