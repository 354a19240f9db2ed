"""What counts as a refusal: an exception that the protocols allow, of who takes the plain array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from cai_bridge.testing._kit.dlpack_abi import NullError

from .cases import Case
from .requirement import NotApplicableError

_T = TypeVar("_T")

ALLOWED = (BufferError, TypeError, ValueError, RuntimeError, AssertionError)
"""What the protocols raise, or libraries that keep them: `NotImplementedError` is one of them."""

ACCIDENTS = (SystemError, MemoryError, RecursionError, NameError, NullError)
"""What no library raises on purpose; ``SystemError`` is of C code that forgot its exception."""


@dataclass(frozen=True)
class Refusal:
    """Why a library would not: an exception's type and message."""

    reason: str

    def __str__(self) -> str:
        return f"refused: {self.reason}"


_noted: list[list[Refusal]] = []


@contextmanager
def noted() -> Iterator[list[Refusal]]:
    """Note the refusals meanwhile."""
    _noted.append([])
    try:
        yield _noted[-1]
    finally:
        _noted.pop()


def refusal_of(error: Exception) -> Refusal:
    """Make a refusal of an exception.

    Raises
    ------
    NotApplicableError
        The protocols have no such exception: it may be an accident, which tells nothing.
    Exception
        The error itself, if it is an accident for sure.
    """
    if isinstance(error, ACCIDENTS):
        raise error
    what = f"{type(error).__name__}: {error}"
    if not isinstance(error, ALLOWED):
        raise NotApplicableError(f"raised {what}, which is no refusal")
    made = Refusal(what)
    for notes in _noted:
        notes.append(made)
    return made


class NotTakenError(Exception):
    """A consumer would not take an array; which requirement tells of it is `judging`'s to say.

    Attributes
    ----------
    error : Exception
        What the consumer raised.
    case : Case
        What the array was like.
    named : bool
        Whether it named a stream.
    """

    def __init__(self, error: Exception, case: Case, *, named: bool) -> None:
        self.error, self.case, self.named = error, case, named
        super().__init__(f"{type(error).__name__}: {error}")


def attempt(call: Callable[..., _T], *arguments: Any) -> _T | Refusal:
    """Call, and make what is raised a `Refusal`.

    The exception itself would keep frames, and so the array.
    """
    try:
        return call(*arguments)
    except NotApplicableError:
        raise
    except Exception as error:
        refused = error.with_traceback(None)
    return refusal_of(refused)
