"""Reports: what they say in text and on a page, and how adapters and requirements are found."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cai_bridge._cli import page
from cai_bridge._cli.libraries import Found
from cai_bridge.conformance import (
    ProducerAdapter,
    Report,
    Verdict,
    as_consumer,
    check_consumer,
    check_producer,
    consumer_named,
    producer_named,
    requirements,
)
from cai_bridge.conformance.missing import place_of
from cai_bridge.conformance.report import ConformanceError
from cai_bridge.conformance.requirement import Door
from cai_bridge.testing import SimulatedCuda

MUST = [one for one in requirements("producer") if one.level == "must"]
ADVISED = next(one for one in requirements() if one.level == "should")


def report_of(*verdicts, subject="a_library"):
    return Report(subject, "producer", "the device", verdicts)


def each():
    """One verdict of each kind."""
    return report_of(
        Verdict(MUST[0], "passed", "seen\n  so"),
        Verdict(MUST[1], "failed", "not met", "the_program()"),
        Verdict(ADVISED, "failed", "not followed", "the_other()"),
        Verdict(MUST[2], "skipped", "does not apply"),
    )


def rows(report):
    """The rows of a report's text: what, of which requirement, and the evidence."""
    lines = str(report).splitlines()[1 : len(report.verdicts) + 1]
    return [tuple(line.split(maxsplit=2)) for line in lines]


def test_a_report_has_a_row_for_each_verdict_and_tells_demands_from_advice():
    report = each()
    assert rows(report) == [
        ("passed", MUST[0].name, "seen so"),
        ("failed", MUST[1].name, "not met"),
        ("advice", ADVISED.name, "not followed"),
        ("skipped", MUST[2].name, "does not apply"),
    ]
    assert (
        report_of(*report.verdicts[:2]).summary()
        == "a_library as a producer on the device: 1 passed, 1 failed, 0 skipped"
    )
    with pytest.raises(ConformanceError) as raised:
        report.raise_for_failures()
    assert str(raised.value) == str(report)
    with pytest.raises(KeyError, match="no-such-requirement"):
        report["no-such-requirement"]


def test_a_row_holds_evidence_of_a_line_whole_and_cuts_what_is_longer():
    whole, longer = "w" * 100, "v" * 101
    report = report_of(Verdict(MUST[0], "passed", whole), Verdict(MUST[1], "passed", longer))
    assert [evidence for _, _, evidence in rows(report)] == [whole, "v" * 99 + "…"]


def test_the_page_tells_demands_from_advice():
    text = html.unescape(page.of_reports([each()]))
    assert "<p>1 passed, 1 skipped, 1 advice, 1 failed.</p>" in text
    cells = re.findall(r'<span class="verdict">.*</span> (\w+)</span></td>', text)
    assert cells == ["passed", "failed", "advice", "skipped"]


def test_the_page_names_the_version_of_the_library_that_was_judged(monkeypatch):
    both = (Found("torch", "torch", "2.11.0"), Found("cupy", "cupy-cuda13x", "14.2.0"))
    monkeypatch.setattr("cai_bridge._cli.libraries.find_libraries", lambda: both)
    text = page.of_reports([report_of(Verdict(MUST[0], "passed", ""), subject="to_cai(torch)")])
    assert "torch 2.11.0" in text
    assert "cupy" not in text


def test_a_requirement_has_a_name_of_its_own():
    door, _, name = MUST[0].name.partition("-")
    again = Door("producer", door)(name)
    with pytest.raises(ValueError, match=f"got {MUST[0].name!r}, which is one already"):
        again(lambda producer, lab: None)
    assert MUST[0] in requirements("producer")


@pytest.mark.parametrize(
    ("find", "subject", "said"),
    [
        (producer_named, "to_cai(simulated", r"got 'to_cai\(simulated'; allowed: torch"),
        (producer_named, "to_cai(abacus)", "got 'abacus'"),
        (producer_named, "cli_subjects:make()", r"cli_subjects has no 'make\(\)'"),
        (producer_named, "no_such_module:make", "got 'no_such_module:make', which does not import"),
        (consumer_named, "cli_subjects:nothing", "but cli_subjects has no 'nothing'"),
        (consumer_named, "rmm", "got 'rmm', which is no consumer"),
    ],
)
def test_a_subject_that_cannot_be_found_is_told_with_the_reason(find, subject, said, monkeypatch):
    # A library that makes arrays and takes none, installed or not.
    monkeypatch.setitem(sys.modules, "cai_bridge.conformance.libraries.rmm", sys)
    with pytest.raises(ValueError, match=said):
        find(subject)


def test_a_library_that_the_kit_knows_is_called_as_it_was_asked_for(monkeypatch):
    known = ModuleType("rmm")
    known.Producer = type("Producer", (ProducerAdapter,), {})
    monkeypatch.setitem(sys.modules, "cai_bridge.conformance.libraries.rmm", known)
    assert producer_named("rmm").name == "rmm"
    assert producer_named("cli_subjects:make").name == "make"


class Mixed(ProducerAdapter, dict):
    """Of a base in C, whose signature nobody knows."""

    def make(self, shape, dtype):
        return SimulatedCuda.current().array(shape=shape, dtype=dtype, speaks=("cai", "dlpack"))


def test_a_class_without_a_signature_may_be_an_adapter():
    report = check_producer(Mixed, only="cai-shape")
    assert (report.subject, report["cai-shape"].outcome) == ("Mixed", "passed")
    # The program of a failure finds it by its name, too.
    assert isinstance(producer_named(f"{__name__}:Mixed"), Mixed)


def test_a_function_that_takes_arrays_is_the_place_to_say_more():
    def taking(x):
        return x

    assert as_consumer(taking).take("an array") == "an array"
    report = check_consumer(taking)
    places = {one.missing_in for one in report.verdicts if one.missing}
    assert len(places) == 1
    assert "taking, " in places.pop()


def test_a_place_elsewhere_is_told_by_its_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path(json.decoder.__file__)
    assert place_of(json.JSONDecoder).startswith(f"JSONDecoder, {path}:")
