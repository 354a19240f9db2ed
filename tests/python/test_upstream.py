"""The reports for upstream: their programs show what they tell, on doubles with the fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import upstream

from cai_bridge.conformance import requirements
from cai_bridge.conformance.known import known

ROWS = {one.name: one for one in requirements()}
INDEX = (upstream.FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", upstream.PAGES, ids=lambda page: page.stem)
def test_a_short_program_shows_on_a_double_what_the_library_is_known_not_to_meet(
    page: Path,
) -> None:
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


def test_a_double_without_the_fault_prints_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    program, printed = upstream.parts(upstream.FOLDER / "torch-cai-version.md")
    monkeypatch.setattr(upstream.Second, "version", 3)
    with upstream.doubled("torch"):
        assert upstream.printed_by(program) != printed
