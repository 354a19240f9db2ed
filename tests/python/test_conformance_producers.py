"""What is required of producers: a library that keeps it all, and one for each that breaks it."""

from __future__ import annotations

import broken_producers
import producers
import pytest
from fakes import FREE_THREADED
from planted import rows, run_printed
from producers import BROKEN, WITHOUT, Library

from cai_bridge import DriverError
from cai_bridge.conformance import (
    ConformanceError,
    UnmetError,
    check_producer,
    requirements,
)
from cai_bridge.testing import NotEquivalentError

# A faulty library may also raise where nobody can pass it on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ALL = requirements("producer")
SAME = {
    # What the main thread alone lets go of is held where a capsule goes in another thread, too.
    "dlpack-deleter-anywhere": {"dlpack-deleter-anywhere", "dlpack-unconsumed"},
}


def test_the_reference_keeps_every_promise(lab):
    report = check_producer(Library, lab=lab)
    left = {one.name: one.evidence for one in report.verdicts if one.outcome != "passed"}
    assert left.keys() == WITHOUT | {f"{door}-extents" for door in ("cai", "dlpack", "exchange")}, (
        left
    )
    assert {one.name for one in report.failed} == {"exchange-errors"}
    assert report.ok


def test_there_is_a_producer_that_breaks_each():
    planted = {name for row in rows("planted").values() for name in row["caught"]}
    names = {one.name for one in ALL} - {"exchange-errors"}
    assert names - planted <= set(BROKEN) <= names


@pytest.mark.some(12)
@pytest.mark.parametrize("name", BROKEN)
def test_a_producer_that_breaks_one_fails_in_that_one_and_what_follows(name, lab):
    if name == "dlpack-deleter-anywhere" and FREE_THREADED:
        pytest.skip("what the main thread made is let go of by the main thread")
    report = check_producer(BROKEN[name], lab=lab)
    assert report[name].outcome == "failed"
    causes = {one.name: one.evidence for one in report.causes}
    assert name in causes
    assert causes.keys() - {"exchange-errors"} <= SAME.get(name, {name}), causes
    # What the library does at its worst is raised by the driver.
    with pytest.raises((UnmetError, NotEquivalentError, DriverError, BufferError)):
        run_printed(report[name].program)
    run_printed(next(one for one in ALL if one.name == name).program("producers:Library"))
    assert report.ok == (report[name].requirement.level == "should")


def test_a_report_that_is_not_ok_raises_with_all_that_is_needed(lab):
    report = check_producer(BROKEN["cai-shape"], lab=lab, only="cai-shape")
    with pytest.raises(ConformanceError) as caught:
        report.raise_for_failures()
    for part in (
        "cai-shape",
        "Python Interface Specification",
        "[3, 4]",
        "open_lab('simulated') as lab",
    ):
        assert part in str(caught.value)


del broken_producers, producers
