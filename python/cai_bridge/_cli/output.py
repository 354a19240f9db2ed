"""The destination of a command's output: the standard output, or a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from . import page
from .exits import UsageError


def check_asked(path: str | None) -> None:
    """Refuse an unwritable file before a run of minutes starts.

    Raises
    ------
    UsageError
        The file cannot be written.
    """
    page.check_path("--output", path)


def as_json(data: Any, *, to_file: bool) -> str:
    """Write data as JSON.

    For the standard output it is ASCII, so that a reader need not know the terminal's encoding.
    """
    return json.dumps(data, indent=1, ensure_ascii=not to_file)


def give(text: str, path: str | None, pages: Mapping[str, str] | None = None) -> None:
    """Print a text, or write it to a file; then write the pages.

    The results may have taken minutes, so the text is printed if its file cannot be written.

    Raises
    ------
    UsageError
        A file cannot be written. All other files are written.
    """
    with page.written(pages or {}):
        if path is None:
            print(text)
            return
        try:
            page.write(path, f"{text}\n")
        except UsageError:
            print(text)
            raise
