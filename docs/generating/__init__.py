"""Paths and table functions that the generators of `docs/generate.py` share."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
DATA = ROOT / "tests" / "data"
OWNED = re.compile(
    r"\b((?:a|the|its) (?:dict|view|producer|consumer|system|array|owner|caller|stream|library)"
    r"|numba|cupy|torch|warp|jax)s (?=\w)"
)


def toml(path: Path) -> Any:
    """Read a file of data."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def data(path: Path) -> Any:
    """Read a file of data in JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def row(cells: Iterable[str]) -> str:
    """Write a row of a table."""
    return f"| {' | '.join(cells)} |"


def grid(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Write a table."""
    heads = list(heads)
    return [row(heads), "|---" * len(heads) + "|", *map(row, rows)]


def between(page: str, begin: str, end: str, text: str) -> str:
    """Put a text between two marks of a page."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"


def code(text: str) -> str:
    """Write a cell in the font of code; a bar would end the cell."""
    return (
        f"<code>{escape(text, quote=False)}</code>".replace("|", "&#124;")
        if "|" in text
        else f"`{text}`"
    )


def link(file: str, test: str) -> str:
    """Write a link to a test, with its name as a sentence."""
    said = OWNED.sub(r"\1's ", test.removeprefix("test_").replace("_", " "))
    return f"[{said}](../tests/{file})"
