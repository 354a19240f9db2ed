"""Items of a producer's arrays in every layout: what a protocol describes, and the real items."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from cai_bridge.testing import describe
from cai_bridge.testing._kit.dlpack_abi import take
from cai_bridge.testing._kit.said import Said
from cai_bridge.testing._kit.said_dlpack import said_by_table, said_by_tensor
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
    """Reads an array's description by a protocol, asked for by the case's route."""

    def __call__(self, x: Any, case: Case = PLAIN) -> Said:
        """Read the description."""


def by_cai(x: Any, case: Case = PLAIN) -> Said:
    """Read an array's dict."""
    del case
    return describe(cai_of(x))["CAI"]


def by_dlpack(x: Any, case: Case = PLAIN) -> Said:
    """Read the tensor of a capsule."""
    return describe(export(x, case, stream=1))["capsule"]


def by_exchange(x: Any, case: Case = PLAIN) -> Said:
    """Read a tensor of the exchange API."""
    del case
    table_of(x)
    # `describe` asks the other doors, too, and `__dlpack__` may copy what has 2**31 items here.
    if (said := said_by_table(x)) is None:
        raise NotApplicableError("the type has no table of major version 1")
    return said


def by_loan(x: Any, case: Case = PLAIN) -> Said:
    """Read a borrowed tensor of the exchange API."""
    del case
    return said_by_tensor("the borrowed tensor", table_of(x).borrow(x))


def whole_of(p: ProducerAdapter, lab: Lab, case: Case) -> Any:
    """Make the array that the case's layout is taken from."""
    return made(p, lab, LAYOUTS[case.layout][0], case.dtype)


def taken_of(p: ProducerAdapter, lab: Lab, x: Any, case: Case) -> tuple[Any, View]:
    """Take the case's layout of an array, read-only if the case says so; return also its view."""
    shape, steps = LAYOUTS[case.layout]
    if case.flag == "read-only":
        x = p.readonly(x)
    view = View.of(shape)
    for step in steps:
        x, view = p.taken(x, step), view.take(step)
    lab.synchronize()
    return x, view


def laid_out(p: ProducerAdapter, lab: Lab, case: Case) -> Any:
    """Make an array of the case's layout and type."""
    return taken_of(p, lab, whole_of(p, lab, case), case)[0]


def is_copy(case: Case, ptr: int, base: int) -> bool:
    """Return whether a view of the array at `base` is a copy outside its memory."""
    size = math.prod(LAYOUTS[case.layout][0]) * dtype_named(case.dtype).itemsize
    return not base <= ptr < base + size


def numbers(case: Case, places: list[int]) -> list[Any]:
    """Return the numbers that the kit writes at places of an array."""
    if case.dtype == "bool":
        return [place % 2 == 1 for place in places]
    return [place + 1 for place in places]


def region_in(lab: Lab, said: Said, case: Case) -> Region:
    """Make a region from a description, with the case's type: some typestrs do not name it."""
    region = lab.region(said)
    size = dtype_named(case.dtype).itemsize
    expect(region.itemsize == size, f"items of {case.dtype} have {region.itemsize} bytes")
    return dataclasses.replace(region, dtype=case.dtype)


def earlier(case: Case, x: Any, export_of: Callable[..., Any], *given: Any) -> Any:
    """Do what the case's moment puts before an export; return objects to keep alive."""
    if case.moment == "again":
        return said_or_refused(lambda x, _: export_of(x, *given), x, case)
    if case.moment == "after an end":
        end(said_or_refused(lambda x, _: export_of(x, *given), x, case))
    if case.moment == "after a refusal":
        needs(hasattr(x, "__dlpack__"), "a protocol without arguments refuses nothing")
        refuse(x)
    return None


def end(held: Any) -> None:
    """Take a tensor over, if `held` is one, and call its deleter at once."""
    if held is not None and not isinstance(held, dict):
        taken = held if hasattr(held, "delete") else take(held)
        taken.delete()
    collect()


def dict_or_refused(x: Any, case: Case) -> Any:
    """Read the dict of an array, after the case's moment; the producer may refuse some cases."""
    kept = earlier(case, x, cai_of)
    entries = said_or_refused(lambda x, _: cai_of(x), x, case)
    del kept
    return entries


def may_refuse(case: Case) -> bool:
    """Return whether an array of a case may be refused: for its type, layout or read-only flag."""
    return (
        case.dtype != PLAIN.dtype
        or may_be_refused(case.layout)
        or case.route == "copy=True"
        or case.flag == "read-only"
    )


def said_or_refused(door: Callable[[Any, Case], T], y: Any, case: Case) -> T:
    """Ask for an array's description, which the producer may refuse for some cases.

    Raises
    ------
    NotApplicableError
        The producer refused.
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
    """Read an array as a protocol describes it, and compare with the values that the kit wrote.

    Raises
    ------
    UnmetError
        The items differ, or the region reaches beyond the array's memory.
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
    """Read items. A region that begins or ends in the array's memory must not reach beyond it."""
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
    """Return the first byte of a region, and the byte after the last."""
    spans = region.spans()
    return min(ptr for ptr, _ in spans), max(ptr + length for ptr, length in spans)


def lazy_values(p: ProducerAdapter, lab: Lab, case: Case, door: Reads) -> str:
    """Export arrays with recorded operations, and judge the values.

    Raises
    ------
    UnmetError
        The values differ, and nothing was refused.
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
