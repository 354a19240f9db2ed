"""The pages of docs/: what they list is what there is, and what they link to is there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def test_the_list_of_requirements_is_the_one_that_is_judged():
    listing = runpy.run_path(str(ROOT / "docs" / "list_requirements.py"))
    assert (ROOT / "docs" / "requirements.md").read_text() == listing["page"]()


def test_the_tables_of_the_matrix_are_those_of_its_data():
    drawing = runpy.run_path(str(ROOT / "docs" / "draw_matrix.py"))
    assert (ROOT / "docs" / "matrix.md").read_text() == drawing["page"]()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_workflow_of_the_page_for_authors_has_ten_lines_at_most():
    page = (ROOT / "docs" / "test-your-library.md").read_text()
    workflow = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1]
    assert len(workflow.strip().splitlines()) <= 10
    assert "--pyargs cai_bridge.conformance --producer" in workflow
