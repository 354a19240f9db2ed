"""Layouts of the kit's own arrays, which consumers must take."""

from __future__ import annotations

from typing import Any

from cai_bridge.testing._values import DTYPES

from ..adapter import ConsumerAdapter
from ..cases import Case
from ..lab import CaiArray, DLPackArray, Lab
from ..refusals import Refusal, attempt
from ..requirement import expect, needs
from .arrays import prepared
from .shapes import SHAPES

Handed = CaiArray | DLPackArray

KEYWORDS = {
    "all": ("stream", "max_version", "dl_device", "copy"),
    "stream and max_version": ("stream", "max_version"),
    "stream alone": ("stream",),
}
"""What a producer's ``__dlpack__`` takes, by the value of `asking`."""


def handed(kind: type[Handed], lab: Lab, case: Case, **more: Any) -> Any:
    """Make one of the kit's own arrays for a case."""
    vague = kind is CaiArray and DTYPES[case.dtype].typestr[1] == "V"
    needs(not vague, f"the typestr of {case.dtype} does not say which type it is")
    shape, layout = SHAPES[case.layout]
    wanted: dict[str, Any] = {"form": case.form, "memory": case.memory, "layout": layout}
    wanted["readonly"] = case.flag == "read-only"
    if kind is DLPackArray:
        wanted["keywords"] = KEYWORDS[case.asking]
    return kind(lab, shape, case.dtype, **{**wanted, **more})


_TELLING = {"b": True, "i": -1, "f": -1.5, "c": -1.5 - 2j}


def expect_others_refused(c: ConsumerAdapter, lab: Lab, case: Case, kind: type[Handed]) -> str:
    """Hand over items of each type that the consumer lacks.

    Raises
    ------
    UnmetError
        The consumer takes an array, and reads other values.
    """
    told = []
    for dtype in DTYPES:
        letter, size = DTYPES[dtype].typestr[1], DTYPES[dtype].itemsize
        if dtype in c.dtypes or (letter == "V" and kind is CaiArray):
            continue
        value: Any = _TELLING.get(letter, 2 ** (8 * size) - 1 if letter == "u" else None)
        x = handed(kind, lab, case.but(dtype=dtype), value=value)

        def read(x: Any = x) -> Any:
            with prepared(c, lab, x, case):
                return c.values(c.copy(c.take(x)))

        seen = attempt(read)
        right = isinstance(seen, Refusal) or x.holds(seen)
        expect(right, f"{x.values} of {dtype}, which it does not have, is read as {seen}")
        told.append(dtype if right else "")
    return f"{', '.join(told)}: refused, or read right" if told else "it has all types"


def expect_gaps_kept(c: ConsumerAdapter, lab: Lab, x: Any) -> str:
    """Have the consumer fill a strided array, and check that the gaps keep their bytes.

    Raises
    ------
    UnmetError
        The bytes in a gap changed.
    """
    y = attempt(c.take, x)
    if isinstance(y, Refusal):
        return f"{y}"
    before = x.contents()
    refused = attempt(c.fill, y, 9.0)
    if isinstance(refused, Refusal):
        return f"the write was {refused}"
    lab.synchronize()
    base = x.memory.ptr
    own = {at for ptr, n in x.region.spans() for at in range(ptr - base, ptr - base + n)}
    after = x.contents()
    changed = [at for at, byte in enumerate(after) if byte != before[at] and at not in own]
    expect(not changed, f"{len(changed)} bytes between or beside the items have changed")
    return "as before"
