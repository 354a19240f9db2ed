"""Reports: what they say in text and on a page, and how adapters and requirements are found."""

from __future__ import annotations

import functools
import html
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cai_bridge._cli import matrix_page, page
from cai_bridge._cli.libraries import Found
from cai_bridge._cli.table import Table
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
from cai_bridge.conformance.isolated import check_isolated
from cai_bridge.conformance.matrix import Aspect, Cell, Matrix
from cai_bridge.conformance.missing import place_of
from cai_bridge.conformance.report import ConformanceError
from cai_bridge.conformance.requirement import Door, chosen
from cai_bridge.conformance.tracebacks import traceback_of
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


# --- as text --------------------------------------------------------------------------------------


def test_a_report_has_a_row_for_each_verdict_and_tells_demands_from_advice():
    assert rows(each()) == [
        ("passed", MUST[0].name, "seen so"),
        ("failed", MUST[1].name, "not met"),
        ("advice", ADVISED.name, "not followed"),
        ("skipped", MUST[2].name, "does not apply"),
    ]


def test_a_row_holds_evidence_of_a_line_whole_and_cuts_what_is_longer():
    whole, longer = "w" * 100, "v" * 101
    report = report_of(Verdict(MUST[0], "passed", whole), Verdict(MUST[1], "passed", longer))
    assert [evidence for _, _, evidence in rows(report)] == [whole, "v" * 99 + "…"]


def test_as_many_passed_as_failed_is_not_nothing():
    summary = report_of(Verdict(MUST[0], "passed", ""), Verdict(MUST[1], "failed", "")).summary()
    assert summary == "a_library as a producer on the device: 1 passed, 1 failed, 0 skipped"


def test_a_report_that_is_raised_is_the_message():
    with pytest.raises(ConformanceError) as raised:
        each().raise_for_failures()
    assert str(raised.value) == str(each())


def test_a_verdict_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="no-such-requirement"):
        each()["no-such-requirement"]


# --- on a page ------------------------------------------------------------------------------------


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


def a_table(**outcomes):
    """A table of one pair and one route, by the outcome of each aspect."""
    aspects = {name: Aspect(outcome, f"{name} told") for name, outcome in outcomes.items()}
    cell = Cell("maker", "taker", "x by CAI", "cai", False, aspects)
    return Table(Matrix("here", "2026", "0", {}, 1, ("maker",), ("taker",), (cell,)))


def test_what_was_seen_of_a_pair_comes_gravest_first():
    (pair,) = matrix_page._shown(a_table(values="right", handover="waits", dtypes="wrong"))["pairs"]
    assert (pair["producer"], pair["consumer"]) == ("maker", "taker")
    assert [(one["kind"].word, one["aspect"], one["detail"]) for one in pair["seen"]] == [
        ("wrong", "dtypes", "dtypes told"),
        ("blocks", "handover", "handover told"),
        ("right", "values", "values told"),
    ]
    assert {one["route"] for one in pair["seen"]} == {"x by CAI"}


def test_each_outcome_is_counted_in_one_row():
    words = [one["kind"].word for one in matrix_page._shown(a_table(values="right"))["tally"]]
    assert words == ["right", "refused", "blocks", "ignored", "wrong", "crashed", "none"]


# --- requirements and adapters --------------------------------------------------------------------


def test_a_requirement_has_a_name_of_its_own():
    door, _, name = MUST[0].name.partition("-")
    again = Door("producer", door)(name)
    with pytest.raises(ValueError, match=f"got {MUST[0].name!r}, which is one already"):
        again(lambda producer, lab: None)
    assert MUST[0] in requirements("producer")


def test_a_check_stays_a_function(monkeypatch):
    monkeypatch.setattr("cai_bridge.conformance.requirement._REQUIREMENTS", {})

    def check(producer, lab):
        return None

    register = Door("producer", "cai")("shape")
    assert register(check) is check


@pytest.mark.parametrize(
    ("find", "subject", "said"),
    [
        (producer_named, "to_cai(simulated", r"got 'to_cai\(simulated'; allowed: torch"),
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


def test_an_error_of_the_kit_alone_is_told_with_its_last_line():
    with pytest.raises(ValueError, match="no-such-requirement") as raised:
        chosen("producer", "no-such-requirement")
    error = raised.value
    told = traceback_of(error.with_traceback(error.__traceback__.tb_next))
    assert "in chosen" in told


# --- in child processes ---------------------------------------------------------------------------

LIBRARY = """
import atexit, time
import cli_subjects

class Raising(cli_subjects.Producer):
    def __init__(self):
        raise RuntimeError("out of luck")

class Interrupted(cli_subjects.Producer):
    def __init__(self):
        raise KeyboardInterrupt

class Leaving(cli_subjects.Producer):
    def make(self, shape, dtype):
        atexit.register(self.leave)
        return super().make(shape, dtype)

    def leave(self):
        time.sleep(0.3)
        with open("left", "w") as file:
            file.write("at its leisure")
"""


@pytest.fixture
def apart(tmp_path, monkeypatch):
    """Judges a subject of the library by one requirement, in a child process."""
    (tmp_path / "in_a_child.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return functools.partial(check_isolated, "producer", only="cai-shape")


def test_a_subject_that_raises_in_the_child_is_refused_with_what_it_raised(apart):
    said = "got 'in_a_child:Raising', which raised RuntimeError: out of luck"
    with pytest.raises(ValueError, match=said):
        apart("in_a_child:Raising")


def test_a_child_that_is_interrupted_is_no_refusal(apart):
    with pytest.raises(RuntimeError, match="did not begin: SIGINT"):
        apart("in_a_child:Interrupted")


def test_a_child_judges_where_it_can_if_no_place_is_named(apart):
    assert [one.name for one in apart("simulated").verdicts] == ["cai-shape"]


def test_a_child_that_is_done_may_leave_in_its_own_time(apart, tmp_path):
    report = apart("in_a_child:Leaving", where="simulated")
    assert report["cai-shape"].outcome == "passed"
    assert (tmp_path / "left").read_text() == "at its leisure"
