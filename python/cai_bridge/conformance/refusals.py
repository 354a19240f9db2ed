"""Which exceptions count as a refusal, from a library that takes the plain array."""

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
"""Exceptions of the protocols, and of libraries that follow them, such as `NotImplementedError`."""

ACCIDENTS = (SystemError, MemoryError, RecursionError, NameError, NullError)
"""Exceptions that no library raises on purpose; ``SystemError`` comes from broken C code."""


@dataclass(frozen=True)
class Refusal:
    """A library's refusal: the exception's type and message."""

    reason: str

    def __str__(self) -> str:
        return f"refused: {self.reason}"


_noted: list[list[Refusal]] = []


@contextmanager
def noted() -> Iterator[list[Refusal]]:
    """Collect the refusals within the block."""
    _noted.append([])
    try:
        yield _noted[-1]
    finally:
        _noted.pop()


def refusal_of(error: Exception) -> Refusal:
    """Convert an exception to a refusal.

    Raises
    ------
    NotApplicableError
        The protocols have no such exception. It may be an accident, which proves nothing.
    Exception
        `error` itself, if it is certainly an accident.
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
    """A consumer refused an array; `judging` decides which requirement reports it.

    Attributes
    ----------
    error : Exception
        The consumer's exception.
    case : Case
        The array's case.
    named : bool
        Whether the consumer named a stream.
    """

    def __init__(self, error: Exception, case: Case, *, named: bool) -> None:
        self.error, self.case, self.named = error, case, named
        super().__init__(f"{type(error).__name__}: {error}")


def attempt(call: Callable[..., _T], *arguments: Any) -> _T | Refusal:
    """Call, and return a `Refusal` for an exception.

    The exception itself would keep frames, and through them the array.
    """
    try:
        return call(*arguments)
    except NotApplicableError:
        raise
    except Exception as error:
        refused = error.with_traceback(None)
    return refusal_of(refused)
