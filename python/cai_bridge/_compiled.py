"""The caller's request to `adapt(op=, like=)`, and the form of results before they exist."""

from __future__ import annotations

import weakref
from typing import NamedTuple

from . import _libraries
from ._calls import binder
from ._core import _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["ADAPTED", "Like", "Wanted", "check_alike", "check_takes", "check_writes", "specs"]


ADAPTED: weakref.WeakSet[Any] = weakref.WeakSet()
"""Functions made with op= or like=. Used as backward=, they have gradients of their own."""


class Like(NamedTuple):
    """An array's shape, dtype and library, without its memory."""

    shape: tuple[int, ...]
    dtype: str


class Wanted(NamedTuple):
    """The caller's request to `adapt`."""

    function: Callable[..., Any]
    to: Any
    adapt: Callable[..., Any]
    """`adapt` with the library and the stream filled in."""
    wraps: Callable[[Any], Any]
    like: Callable[..., Any] | None
    into: bool
    backward: Callable[..., Any] | None
    stream: Any = None
    writes: bool = False
    """Whether the function writes its arguments and returns nothing."""
    is_gradient: bool = False
    """Whether the function computes gradients. Any gradient may be None."""

    @property
    def library(self) -> _libraries.Library:
        return _libraries.find(self.to)


def check_writes(library: _libraries.Library, field: str, got: str) -> None:
    """Refuse a library that never writes for a function that must write."""
    if library.readonly is False:
        raise ValueError(
            f"{field}: got {got} with to={library.name!r}, which never writes to what it is given; "
            "allowed: a library that does"
        )


def check_takes(function: Callable[..., Any], field: str, takes: list[str], hint: str = "") -> None:
    """Refuse a function that cannot take this number of arguments, if its signature tells."""
    if (binds := binder(function, 0)) is None:
        return
    try:
        binds((takes, {}))
    except TypeError as error:
        raise TypeError(
            f"{field}: got one that cannot be called so: {error}; allowed: one that takes "
            f"{len(takes)} arguments: {', '.join(takes)}{hint}"
        ) from None


def specs(like: Callable[..., Any] | None, args: list[Any]) -> tuple[list[Like], bool]:
    """Ask `like` what the results look like, and whether there is only one."""
    said = next(one for one in args if isinstance(one, Like)) if like is None else like(*args)
    if type(said) is Like:
        return [said], True
    if _is_spec(said):
        return [Like(*said)], True
    if isinstance(said, tuple | list) and said and all(map(_is_spec, said)):
        return [one if type(one) is Like else Like(*one) for one in said], False
    raise TypeError(
        f"like: got one that returned {_shown(said):.80}; allowed: an argument of its own, a shape "
        "and the name of a dtype, as ((2, 3), 'float32'), or a tuple of these"
    )


def check_alike(shapes: list[Any], names: list[str]) -> None:
    """Refuse to guess a result's size: a kernel would write past a result that is too small."""
    for shape, name in zip(shapes, names, strict=True):
        if shape != shapes[0] and len(shape):
            raise ValueError(
                f"like: got None with into=True, and arrays of several shapes: {names[0]} has "
                f"{tuple(shapes[0])}, {name} has {tuple(shape)}; allowed: a function of the "
                "arguments that says what the results are like, as like=lambda x, w: x"
            )


def _is_spec(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], str)
