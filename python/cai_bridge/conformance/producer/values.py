"""Items of a producer's arrays in every layout: what a protocol says, and what is there."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

from cai_bridge.testing import describe
from cai_bridge.testing._kit.said import Said
from cai_bridge.testing._kit.said_dlpack import said_by_tensor
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import dtype_named, nested

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab, flat
from ..layouts import LAYOUTS, REVERSED, View
from ..requirement import NotApplicableError, expect, needs
from .arrays import cai_of, export, host_values, made, table_of

Reads = Callable[[Any], Said]
T = TypeVar("T")


def by_cai(x: Any) -> Said:
    """Read what an array's dict says."""
    return describe(cai_of(x))["CAI"]


def by_dlpack(x: Any) -> Said:
    """Read what the tensor of a capsule says."""
    return describe(export(x, stream=1))["capsule"]


def by_exchange(x: Any) -> Said:
    """Read what a tensor of the exchange API says."""
    table_of(x)
    return describe(x)["exchange API"]


def by_loan(x: Any) -> Said:
    """Read what a borrowed tensor of the exchange API says."""
    return said_by_tensor("the borrowed tensor", table_of(x).borrow(x))


def whole_of(p: ProducerAdapter, lab: Lab, case: Case) -> Any:
    """Make the array that a case's layout is taken of."""
    return made(p, lab, LAYOUTS[case.layout][0], case.dtype)


def taken_of(p: ProducerAdapter, lab: Lab, x: Any, case: Case) -> tuple[Any, View]:
    """Take a case's layout of an array; tell where its items are."""
    shape, steps = LAYOUTS[case.layout]
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


def said_or_refused(door: Callable[[Any], T], y: Any, case: Case) -> T:
    """Ask for an array's description; some types, and negative strides, may be refused.

    Raises
    ------
    NotApplicableError
        It was refused.
    """
    plain = Case()
    try:
        said = door(y)
    except NotApplicableError:
        raise
    except Exception as refused:
        if case.dtype != plain.dtype or case.layout in (*REVERSED, "broadcast"):
            what = f"refused: {type(refused).__name__}: {refused}"
            raise NotApplicableError(what) from None
        raise
    if case.dtype != plain.dtype or case.layout in (*REVERSED, "broadcast"):
        error = getattr(said, "error", None)
        needs(not error, f"refused: {error}")
    return said


def expect_values(p: ProducerAdapter, lab: Lab, case: Case, door: Reads) -> str:
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
    if case == Case():
        own = host_values(x)
        expect(own in (None, rows), f"the library itself reads {own}, the protocol says {rows}")
    y, view = taken_of(p, lab, x, case)
    part = region_in(lab, said_or_refused(door, y, case), case)
    expect(part.shape == view.shape, f"the shape is {part.shape} for {view.shape}")
    seen = items(lab, part, base)
    wanted = numbers(case, view.places())
    expect(seen == wanted, f"{case.layout!r} is read as {seen}, and holds {wanted}")
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
        if case.layout == "part":
            x, wanted = p.index(x, (slice(1, None),)), list(flat(values[1:]))
        lab.synchronize()
        try:
            said = door(x)
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
