"""Libraries with one planted fault each, and unusual ones: small libraries, a few words changed.

`tests/data/planted.toml` and `tests/data/unusual.toml` have a row for each: ``change``, a list of
texts, each followed by what takes its place. Each text occurs once.
"""

from __future__ import annotations

import functools
import tomllib
import types
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
BASES = {"producer": HERE / "small_library.py", "consumer": HERE / "small_consumer.py"}
CLASSES = {"producer": "Producer", "consumer": "Consumer"}


@functools.cache
def rows(file: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Read the rows of a file, by role and name."""
    data = tomllib.loads((DATA / f"{file}.toml").read_text(encoding="utf-8"))
    return {(role, name): row for role in BASES for name, row in data[role].items()}


def source(role: str, row: dict[str, Any]) -> str:
    """Change the text of the small library as a row says."""
    text = BASES[role].read_text(encoding="utf-8")
    for old, new in zip(row["change"][::2], row["change"][1::2], strict=True):
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    return text


def library(role: str, name: str, row: dict[str, Any]) -> Any:
    """Make the adapter of a library of a row."""
    module = types.ModuleType(f"planted: {name}")
    exec(compile(source(role, row), f"<planted: {name}>", "exec"), vars(module))
    kind = getattr(module, CLASSES[role])
    kind.name = name
    return kind
