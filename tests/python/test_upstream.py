"""The reports for upstream: their programs show what they tell, on doubles with the fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import upstream

from cai_bridge.conformance import requirements
from cai_bridge.conformance.known import known

ROWS = {one.name: one for one in requirements()}


def test_the_index_has_each_page() -> None:
    index = (upstream.FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(upstream.PAGES) >= 10
    for page in upstream.PAGES:
        assert f"({page.name})" in index


@pytest.mark.parametrize("page", upstream.PAGES, ids=lambda page: page.stem)
def test_a_page_is_of_a_demand_that_the_library_is_known_not_to_meet(page: Path) -> None:
    library, requirement = upstream.names(page)
    assert ROWS[requirement].level == "must"
    assert requirement in known("xfails")[library]
    text = page.read_text(encoding="utf-8")
    assert (ROWS[requirement].quote or ROWS[requirement].rule) in text


@pytest.mark.parametrize("page", upstream.PAGES, ids=lambda page: page.stem)
def test_a_program_is_short_and_shows_the_fault_on_its_double(page: Path) -> None:
    program, printed = upstream.parts(page)
    assert len(program.splitlines()) <= 25
    with upstream.doubled(upstream.names(page)[0]):
        assert upstream.printed_by(program) == printed


def test_a_double_without_the_fault_prints_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    program, printed = upstream.parts(upstream.FOLDER / "torch-cai-version.md")
    monkeypatch.setattr(upstream.Second, "version", 3)
    with upstream.doubled("torch"):
        assert upstream.printed_by(program) != printed
