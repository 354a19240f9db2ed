"""Helpers of the requirements of consumers: taking arrays, and judging copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, DLPackArray, Lab, Late, flat
from ..missing import missing
from ..requirement import Door, NotApplicableError, expect

_T = TypeVar("_T")


def takes(door: str, *rests_on: str) -> Door:
    """Make functions the checks of what is required of consumers that take arrays by a door.

    A check with a parameter `kind` is given the class of the kit's arrays that speak the door.
    """
    kind = CaiArray if door == "cai" else DLPackArray
    return Door("consumer", door, rests_on=rests_on, given={"kind": kind})


@dataclass(frozen=True)
class Refusal:
    """Why a consumer would not: an exception's type and message."""

    reason: str

    def __str__(self) -> str:
        return f"refused: {self.reason}"


def attempt(call: Callable[..., _T], *arguments: Any) -> _T | Refusal:
    """Call, and make what is raised a `Refusal`.

    The exception itself would keep frames, and so the array.
    """
    try:
        return call(*arguments)
    except NotApplicableError:
        raise
    except Exception as error:
        return Refusal(f"{type(error).__name__}: {error}")


def expect_read(c: ConsumerAdapter, x: CaiArray | DLPackArray, told: str = "") -> str:
    """Hand an array over, and judge by the items that the consumer reads.

    Raises
    ------
    UnmetError
        Other items are read, of what is `told`.
    """
    seen = c.values(c.copy(c.take(x)))
    expect(x.holds(seen), f"{told or x.values} is read as {seen}")
    return f"{seen}"


def expect_read_or_refused(c: ConsumerAdapter, x: Any, case: Case | None = None) -> str:
    """Hand an array over: it is read as it is, or refused.

    Raises
    ------
    UnmetError
        Other items are read.
    """
    seen = attempt(lambda: c.values(c.copy(c.take(x))))
    right = isinstance(seen, Refusal) or x.holds(seen)
    told = f" of {case.layout!r} and {case.dtype}" if case else ""
    expect(right, f"{x.values}{told} is read as {seen}")
    return f"{seen}"


def expect_refused(c: ConsumerAdapter, x: CaiArray | DLPackArray, told: str) -> str:
    """Hand an array over that the consumer is to refuse.

    Raises
    ------
    UnmetError
        It takes what is `told`.
    """
    y = attempt(c.take, x)
    expect(isinstance(y, Refusal), f"{told} is taken")
    return f"{y}"


def stream_of(c: ConsumerAdapter) -> Any:
    """Make a stream of the consumer's.

    Raises
    ------
    MissingMemberError
        The adapter says none.
    """
    stream = c.stream()
    if stream is None:
        raise missing(c, "stream()")
    return stream


def asked_with(lab: Lab, asked: list[dict[str, Any]]) -> str:
    """Tell what a consumer asked ``__dlpack__`` for, with the names of the streams."""
    told = []
    for wishes in asked:
        named = {"stream": lab.called(wishes["stream"])} if wishes.get("stream", -1) != -1 else {}
        told.append(", ".join(f"{name}={one}" for name, one in {**wishes, **named}.items()))
    return f"it asks with {' and with '.join(told)}"


def expect_copied(
    c: ConsumerAdapter,
    lab: Lab,
    copied: Any,
    late: Late,
    circumstance: str,
    *,
    shown: bool | None = None,
) -> str:
    """Wait for a copy that a consumer queued, and judge by what it saw.

    Parameters
    ----------
    c : ConsumerAdapter
        The consumer.
    lab : Lab
        The lab.
    copied : object
        What ``c.copy`` gave.
    late : Late
        The array, the value that the copy has to have seen everywhere, and what was held back.
    circumstance : str
        What the order had to be known by.
    shown : bool, optional
        Whether what is not ordered would have come early; by default the lab finds out.

    Raises
    ------
    UnmetError
        It saw something else, or nothing orders what was held back and what was not.
    """
    if shown is None:
        # A host that waits is right, too, and lets the hold end.
        shown = not late.hold.pending or lab.overtakes(None, late.hold) is not None
    seen = sorted(set(flat(c.values(copied))))
    late.hold.release()
    lab.synchronize()
    what = "; ".join(lab.reports())
    if not what and seen != [late.value]:
        what = f"the copy saw {seen}"
    expect(not what, f"{circumstance}, and the copy has to see {late.value}: {what}")
    lab.count(shown)
    return f"{circumstance}, and the copy saw {late.value}"
