"""Each sentence of the specification has a test for each side that it binds the bridge in."""

import json

import pytest
from specification import SENTENCES, SIDES, as_producer

from generating import specification as listing

FOUND = listing.found()


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_has_a_test_for_each_side_or_says_why_it_has_none(name):
    for side in SIDES:
        reason = SENTENCES[name].get(f"not_{side}")
        assert bool(reason) != bool(FOUND[side].get(name)), f"{name}: {side}"


def test_a_test_names_sentences_that_are_there_and_bind_its_side():
    written = {(row["section"], row["sentence"]) for row in SENTENCES.values()}
    assert len(written) == len(listing.SENTENCES)
    assert set(FOUND["consumer"]) | set(FOUND["producer"]) <= set(SENTENCES)
    with pytest.raises(AssertionError, match="does not bind the bridge as producer"):
        as_producer("version-2")


def test_the_page_has_the_result_of_every_test_and_each_of_them_passed():
    results = json.loads(listing.RESULTS.read_text())["tests"]
    shown = {
        f"{file}::{test}" for side in FOUND.values() for row in side.values() for file, test in row
    }
    assert {test: ["passed"] for test in shown} == {test: list(results[test]) for test in shown}


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ({"a.py::test_it": {"passed": 3, "failed": 1}}, "3 passed, 1 failed"),
        ({}, "1 not run"),
    ],
)
def test_what_was_not_run_or_failed_is_told(outcomes, said):
    tests = {"shape": [("a.py", "test_it")]}
    cell = listing.cell(SENTENCES["shape"], "consumer", tests, outcomes)
    assert cell.endswith(f"(../tests/python/a.py): {said}")
