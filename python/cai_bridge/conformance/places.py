"""The addresses of arrays and their slices, and whether a write to them is held back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cai_bridge.testing._kit.description import describe

from .lab import Hold, Lab, flat, handle_of
from .missing import missing
from .requirement import NotApplicableError, UnmetError

BEFORE = -1.0
"""The value of an array's items before the held-back write."""

NOT_SO = (TypeError, IndexError, ValueError, NotImplementedError)
"""The exceptions for an unsupported index; any other exception is a failure."""

SECOND_COLUMNS = ("index", (slice(None), slice(None, None, 2)))
ROWS = ("index", (slice(1, None), slice(None)))
REVERSED = ("index", (slice(None, None, -1), slice(None)))
"""The layout steps that adapters have methods for."""


def sliced_by(adapter: Any, member: str, array: Any, key: tuple[slice, ...]) -> Any:
    """Index an array; a library that cannot skips the check."""
    if not hasattr(array, "__getitem__"):
        raise missing(adapter, member, "and the arrays cannot be indexed")
    try:
        return array[key if len(key) > 1 else key[0]]
    except NOT_SO as error:
        what = f"and {_written(key)} raised {type(error).__name__}: {error}"
        raise missing(adapter, member, what) from error


def _written(key: tuple[slice, ...]) -> str:
    """Write an index as in Python: ``x[:, ::2]``."""
    parts = []
    for one in key:
        start, stop = ("" if at is None else f"{at}" for at in (one.start, one.stop))
        parts.append(f"{start}:{stop}" + ("" if one.step is None else f":{one.step}"))
    return f"x[{', '.join(parts)}]"


def called_with(
    adapter: Any, member: str, array: Any, names: tuple[str, ...], arguments: tuple[Any, ...]
) -> Any:
    """Call the first of these methods that an array has."""
    found = next((getattr(array, name, None) for name in names if hasattr(array, name)), None)
    if found is None:
        raise missing(adapter, member, f"and the arrays have no {' or '.join(names)}")
    try:
        return found(*arguments)
    except NOT_SO as error:
        what = f"and the arrays' own raised {type(error).__name__}: {error}"
        raise missing(adapter, member, what) from error


def place_of_items(array: Any) -> int:
    """Return the address of an array, by any of its protocols."""
    return next((said.ptr for said in describe(array) if said.ptr), 0)


def shared_places(array: Any, parts: Sequence[Any], words: int) -> list[int]:
    """Return the addresses of an array's parts, each with `words` float32 items.

    Raises
    ------
    NotApplicableError
        The parts are copies.
    UnmetError
        The parts are in the array's memory, but not at their items.
    """
    begin, places = place_of_items(array), [place_of_items(part) for part in parts]
    nbytes = 4 * words
    if not any(begin <= place < begin + len(parts) * nbytes for place in places):
        raise NotApplicableError("slices of the arrays are copies")
    for number, place in enumerate(places):
        wanted = number * nbytes
        if place != begin + wanted:
            name = f"x[{number * words or ''}:{(number + 1) * words}]"
            raise UnmetError(
                f"{name} is said to begin {place - begin} bytes behind x, and not {wanted}"
            )
    return places


def expect_behind(  # noqa: PLR0917
    lab: Lab, stream: Any, hold: Hold, place: int, words: int, value: float
) -> None:
    """Fail if a write is not on the stream that was current when it was queued.

    Raises
    ------
    UnmetError
        The write is on another stream, so a check would say nothing about this stream. Or the array
        reports another address.
    """
    if not place:
        return
    region = lab.words(place, words)
    if lab.is_behind(handle_of(stream), hold, region, BEFORE):
        return
    hold.release()
    lab.synchronize()
    lab.reports()
    seen = sorted({*flat(lab.get(region))}, key=str)
    if seen != [value]:
        raise UnmetError(
            f"the array is said to be at {place:#x}, where fill({value}) has written nothing: with "
            f"all work done, {seen[0]} is there"
        )
    raise UnmetError(
        "on(stream) does not make the stream the current one: what fill() wrote inside is not on it"
    )
