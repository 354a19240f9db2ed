"""Shortens tracebacks to the lines of the adapter and its library."""

from __future__ import annotations

import traceback
from pathlib import Path

_KIT = Path(__file__).parent
# The kit's adapters of libraries are not hidden: a check is about them.
_SHOWN = ("libraries",)


def is_own(file: str) -> bool:
    """Return whether a file belongs to the kit's judging code."""
    path = Path(file)
    if not path.is_relative_to(_KIT):
        return False
    return path.relative_to(_KIT).parts[0] not in _SHOWN


def traceback_of(error: BaseException) -> str:
    """Return an exception's traceback from the kit's call of the adapter or the library on.

    Includes the exceptions that it was raised from. Empty if the text cannot be made.
    """
    try:
        told = traceback.TracebackException.from_exception(error)
        _trim(told)
        return "".join(told.format()).rstrip()
    except Exception:
        return ""


def _trim(told: traceback.TracebackException) -> None:
    for one in (told, told.__cause__, told.__context__):
        if one is not None:
            kept = list(one.stack)
            while len(kept) > 1 and is_own(kept[0].filename):
                kept.pop(0)
            one.stack[:] = kept


_BEGIN = "Fatal Python error: "


def split_dump(said: str) -> tuple[str, str]:
    """Split a process's last output into its text and Python's stack dump.

    Returns
    -------
    str, str
        The text without the dump, and the dump: the innermost call first, up to the kit's own
        calls.
    """
    before, found, dump = said.partition(_BEGIN)
    if not found:
        return said, ""
    lines = []
    for line in dump.splitlines():
        frame = line.strip().startswith("File ")
        if frame and is_own(line.split('"')[1]):
            break
        if frame or "most recent call first" in line:
            lines.append(line)
        elif lines and lines[-1].strip().startswith("File "):
            break
    return before, "\n".join(lines)
