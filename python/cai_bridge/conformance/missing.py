"""The error for a member that an adapter lacks, with the place to add it."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

from .requirement import NotApplicableError


class MissingMemberError(NotApplicableError):
    """A requirement cannot be judged, since the adapter lacks a member.

    Attributes
    ----------
    member : str
        The member, such as ``"readonly(array)"``.
    place : str
        The class or function that lacks the member, with file and line; empty if not known.
    """

    def __init__(self, member: str, place: str, more: str = "") -> None:
        self.member = member
        self.place = place
        text = f"the adapter has no {member.partition('(')[0]}()"
        text += f", {more}" if more else ""
        super().__init__(f"{text}; see {place}" if place else text)


def missing(adapter: Any, member: str, more: str = "") -> MissingMemberError:
    """Make the error that names the missing member and the class that lacks it.

    Parameters
    ----------
    adapter : ProducerAdapter or ConsumerAdapter
        The adapter that lacks the member.
    member : str
        The member's name and arguments, such as ``"readonly(array)"``.
    more : str, optional
        Why the default implementation does not work.
    """
    return MissingMemberError(member, place_of(adapter.source), more)


@functools.lru_cache(maxsize=256)
def place_of(source: Any) -> str:
    """Return the name, the file and the line of a class or function."""
    name = getattr(source, "__qualname__", type(source).__name__)
    try:
        file = inspect.getsourcefile(source)
        _, line = inspect.getsourcelines(source)
    except (OSError, TypeError):
        return ""
    return f"{name}, {near(file or '')}:{line}"


def near(file: str) -> str:
    """Return a path relative to the working directory, if the file is inside it."""
    path = Path(file)
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)
