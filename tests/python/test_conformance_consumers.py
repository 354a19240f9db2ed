"""What is required of consumers, one that keeps it all, and how requirements are written."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from cai_bridge import conformance
from cai_bridge.conformance import (
    check_consumer,
    consumer_named,
    requirements,
)
from cai_bridge.conformance.libraries.simulated import Consumer
from cai_bridge.conformance.missing import near

ALL = requirements("consumer")
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
