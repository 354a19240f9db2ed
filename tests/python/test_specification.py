"""Each sentence of the specification has a test for each side that it binds the bridge in."""

from __future__ import annotations

import json

import pytest
from specification import SENTENCES, SIDES, as_consumer, as_producer

from generating import specification as listing

FOUND = listing.found()


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_has_a_test_for_each_side_or_says_why_it_has_none(name):
    row = SENTENCES[name]
    assert {"id", "version", "section", "sentence"} <= set(row)
    for side in SIDES:
        reason = row.get(f"not_{side}")
        assert bool(reason) != bool(FOUND[side].get(name)), f"{name}: {side}"


def test_no_test_names_a_sentence_that_is_not_there():
    assert set(FOUND["consumer"]) | set(FOUND["producer"]) <= set(SENTENCES)
    with pytest.raises(KeyError):
        as_consumer("no such sentence")
    with pytest.raises(AssertionError, match="does not bind the bridge as producer"):
        as_producer("version-2")


def test_a_marked_test_quotes_its_sentence_and_names_its_section():
    @as_producer("shape")
    @as_consumer("data-retain")
    def marked():
        """And more."""

    sentence, retain = SENTENCES["shape"], SENTENCES["data-retain"]
    assert marked.__doc__.splitlines() == [
        f'As producer, version 3, {sentence["section"]}: "{sentence["sentence"]}"',
        f'As consumer, version 2, {retain["section"]}: "{retain["sentence"]}"',
        "And more.",
    ]


def test_no_sentence_is_there_twice():
    written = [(row["section"], row["sentence"]) for row in SENTENCES.values()]
    assert len(set(written)) == len(written) == len(listing.SENTENCES)


def test_the_page_has_the_result_of_every_test_and_each_of_them_passed():
    last = json.loads(listing.RESULTS.read_text())
    results = last["tests"]
    shown = {
        f"{file}::{test}" for side in FOUND.values() for row in side.values() for file, test in row
    }
    assert shown <= set(results)
    for test in shown:
        assert results[test].keys() == {"passed"}, test
    page = listing.page(last)
    assert ("not run" in page, " failed," in page) == (False, True)
    assert ", 0 failed, 0 skipped." in page


def test_what_was_not_run_or_failed_is_told():
    row, tests = SENTENCES["shape"], {"shape": [("a.py", "test_it")]}
    cell = listing.cell
    failed = {"a.py::test_it": {"passed": 3, "failed": 1}}
    assert cell(row, "consumer", tests, failed).endswith(
        "(../tests/python/a.py): 3 passed, 1 failed"
    )
    assert cell(row, "consumer", tests, {}).endswith("): 1 not run")
