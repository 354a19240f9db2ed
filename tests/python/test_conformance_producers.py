"""A producer that keeps all that is required, and the report of one that does not."""

from __future__ import annotations

import pytest
from producers import WITHOUT, Library, ListedShape

from cai_bridge.conformance import ConformanceError, check_producer


def test_the_reference_keeps_every_promise(lab):
    report = check_producer(Library, lab=lab)
    left = {one.name: one.evidence for one in report.verdicts if one.outcome != "passed"}
    assert left.keys() == WITHOUT | {f"{door}-extents" for door in ("cai", "dlpack", "exchange")}, (
        left
    )
    assert {one.name for one in report.failed} == {"exchange-errors"}
    assert report.ok


def test_a_report_that_is_not_ok_raises_with_all_that_is_needed(lab):
    report = check_producer(ListedShape, lab=lab, only="cai-shape")
    with pytest.raises(ConformanceError) as caught:
        report.raise_for_failures()
    for part in (
        "cai-shape",
        "Python Interface Specification",
        "[3, 4]",
        "open_lab('simulated') as lab",
    ):
        assert part in str(caught.value)
