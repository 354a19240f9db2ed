"""Hooks of the manual's build: pages from the root, links out of docs/, docstrings, the matrix.

SECURITY.md and CHANGELOG.md are pages of the manual and stay where readers of a repository look for
them. A link to any other file of the repository works there; the manual names the file instead. The
matrix's data becomes a table, which matrix.js filters.
"""

from __future__ import annotations

import json
import posixpath
import re
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from cai_bridge._cli.marks import OUTCOMES
from cai_bridge.conformance.matrix import ASPECTS, Matrix

ROOT = Path(__file__).parent.parent
EVERY_CELL = "<!-- every cell -->"
NAMES = re.compile(r"(?m)^<!-- names: (\S+) ([^>]+) -->\n(?s:.*?)^<!-- end -->$")
# Classes whose methods are in bases without a public name.
INHERITING = {"SimulatedCuda"}
PAGES = {"SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
# Pages that mention many words, and that readers seldom look for.
ASIDE = {
    *("changelog.md", "adding.md", "contributing.md", "publishing.md", "style.md", "words.md"),
    *("matrix.md", "specification.md", "requirements.md", "trackers.md"),
}
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand in the repository's root."""
    for source, target in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=moved(text, "")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Mend a page's links out of docs/, and set its weight in the search."""
    page.meta["search"] = in_search(page.file.src_uri)
    if page.file.src_uri in PAGES.values():
        return markdown
    return moved(NAMES.sub(directives, markdown), "docs").replace(EVERY_CELL, every_cell())


def in_search(page: str) -> dict[str, Any]:
    """Return a page's weight in the search. Pages that answer a question come first."""
    if page.startswith("reports/"):
        return {"exclude": True}
    return {"boost": 0.5 if page in ASIDE else 1}


def directives(names: re.Match[str]) -> str:
    """Replace a table of names by the docstrings of these names."""
    module, listed = names.groups()
    lines = []
    for name in listed.split():
        lines.append(f"::: {module}.{name}")
        if name in INHERITING:
            lines += ["    options:", "      inherited_members: true"]
    return "\n".join(lines)


def every_cell() -> str:
    """Write the matrix's data as a table, a row for each pair and route."""
    (run,) = (ROOT / "docs" / "matrix").glob("*.json")
    data = json.loads(run.read_text(encoding="utf-8"))
    rows = []
    for cell in Matrix.from_dict(data).cells:
        if cell.producer == cell.consumer:
            continue
        row = [f"<td>{escape(one)}</td>" for one in (cell.producer, cell.consumer)]
        row.append(f"<td><code>{escape(cell.route)}</code></td>")
        for aspect in (cell.aspects[name] for name in ASPECTS):
            letter, detail = OUTCOMES[aspect.outcome].letter, escape(aspect.detail, quote=True)
            row.append(f'<td class="is-{aspect.outcome}" title="{detail}">{letter}</td>')
        rows.append(f"<tr>{''.join(row)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("from", "to", "route", *ASPECTS))
    return (
        f'<div class="matrix"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def moved(markdown: str, folder: str) -> str:
    """Turn links relative to the repository's `folder` into links relative to docs/."""

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in PAGES:
            return f"[{text}]({PAGES[path]}{anchor or ''})"
        if path.startswith("docs/") and not path.endswith(".py"):
            return f"[{text}]({path.removeprefix('docs/')}{anchor or ''})"
        return text

    return LINK.sub(link, markdown)
