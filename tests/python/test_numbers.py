"""The numbers of the README and the manual: each is generated, dated, or stands in the sources.

A measured number has its date and its machine in its own paragraph, or in the one before its table.
Every other number with a unit is a row of `tests/data/numbers.toml`, which names a file and what
stands there.
"""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# These are written from the contract's tables, or state nothing of today.
GENERATED = {"refusals.md", "requirements.md", "specification.md", "style.md", "public-api.txt"}
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in GENERATED),
]
ROWS = tomllib.loads((ROOT / "tests" / "data" / "numbers.toml").read_text("utf-8"))["number"]

# What a script writes, and programs: their numbers are those of the data and of the run.
WRITTEN = re.compile(
    r"(?ms)^```.*?^```$|^<!-- written by .*?^<!-- end -->$|^<!-- run -->.*?^<!-- end of run -->$"
    r"|^<!--speed-->.*?^<!--/speed-->$|^<!-- tools -->$.*?^<!-- end of tools -->$"
)
UNITS = r"(?:[µnm]?s|minutes?|seconds?|hours?|[KMG]i?B|%|times|lines)"
NUMBER = re.compile(rf"(?<![\w.])\d[\d,.]*(?: to \d[\d,.]*)?\s?{UNITS}(?!\w)|\b\d[\d,]* of \d")
DATE = re.compile(r"\b20\d\d-\d\d(-\d\d)?\b")
MACHINE = re.compile(r"H[12]00|\bCPU\b|\bmachine\b")


def paragraphs(text):
    """The paragraphs, each table together with the paragraph before it."""
    found = []
    for part in re.split(r"\n\s*\n", WRITTEN.sub("", text)):
        if part.startswith("|") and found:
            found[-1] += f"\n{part}"
        else:
            found.append(part)
    return found


def undated(text):
    """The lines with a number in a paragraph that says neither when nor where it was measured."""
    return [
        line
        for part in paragraphs(text)
        if not (DATE.search(part) and MACHINE.search(part))
        for line in part.splitlines()
        if NUMBER.search(line)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_number_is_dated_or_a_row_says_where_it_stands(page):
    shown = [row["says"] for row in ROWS if row["page"] == page.name]
    for line in undated(page.read_text("utf-8")):
        rest = line
        for says in shown:
            rest = rest.replace(says, "")
        assert not NUMBER.search(rest), line


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['page']}: {row['says'][:40]}")
def test_a_row_is_on_its_page_and_its_number_stands_in_its_file(row):
    page = ROOT / (row["page"] if row["page"] == "README.md" else f"docs/{row['page']}")
    assert row["says"] in page.read_text("utf-8")
    if "example" not in row:
        assert row["stands"] in (ROOT / row["file"]).read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("A call takes 3 µs.", 1),
        ("A call takes 3 µs (H100, 2026-11-27).", 0),
        ("A call takes 3 µs (2026-11-27).", 1),
        ("Measured on one H200, 2026-11-20:\n\n| a | 4 of 6 |", 0),
        ("Measured:\n\n| a | 4 of 6 |", 1),
        ("```text\n3 ms\n```\n\nNothing.", 0),
        ("<!-- run -->\n5 ms\n<!-- end of run -->", 0),
    ],
)
def test_a_number_without_its_date_is_found(text, lines):
    assert len(undated(text)) == lines
