"""Items of a producer's arrays in every layout: what a protocol says, and what is there."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import take
from cai_bridge.testing._kit.said import Said
from cai_bridge.testing._kit.said_dlpack import said_by_tensor
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import dtype_named, nested

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab, flat
from ..layouts import LAYOUTS, View, may_be_refused
from ..refusals import ACCIDENTS
from ..requirement import NotApplicableError, UnmetError, expect, needs
from .arrays import cai_of, collect, export, host_values, made, refuse, table_of

T = TypeVar("T")
PLAIN = Case()


class Reads(Protocol):
    """Reads what a protocol says of an array, asked as a case says."""

    def __call__(self, x: Any, case: Case = PLAIN) -> Said:
        """Read it."""


def by_cai(x: Any, case: Case = PLAIN) -> Said:
    """Read what an array's dict says."""
    del case
    return describe(cai_of(x))["CAI"]


def by_dlpack(x: Any, case: Case = PLAIN) -> Said:
    """Read what the tensor of a capsule says."""
    return describe(export(x, case, stream=1))["capsule"]


def by_exchange(x: Any, case: Case = PLAIN) -> Said:
    """Read what a tensor of the exchange API says."""
    del case
    table_of(x)
    return describe(x)["exchange API"]


def by_loan(x: Any, case: Case = PLAIN) -> Said:
    """Read what a borrowed tensor of the exchange API says."""
    del case
    return said_by_tensor("the borrowed tensor", table_of(x).borrow(x))


def whole_of(p: ProducerAdapter, lab: Lab, case: Case) -> Any:
    """Make the array that a case's layout is taken of."""
    return made(p, lab, LAYOUTS[case.layout][0], case.dtype)


def taken_of(p: ProducerAdapter, lab: Lab, x: Any, case: Case) -> tuple[Any, View]:
    """Take a case's layout of an array, read-only if the case says so; tell where its items are."""
    shape, steps = LAYOUTS[case.layout]
    if case.flag == "read-only":
        x = p.readonly(x)
    view = View.of(shape)
    for step in steps:
        x, view = p.taken(x, step), view.take(step)
    lab.synchronize()
    return x, view


def laid_out(p: ProducerAdapter, lab: Lab, case: Case) -> Any:
    """Make an array of a case's layout and type."""
    return taken_of(p, lab, whole_of(p, lab, case), case)[0]


def is_copy(case: Case, ptr: int, base: int) -> bool:
    """Tell whether what was taken of an array at `base` is elsewhere than in its memory."""
    size = math.prod(LAYOUTS[case.layout][0]) * dtype_named(case.dtype).itemsize
    return not base <= ptr < base + size


def numbers(case: Case, places: list[int]) -> list[Any]:
    """Tell the numbers that the kit writes at places of an array."""
    if case.dtype == "bool":
        return [place % 2 == 1 for place in places]
    return [place + 1 for place in places]


def region_in(lab: Lab, said: Said, case: Case) -> Region:
    """Make a region of what is said, of the case's type: not each typestr tells which it is."""
    region = lab.region(said)
    size = dtype_named(case.dtype).itemsize
    expect(region.itemsize == size, f"items of {case.dtype} have {region.itemsize} bytes")
    return dataclasses.replace(region, dtype=case.dtype)


def earlier(case: Case, x: Any, export_of: Callable[..., Any], *given: Any) -> Any:
    """Do what comes before an export, as a case's moment says; return what has to be kept."""
    if case.moment == "again":
        return said_or_refused(lambda x, _: export_of(x, *given), x, case)
    if case.moment == "after an end":
        end(said_or_refused(lambda x, _: export_of(x, *given), x, case))
    if case.moment == "after a refusal":
        needs(hasattr(x, "__dlpack__"), "a protocol without arguments refuses nothing")
        refuse(x)
    return None


def end(held: Any) -> None:
    """Take a tensor over, if it is one, and call its deleter at once."""
    if held is not None and not isinstance(held, dict):
        taken = held if hasattr(held, "delete") else take(held)
        taken.delete()
    collect()


