"""Each sentence of the specification has a test for each side that it binds the bridge in."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from specification import SENTENCES, SIDES, as_consumer, as_producer

ROOT = Path(__file__).parents[2]
LISTING = runpy.run_path(str(ROOT / "docs" / "list_specification.py"))
FOUND = LISTING["found"]()


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
    assert len(set(written)) == len(written) == len(LISTING["SENTENCES"])
