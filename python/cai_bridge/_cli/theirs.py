"""Running foreign code: it may raise, exit or print, and the command continues."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from .exits import UsageError
from .text import said


@contextlib.contextmanager
def guarded(what: str) -> Iterator[None]:
    """Turn any exception into a `UsageError`, ``SystemExit`` included.

    An exit status of the user's code would look like the command's answer.

    Raises
    ------
    UsageError
        The code raised an exception. The message begins with `what`.
    """
    try:
        with own_stdout():
            yield
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise UsageError(f"{what}{said(error)}") from error


@contextlib.contextmanager
def own_stdout() -> Iterator[None]:
    """Send everything printed meanwhile to stderr, even by native code.

    A program may read the command's output, and must get nothing else.
    """
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        # Descriptors 1 and 2 may be closed, as in a service.
        with contextlib.suppress(OSError):
            kept = os.dup(1)
            stack.callback(os.close, kept)
            os.dup2(2, 1)
            stack.callback(os.dup2, kept, 1)
        stack.callback(_flush_all)
        yield


def _flush_all() -> None:
    for stream in (sys.stderr, sys.__stdout__):
        if stream is not None:
            # A stream that is closed, or whose reader is gone, has nothing to lose.
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
