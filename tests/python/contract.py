"""The contract's tables, tests/data/*.toml: their rows, and what a row says of a refusal."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from cai_bridge import DriverError

DATA = Path(__file__).parents[1] / "data"
CLASSES = {
    "TypeError": TypeError,
    "ValueError": ValueError,
    "BufferError": BufferError,
    "DriverError": DriverError,
}


KINDS = (DATA.parents[1] / "src" / "error" / "kinds.rs").read_text()
# What each kind of error allows, by its name.
ALLOWED = {
    name: allowed.replace('\\"', '"')
    for name, allowed in re.findall(
        r'^    (\w+): \w+, "[^"]*", "((?:[^"\\]|\\.)*)";$', KINDS, re.MULTILINE
    )
}


def rows(table, name):
    """The rows of one of the contract's tables."""
    return tomllib.loads((DATA / f"{table}.toml").read_text())[name]


def row_id(row):
    """The name of a row's test: its first values."""
    return "-".join(str(value) for value in row.values())[:60]


def each(table, name, **only):
    """Run a test with every row of a table that has these values."""
    chosen = [r for r in rows(table, name) if all(r.get(key) == v for key, v in only.items())]
    assert chosen, f"no such row in {table}.toml"
    return pytest.mark.parametrize("row", chosen, ids=row_id)


def assert_refused(row, call, *arguments, **keywords):
    """The call raises what a row of refusals.toml says: the class, and a message of three parts."""
    with pytest.raises(CLASSES[row["class"]]) as caught:
        call(*arguments, **keywords)
    assert type(caught.value) is CLASSES[row["class"]], caught.value
    parts = re.fullmatch(
        r"(?s)(?P<field>.+?): got (?P<got>.+); allowed: (?P<allowed>.+)", str(caught.value)
    )
    assert parts, f"not of three parts: {caught.value}"
    assert parts["field"] == row["field"]
    assert row["got"] in parts["got"]
    assert parts["allowed"] == ALLOWED[row["kind"]]
    # The traceback holds the frames, and with them what was refused.
    error = caught.value.with_traceback(None)
    del caught
    return error
