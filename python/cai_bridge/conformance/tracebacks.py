"""Where an adapter or its library failed: the author's own lines, without those of the kit."""

from __future__ import annotations

import traceback
from pathlib import Path

_KIT = Path(__file__).parent
# Adapters of libraries, and the kit's own arrays, are what a check is about.
_SHOWN = ("libraries",)


def is_own(file: str) -> bool:
    """Tell whether a file is one of the kit's own, which judge."""
    path = Path(file)
    if not path.is_relative_to(_KIT):
        return False
    return path.relative_to(_KIT).parts[0] not in _SHOWN


def traceback_of(error: BaseException) -> str:
    """Write an exception's traceback from where the kit calls the adapter or the library.

    What it was raised from is told, too. Empty where the text cannot be made.
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
    """Split what a process said before it ended from Python's dump of where that was.

    Returns
    -------
    str, str
        The text without the dump, and the dump: the innermost call first, up to the kit's own.
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