def dict_or_refused(x: Any, case: Case) -> Any:
    """Read the dict of an array, behind what a case has come before; some cases may be refused."""
    kept = earlier(case, x, cai_of)
    entries = said_or_refused(lambda x, _: cai_of(x), x, case)
    del kept
    return entries


def may_refuse(case: Case) -> bool:
    """Tell whether an array of a case may be refused: by its type, its layout, or as read-only."""
    return (
        case.dtype != PLAIN.dtype
        or may_be_refused(case.layout)
        or case.route == "copy=True"
        or case.flag == "read-only"
    )


def said_or_refused(door: Callable[[Any, Case], T], y: Any, case: Case) -> T:
    """Ask for an array's description, which some cases may be refused.

    Raises
    ------
    NotApplicableError
        It was refused.
    """
    try:
        said = door(y, case)
    except (NotApplicableError, UnmetError, *ACCIDENTS):
        raise
    except Exception as refused:
        if may_refuse(case):
            what = f"refused: {type(refused).__name__}: {refused}"
            raise NotApplicableError(what) from None
        raise
    error = getattr(said, "error", None)
    needs(not (error and may_refuse(case)), f"refused: {error}")
    return said


def expect_values(
    p: ProducerAdapter,
    lab: Lab,
    case: Case,
    door: Reads,
    export_of: Callable[[Any], Any] = lambda _: None,
) -> str:
    """Read an array as a protocol says, and judge by what the kit wrote.

    Raises
    ------
    UnmetError
        Other items are read, or the region reaches beyond the array's memory.
    """
    x = whole_of(p, lab, case)
    base = region_in(lab, said_or_refused(door, x, Case(dtype=case.dtype)), case)
    rows = numbers(case, View.of(base.shape).places())
    if base.size:
        lab.put(base, nested(iter(rows), base.shape))
    if case == PLAIN:
        own = host_values(x)
        expect(own in (None, rows), f"the library itself reads {own}, the protocol says {rows}")
    y, view = taken_of(p, lab, x, case)
    kept = earlier(case, y, export_of)
    part = region_in(lab, said_or_refused(door, y, case), case)
    expect(part.shape == view.shape, f"the shape is {part.shape} for {view.shape}")
    seen = items(lab, part, base)
    wanted = numbers(case, view.places())
    expect(seen == wanted, f"{case.layout!r} is read as {seen}, and holds {wanted}")
    del kept
    return f"{case.layout!r} is read as {seen}"


def items(lab: Lab, part: Region, whole: Region) -> list[Any]:
    """Read items; what begins in the array's memory, or ends there, must not reach beyond."""
    if not part.size:
        return []
    (begin, end), (low, high) = _reach(whole), _reach(part)
    copied = high <= begin or low >= end
    expect(
        copied or begin <= low <= high <= end,
        f"it reaches from byte {low - begin} to {high - begin} of the array's {end - begin}",
    )
    return list(flat(lab.get(part)))


def _reach(region: Region) -> tuple[int, int]:
    """Tell the first byte of a region, and the one behind the last."""
    spans = region.spans()
    return min(ptr for ptr, _ in spans), max(ptr + length for ptr, length in spans)


def lazy_values(p: ProducerAdapter, lab: Lab, case: Case, door: Reads) -> str:
    """Export arrays with recorded operations, and judge by their values.

    Raises
    ------
    UnmetError
        Others are read, and nothing was refused.
    """
    told = []
    for name, array, values in p.lazy():
        x, wanted = array, list(flat(values))
        if isinstance(x, Exception):
            told.append(f"{name}: {_refused(x)}")
            continue
        if case.layout != PLAIN.layout:
            x, wanted = p.index(x, (slice(1, None),)), list(flat(values[1:]))
        lab.synchronize()
        try:
            said = door(x, case)
            refused = said.error and f"refused: {said.error}"
        except Exception as error:
            refused = _refused(error)
        if refused:
            told.append(f"{name}: {refused}")
            continue
        seen = list(flat(lab.get(lab.region(said))))
        expect(seen == wanted, f"the {name} is read as {seen}, and is {wanted}")
        told.append(f"{name}: {seen}")
    needs(told, "the adapter's lazy() gives no array")
    return "; ".join(told)


def _refused(error: Exception) -> str:
    return f"refused: {type(error).__name__}: {error}"
