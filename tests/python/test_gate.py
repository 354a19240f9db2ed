"""What a library's own CI gates on, where libraries are judged, and the reports for upstream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import upstream

from cai_bridge._cli.exits import UsageError
from cai_bridge._cli.gate import Earlier, junit_of
from cai_bridge._cli.upstream import write_pages
from cai_bridge.conformance import (
    ConsumerAdapter,
    ProducerAdapter,
    Report,
    Verdict,
    check_consumer,
    check_producer,
    requirements,
)
from cai_bridge.conformance.known import known
from cai_bridge.conformance.verdict import Outcome

MUST = [one for one in requirements("producer") if one.level == "must"]
ADVICE = next(one for one in requirements("producer") if one.level == "should")


def report(*outcomes: Outcome, advice: Outcome = "passed") -> Report:
    verdicts = [
        Verdict(one, outcome, "seen \x00", "print(1)")
        for one, outcome in zip(MUST, outcomes, strict=False)
    ]
    return Report("lib", "producer", "here", (*verdicts, Verdict(ADVICE, advice, "seen")))


def earlier(tmp_path: Path, made: Any) -> Earlier:
    path = tmp_path / "last.json"
    path.write_text(made if isinstance(made, str) else json.dumps({"reports": [made.to_dict()]}))
    return Earlier.read(str(path))


def test_what_is_new_and_what_is_mended_are_told(tmp_path):
    before = earlier(tmp_path, report("failed", "passed", "failed", "passed"))
    found = before.compared([report("passed", "failed", "failed", "skipped", advice="failed")])
    names = [one.name for one in MUST]
    assert [key[2] for key in found.mended] == [names[0]]
    assert [key[2] for key in found.broken] == [names[1], ADVICE.name]
    assert [key[2] for key in found.unjudged] == [names[3]]
    assert (found.still, found.ok) == (1, False)
    assert "2 new failure, 1 not judged any more, 1 mended; 1 fail as before" in str(found)
    # Old failures and new advice do not fail the gate.
    old = report("failed", "passed", "failed", "passed", advice="failed")
    assert before.compared([old]).ok


@pytest.mark.parametrize(
    "text", ["", "[]", '{"reports": [1]}', '{"reports": [{"verdicts": []}, {}]}']
)
def test_a_file_that_no_run_wrote_is_refused(text, tmp_path):
    with pytest.raises(UsageError, match="--against: got"):
        earlier(tmp_path, text)


def test_junit_counts_failures_and_has_advice_among_what_is_skipped():
    made = report("failed", "passed", "skipped", advice="failed")
    (suite,) = ElementTree.fromstring(junit_of([made]))
    assert [suite.get(key) for key in ("tests", "failures", "skipped")] == ["4", "1", "2"]
    assert [child.tag for case in suite for child in case] == ["failure", "skipped", "skipped"]


def test_a_page_is_written_for_each_cause_that_is_demanded(tmp_path):
    made = report("failed", "passed", advice="failed")
    (path,) = map(Path, write_pages([made], str(tmp_path / "pages")))
    text = path.read_text()
    for part in (MUST[0].rule, MUST[0].specification.url, "```python\nprint(1)\n```", "seen"):
        assert part in text


class OfEither(np.ndarray):
    """An array whose class has the dict of GPU arrays, as PyTorch's, here on the CPU."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AttributeError("the array is on the CPU")


class Arrays(ProducerAdapter):
    """NumPy's arrays, or those of a library of both places."""

    dtypes = ("float32", "int16", "bool")
    kind: type[np.ndarray] = np.ndarray

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        return np.empty(shape, dtype).view(self.kind)


class EitherArrays(Arrays):
    kind = OfEither


class Takes(ConsumerAdapter):
    """NumPy, taking arrays of the CPU."""

    dtypes = ("float32", "int16", "bool")

    def take(self, x: Any) -> Any:
        return np.from_dlpack(x)

    def fill(self, array: Any, value: float) -> None:
        array.fill(value)


@pytest.mark.parametrize("adapter", [Arrays, EitherArrays, Takes])
def test_a_library_of_the_cpu_is_judged_there(adapter):
    made = (check_consumer if adapter is Takes else check_producer)(adapter)
    assert [one.name for one in made.failed if one.requirement.level == "must"] == []
    assert made.place.startswith("the CPU, where its arrays are")
    assert sum(one.outcome == "passed" for one in made.verdicts) >= 15


class Raises(ConsumerAdapter):
    """A consumer that takes nothing."""

    error: type[Exception]

    def take(self, x: Any) -> Any:
        raise self.error("out of luck")


@pytest.mark.parametrize("error", [IndexError, ValueError, BufferError, SystemError])
def test_a_consumer_that_takes_nothing_passes_nothing(error):
    made = check_consumer(type("Raises", (Raises,), {"error": error}))
    passed = {one.name for one in made.verdicts if one.outcome == "passed"}
    assert passed <= {"takes-dlpack-buffer-error", "takes-dlpack-device"}, passed
    if error is SystemError:  # which is no refusal
        found = made["takes-cai-mask"]
        assert (found.outcome, found.raised) == ("failed", "SystemError: out of luck")


@pytest.mark.parametrize("check", [check_producer, check_consumer])
def test_a_class_of_arrays_is_told_from_an_adapter(check):
    with pytest.raises(TypeError, match="is a class of arrays: it has __dlpack__"):
        check(type("Spoken", (), {"__dlpack__": lambda self: None}))


ROWS = {one.name: one for one in requirements()}
INDEX = (upstream.FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", upstream.PAGES, ids=lambda page: page.stem)
def test_a_short_program_shows_on_a_double_what_the_library_is_known_not_to_meet(page):
    assert f"({page.name})" in INDEX
    library, requirement = upstream.names(page)
    assert ROWS[requirement].level == "must"
    assert requirement in known("xfails")[library]
    text = page.read_text(encoding="utf-8")
    assert (ROWS[requirement].quote or ROWS[requirement].rule) in text
    program, printed = upstream.parts(page)
    assert len(program.splitlines()) <= 25
    with upstream.doubled(library):
        assert upstream.printed_by(program) == printed


def test_a_double_without_the_fault_prints_something_else(monkeypatch):
    program, printed = upstream.parts(upstream.FOLDER / "torch-cai-version.md")
    monkeypatch.setattr(upstream.Second, "version", 3)
    with upstream.doubled("torch"):
        assert upstream.printed_by(program) != printed
