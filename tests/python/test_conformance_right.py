"""Libraries that keep all that is required, and how requirements are written."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from producers import WITHOUT, Array, Library, current_stream, device, in_a_circle, speaking

from cai_bridge import conformance
from cai_bridge.conformance import check_consumer, check_producer, consumer_named, requirements
from cai_bridge.conformance.libraries.simulated import Consumer
from cai_bridge.conformance.missing import near

TEXTS = tomllib.loads(files(conformance).joinpath("requirements.toml").read_text("utf-8"))
EXAMPLES = Path(__file__).parents[2] / "examples"
TOY = (EXAMPLES / "toy_library.py").read_text().splitlines()
LINE = TOY.index("class Consumer(ConsumerAdapter):") + 1
PLACE = f"Consumer, {near(str(EXAMPLES / 'toy_library.py'))}:{LINE}"


def worked_on(array):
    """Queue work on a stream of the array's own: it writes what is there."""
    if array.memory.block is not None and not array.readonly:
        stream = device().stream()
        array.memory.order_before(stream)
        stream.launch(writes=[array.region], name="the library's own work")
        array.memory.queued(stream)
    return array


@classmethod
def with_work_pending(cls, shape, dtype):
    return worked_on(Array.empty.__func__(cls, shape, dtype))


def sliced_with_work_pending(self, index):
    return worked_on(Array.__getitem__(self, index))


def filled_behind_its_own_work(self, value):
    self.memory.order_before(current_stream())
    Array.fill(self, value)


KINDS = {
    "as it is": Library.array,
    "in garbage cycles": speaking("Circular", empty=in_a_circle),
    "always at work": speaking(
        "Busy",
        empty=with_work_pending,
        __getitem__=sliced_with_work_pending,
        fill=filled_behind_its_own_work,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_library_that_is_right_passes(kind, lab):
    report = check_producer(type("Right", (Library,), {"array": KINDS[kind]}), lab=lab)
    told = {one.name: one.evidence for one in report.failed}
    # No function in Python fails with an exception set, which is advice.
    assert told.keys() == {"exchange-errors"}, told
    assert report.ok
    if kind == "as it is":
        left = {one.name for one in report.verdicts if one.outcome != "passed"}
        assert left == WITHOUT | {f"{door}-extents" for door in ("cai", "dlpack", "exchange")}
    assert {one.name for one in report.verdicts if not one.evidence} == set()


class Circular(Consumer):
    """Its arrays are freed by the garbage collector alone."""

    def take(self, x):
        array = super().take(x)
        array.itself = array
        return array


class Eager(Consumer):
    """It looks at what it takes in, at once."""

    def take(self, x):
        array = super().take(x)
        self.current.read(array.region, name="the consumer's own read")
        self.give_back_read(array)
        return array


@pytest.mark.parametrize("consumer", [Consumer, Circular, Eager])
def test_a_consumer_that_is_right_passes(consumer, lab):
    report = check_consumer(consumer, lab=lab)
    assert {one.name: one.evidence for one in report.verdicts if one.outcome != "passed"} == {}
    assert [one.name for one in report.verdicts] == [one.name for one in requirements("consumer")]
    assert {one.name for one in report.verdicts if not one.evidence} == set()


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
    outcomes = {one.requirement.door: one.outcome for one in report.verdicts}
    assert outcomes == {"cai": "passed", "dlpack": "skipped"}


def test_a_requirement_says_where_it_is_written_and_comes_after_those_that_it_rests_on():
    assert TEXTS.keys() == {one.name for one in requirements()}
    before = set()
    for one in requirements():
        assert one.specification.url.startswith("https://"), one.name
        assert all((one.section, one.rule, one.why)), one.name
        assert one.level in ("must", "should")
        if one.role == "consumer":
            assert one.door in ("cai", "dlpack")
            assert one.name.startswith(f"takes-{one.door}-")
        assert before.issuperset(one.rests_on), one.name
        before.add(one.name)


def test_a_requirement_quotes_the_sentence_of_its_section():
    (one,) = (one for one in requirements() if one.name == "cai-shape")
    assert one.quote == "A tuple of int (or long) representing the size of each dimension."
