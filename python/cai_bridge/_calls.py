"""Calls of adapted functions: converting their arguments, and returning their results."""

from __future__ import annotations

import contextlib
import weakref
from types import AsyncGeneratorType, CoroutineType, GeneratorType

from . import _libraries
from ._core import CaiView, DLPackView, _plain_types, _unraisable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Call", "binder", "is_callback"]

PLAIN = frozenset(_plain_types())
"""Types that are no arrays and hold none."""


def is_callback(stream: Any) -> bool:
    """Return whether a stream is a callable, to be called at each call of the function."""
    return callable(stream) and not hasattr(stream, "__cuda_stream__")


class Call:
    """What happens before and after every call of one function."""

    def __init__(
        self, function: Any, to: Any, stream: Any, readonly: bool | None, returns: Any
    ) -> None:
        self.library, self.stream, self.returns = _libraries.find(to), stream, returns
        self.asks = is_callback(stream)
        self.makes_views = self.library.view in self.library.types
        self.readonly = True if readonly is None and self.library.name == "numpy" else readonly
        self.names = _names(function)
        self.binds: Callable[[Any], object] | None = None

    def converted(self, args: tuple[Any, ...], kwargs: dict[str, Any], kept: int = 0) -> Now:
        """Convert all arguments but the first `kept`, for the ``with`` block of one call."""
        stream = self.stream() if self.asks else self.stream
        now = Now(stream)
        names = self.names
        if kept:
            own, args, names = args[:kept], args[kept:], names[kept:]
        now.left[:], first, made, now.lent = self.library.converter.arguments(
            (args, kwargs), names, stream, self.readonly, self.binds
        )
        if kept:
            now.left[0] = own + now.left[0]
        now.like = self._like(first)
        if self.makes_views:
            now.views = [weakref.ref(one) for one in made if isinstance(one, (CaiView, DLPackView))]
        return now

    def converted_alone(self, arrays: list[Any]) -> Now:
        """Convert arrays known to be another library's and on GPUs, without walking a tree."""
        now = Now(self.stream() if self.asks else self.stream)
        made, now.lent = self.library.converter.lend(arrays, now.stream, self.readonly)
        now.left = made
        if self.makes_views:
            now.views = [weakref.ref(one) for one in made]
        return now

    def _like(self, first: Any) -> _libraries.Library | None:
        if self.returns != "like":
            return None if self.returns is None else _libraries.find(self.returns)
        return None if first is None else _libraries.of_array(first)


class Now:
    """One call: its arguments, which are handed out once, and the conversion of its result.

    Only the function holds the arguments. An argument that it drops has ended when it returns. The
    end of the ``with`` block gives the rest back.
    """

    def __init__(self, stream: Any) -> None:
        self.like: _libraries.Library | None = None
        self.stream = stream
        # The positional arguments, and the keyword arguments.
        self.left: list[Any] = []
        self.lent: list[Any] = []
        self.views: list[weakref.ref[CaiView | DLPackView]] = []

    def __enter__(self) -> Now:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ends = self.lent
        if kind is not None and self.views:
            # The exception's traceback keeps the views alive, so they are ended here.
            alive = [view for one in self.views if (view := one()) is not None]
            ends = [*(view.release for view in alive), *self.lent]
        self.left.clear()
        failed: BaseException | None = None
        for end in ends:
            try:
                end()
            except BaseException as error:
                # The memory of the others goes back all the same.
                failed = failed or error
        if failed is None:
            return
        if kind is None or not isinstance(failed, Exception):
            raise failed
        # An exception of the function takes precedence.
        _unraisable(failed)

    def give(self, result: Any) -> Any:
        """Convert the call's result, which was made on the call's stream if there is one."""
        if type(result) in PLAIN:
            return result
        _refuse_unfinished(result)
        return result if self.like is None else self.like.converter.result(result, self.stream)


def _refuse_unfinished(result: Any) -> None:
    """Refuse a result whose work has not run yet, and close it: a generator or a coroutine."""
    kind = type(result)
    # An object that `contextlib.contextmanager` made holds a generator.
    inner = result.gen if kind.__module__ == "contextlib" and hasattr(result, "gen") else result
    if not isinstance(inner, (GeneratorType, CoroutineType, AsyncGeneratorType)):
        if not hasattr(kind, "__await__"):
            return
    elif isinstance(inner, AsyncGeneratorType):
        with contextlib.suppress(StopIteration):
            inner.aclose().send(None)
    else:
        inner.close()
    raise TypeError(
        f"function: got one that returned a {kind.__name__}; allowed: functions whose work is done "
        "when they return, and coroutine functions"
    )


def binder(function: Any, kept: int) -> Callable[[Any], object] | None:
    """Return a function that refuses wrong arguments without calling the adapted function.

    The first `kept` arguments are not passed to it. None if the adapted function has no signature.
    """
    import inspect  # noqa: PLC0415

    # A wrapper's `__signature__` may differ from the arguments that it takes.
    if hasattr(function, "__signature__"):
        return None
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    first = (None,) * kept
    return lambda given: signature.bind(*first, *given[0], **given[1])


def _names(function: Any) -> list[str]:
    """List the names of the parameters that take positional arguments, if they are known."""
    import inspect  # noqa: PLC0415

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    by_place = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [one.name for one in parameters if one.kind in by_place]
