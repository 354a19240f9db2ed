"""Check the built manual: every link and anchor holds, and no page fetches anything from elsewhere.

python make/check_site.py site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself when it shows a page. Links are the reader's to follow.
FETCHED = {
    "audio": "src",
    "iframe": "src",
    "img": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
NOT_FETCHED = {"canonical", "next", "prev"}  # values of a link's `rel`


class Page(HTMLParser):
    """The names that a page has, what it links to, and what it fetches."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names, links to and fetches."""
        found = {name: value for name, value in attrs if value}
        self.names |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        target = found.get(FETCHED.get(tag, ""))
        if target and found.get("rel") not in NOT_FETCHED:
            self.fetched.append(target)


def problems(site: Path) -> list[str]:
    """List the links that lead nowhere, and what is fetched from elsewhere."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for target in page.links + page.fetched:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.fetched and parts.scheme != "data":
                    found.append(f"{name} fetches {target}")
                continue
            base = site.resolve() if parts.path.startswith("/") else path.parent
            there = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if there.is_dir():
                there /= "index.html"
            if not there.exists():
                found.append(f"{name} links to {target}, which is not there")
            elif parts.fragment and there in pages and not _has(pages[there], parts.fragment):
                found.append(f"{name} links to {target}, whose anchor is not there")
    return found


def _has(page: Page, fragment: str) -> bool:
    """Whether a page has a place of that name; the theme's own begin with two underscores."""
    return fragment.startswith("__") or unquote(fragment) in page.names


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    sys.exit("\n".join(wrong) or 0)
