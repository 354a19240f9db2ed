"""Shared parts of the consumer checks: taking arrays, and judging copies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, DLPackArray, Lab, Late, flat
from ..missing import missing
from ..refusals import ACCIDENTS, ALLOWED, NotTakenError, Refusal, attempt, refusal_of
from ..requirement import Door, NotApplicableError, expect, needs
from .shapes import SHAPES

FORMS = ("legacy", "older-minor", "newer-minor", "byte-offset", "null-strides", "no-max-version")
"""The requirements of forms, which all others may be handed arrays in."""


def takes(door: str, *rests_on: str, forms: bool = True) -> Door:
    """Register functions as checks of requirements on consumers that take arrays by a door.

    A check with a parameter `kind` gets the class of the kit's arrays that speak this protocol.
    """
    kind = CaiArray if door == "cai" else DLPackArray
    if forms and door == "dlpack":
        rests_on = (*FORMS, *rests_on)
    return Door("consumer", door, rests_on=rests_on, given={"kind": kind})


def taken(c: ConsumerAdapter, x: Any, case: Case) -> Any:
    """Have the consumer import an array. A refusal that `may_be_refused` allows is no failure.

    Raises
    ------
    NotApplicableError
        The consumer refused the array, and may.
    NotTakenError
        The consumer refused the array, and must take it.
    """
    try:
        return c.take(x)
    except NotApplicableError:
        raise
    except Exception as error:
        named = isinstance(x, CaiArray) and x.entries.get("stream") is not None
        if not may_be_refused(case, error):
            raise NotTakenError(error, case, named=named) from error
        refused = error.with_traceback(None)
    raise NotApplicableError(f"{refusal_of(refused)}")


def may_be_refused(case: Case, error: Exception) -> bool:
    """Return whether a consumer may refuse the array of a case by this exception.

    A consumer may lack read-only, managed or pinned memory, and strides other than C order. It need
    not support versions of CAI or DLPack before its own. It may also refuse a copy that nobody
    asked for, as cai_bridge does.
    """
    if case.form == "copied" and not isinstance(error, BufferError):
        return False
    if case.form == "copied" or case.flag != "writable" or case.memory != "device":
        return True
    legacy = case.form == "legacy" or case.asking == "stream alone"
    if legacy and isinstance(error, BufferError):
        return True
    odd = SHAPES[case.layout][1] != "C" or case.form in OLDER
    return odd and isinstance(error, ALLOWED) and not isinstance(error, ACCIDENTS)


OLDER = ("version 0", "version 1", "version 2")
"""The forms of CAI before today's."""


@contextlib.contextmanager
def prepared(c: ConsumerAdapter, lab: Lab, x: Any, case: Case) -> Iterator[None]:
    """Enter the consumer's stream for the case, and do what comes before the import."""
    mine = stream_of(c) if case.mine == "its own" else None
    with c.entered(mine):
        kept = before(c, lab, x, case)
        yield
        # Queued work may still use the memory that goes with `kept`.
        lab.synchronize()
        del kept


def before(c: ConsumerAdapter, lab: Lab, x: Any, case: Case) -> Any:
    """Do what the case's moment puts before an import; return objects to keep alive."""
    if case.moment == "again":
        return taken(c, x, case)
    if case.moment == "after another array":
        return c.take(type(x)(lab))
    if case.moment == "after a part of it":
        needs(x.region.size, "it has no items")
        contents = x.contents()
        part = attempt(c.take, x.first_item())
        needs(not isinstance(part, Refusal), f"a part of it is {part}")
        # Another requirement, about unwritten arrays, judges writes outside the items.
        lab.synchronize()
        lab.store(x.memory.ptr, contents)
        return part
    if case.moment == "after a refusal":
        refuse(c, type(x), lab)
    return None


def refuse(c: ConsumerAdapter, kind: type[CaiArray | DLPackArray], lab: Lab) -> None:
    """Hand over arrays that the consumer should refuse.

    Raises
    ------
    NotApplicableError
        The consumer takes all of them.
    """
    some: list[dict[str, Any]] = [{"version": 9}, {"typestr": "|O8"}, {"shape": (-1,)}]
    if kind is DLPackArray:
        some = [{"form": "2.0"}, {"code": 99}, {"error": BufferError("not this one")}]
    refused = 0
    for odd in some:
        try:
            c.take(kind(lab, **odd))
        except Exception:
            refused += 1
    needs(refused, "it refuses none")


def expect_read(c: ConsumerAdapter, lab: Lab, x: Any, case: Case) -> str:
    """Hand an array over, and compare the items that the consumer reads with the array's.

    Raises
    ------
    UnmetError
        The consumer reads other items.
    """
    with prepared(c, lab, x, case):
        seen = c.values(c.copy(taken(c, x, case)))
    expect(x.holds(seen), f"{x.values}{_told(case)} is read as {seen}")
    return f"{seen}"


def _told(case: Case) -> str:
    return f" of {case}" if case.odd else ""


def expect_read_or_refused(c: ConsumerAdapter, lab: Lab, x: Any, case: Case) -> str:
    """Hand an array over: the consumer must read its items, or refuse it.

    Raises
    ------
    UnmetError
        The consumer reads other items.
    """

    def read() -> Any:
        with prepared(c, lab, x, case):
            return c.values(c.copy(c.take(x)))

    seen = attempt(read)
    right = isinstance(seen, Refusal) or x.holds(seen)
    expect(right, f"{x.values}{_told(case)} is read as {seen}")
    return f"{seen}"


def expect_refused(c: ConsumerAdapter, lab: Lab, x: Any, case: Case, told: str) -> str:
    """Hand over an array that the consumer must refuse.

    Raises
    ------
    UnmetError
        The consumer takes the array that `told` describes.
    """
    with prepared(c, lab, x, case.but(moment="first" if case.moment == "again" else case.moment)):
        y = attempt(c.take, x)
    expect(isinstance(y, Refusal), f"{told} is taken")
    return f"{y}"


def stream_of(c: ConsumerAdapter) -> Any:
    """Make a stream of the consumer.

    Raises
    ------
    MissingMemberError
        The adapter makes no streams.
    """
    stream = c.stream()
    if stream is None:
        raise missing(c, "stream()")
    return stream


def asked_with(lab: Lab, asked: list[dict[str, Any]]) -> str:
    """Describe what a consumer asked ``__dlpack__`` for, with the streams by name."""
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
    """Wait for a copy that a consumer queued, and judge the values that it saw.

    Parameters
    ----------
    c : ConsumerAdapter
        The consumer.
    lab : Lab
        The lab.
    copied : object
        What ``c.copy`` gave.
    late : Late
        The array, the value that the copy must see in every item, and the hold.
    circumstance : str
        The way in which the consumer had to learn about the order.
    shown : bool, optional
        Whether an unordered copy would have run early; by default the lab finds out.

    Raises
    ------
    UnmetError
        The copy saw another value, or nothing orders the write and the copy.
    """
    if shown is None:
        # Waiting on the host is right as well, and lets the hold end.
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
