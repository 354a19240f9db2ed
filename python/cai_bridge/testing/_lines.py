"""The lines of a program that queued the simulated device's work, for its reports."""

from __future__ import annotations

import linecache
import sys
import weakref
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from cai_bridge._core import _Session

_PACKAGE = str(Path(__file__).parents[1])


class Line(NamedTuple):
    """A line of a program.

    Attributes
    ----------
    path : str
        The file, as Python knows it.
    number : int
        The line's number, from 1.
    function : str
        The function that it is in.
    """

    path: str
    number: int
    function: str

    def __str__(self) -> str:
        source = linecache.getline(self.path, self.number).strip()
        where = f"{Path(self.path).name}:{self.number} in {self.function}"
        return f"{where}: {source}" if source else where


_queued: weakref.WeakKeyDictionary[_Session, dict[int, tuple[CodeType, int]]]
_queued = weakref.WeakKeyDictionary()


def note(session: _Session) -> None:
    """Note the program's line that made the session's newest operation or host access."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return
        frame = frame.f_back
    _queued.setdefault(session, {})[session.sequence] = frame.f_code, frame.f_lineno


def line(session: _Session, sequence: int) -> Line | None:
    """Return the line of an operation; None if no line of the program queued it itself."""
    noted = _queued.get(session, {}).get(sequence)
    if noted is None:
        return None
    code, number = noted
    return Line(code.co_filename, number, code.co_name)
