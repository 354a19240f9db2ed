"""What an adapter does not say, and where its author would say it."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

from .requirement import NotApplicableError


class MissingMemberError(NotApplicableError):
    """A requirement cannot be judged before an adapter says more.

    Attributes
    ----------
    member : str
        What it has to say, such as ``"readonly(array)"``.
    place : str
        The class or function that does not, with file and line; empty if not known.
    """

    def __init__(self, member: str, place: str, more: str = "") -> None:
        self.member = member
        self.place = place
        text = f"the adapter has no {member.partition('(')[0]}()"
        text += f", {more}" if more else ""
        super().__init__(f"{text}; see {place}" if place else text)


def missing(adapter: Any, member: str, more: str = "") -> MissingMemberError:
    """Make the error that says which member is missing, and of which class.

    Parameters
    ----------
    adapter : ProducerAdapter or ConsumerAdapter
        Which does not have it.
    member : str
        Its name and arguments, such as ``"readonly(array)"``.
    more : str, optional
        Why the default does not do.
    """
    return MissingMemberError(member, place_of(adapter.source), more)


@functools.lru_cache(maxsize=256)
def place_of(source: Any) -> str:
    """Tell where a class or function is written: what it is called, the file, and the line."""
    name = getattr(source, "__qualname__", type(source).__name__)
    try:
        file = inspect.getsourcefile(source)
        _, line = inspect.getsourcelines(source)
    except (OSError, TypeError):
        return ""
    return f"{name}, {near(file or '')}:{line}"


def near(file: str) -> str:
    """Write a path as it is from the working directory, where it is below."""
    path = Path(file)
    try:
        return str(path.relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)
