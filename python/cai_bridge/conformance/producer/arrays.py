"""Arrays of a producer that requirements are judged by, and what they say."""

from __future__ import annotations

import gc
import math
import re
import threading
import weakref
from collections.abc import Callable
from typing import Any

from cai_bridge.testing._kit.dlpack_abi import ExchangeTable, exchange_table
from cai_bridge.testing._values import DTYPES

from ..adapter import ProducerAdapter
from ..lab import Lab, flat
from ..requirement import NotApplicableError, needs


def made(
    p: ProducerAdapter, lab: Lab, shape: tuple[int, ...] = (3, 4), dtype: str = "float32"
) -> Any:
    """Make a C-contiguous array with nothing pending."""
    x = p.make(shape, dtype)
    lab.synchronize()
    return x


def strided(p: ProducerAdapter, lab: Lab, x: Any = None) -> Any:
    """Take every second column of an array of two dimensions, by one of its own."""
    x = made(p, lab) if x is None else x
    y = p.strided(x)
    lab.synchronize()
    return y


def export(x: Any, **wishes: Any) -> Any:
    """Ask for a capsule, without ``max_version`` where the producer takes none."""
    needs(hasattr(x, "__dlpack__"), f"{type(x).__name__} has no __dlpack__")
    try:
        return x.__dlpack__(**{"max_version": (1, 3), **wishes})
    except TypeError:
        wishes.pop("max_version", None)
        return x.__dlpack__(**wishes)


def table_of(x: Any) -> ExchangeTable:
    """Find the type's exchange API."""
    table = exchange_table(type(x))
    if table is None:
        raise NotApplicableError(f"{type(x).__name__} has no __dlpack_c_exchange_api__")
    return table


def cai_of(x: Any) -> Any:
    """Read the dict; a library that has none is not judged by it."""
    needs(
        hasattr(type(x), "__cuda_array_interface__") or hasattr(x, "__cuda_array_interface__"),
        f"{type(x).__name__} has no __cuda_array_interface__",
    )
    return x.__cuda_array_interface__


def can_be_late(p: ProducerAdapter) -> bool:
    """Tell whether the adapter says how pending work comes about."""
    return type(p).late is not ProducerAdapter.late or p.stream() is not None


def is_typestr(text: object, dtype: str) -> bool:
    """Tell whether it is a typestr of NumPy's array interface, and of that element type."""
    found = re.fullmatch(r"[<>|=]?([biufcmMOSUV])([0-9]+)", str(text))
    if found is None:
        return False
    known = DTYPES.get(dtype)
    if known is None:
        return True
    # bfloat16 and the 8-bit floats have no kind of their own.
    kinds = "Vuf" if known.typestr[1] == "V" else known.typestr[1]
    return int(found[2]) == known.itemsize and found[1] in kinds


def descr_size(descr: list[Any]) -> int:
    """Add up the bytes of a dict's ``descr``: each field has a typestr, and perhaps a shape."""
    return sum(int(one[1][2:]) * math.prod(one[2] if one[2:] else ()) for one in descr)


def host_values(x: Any) -> list[Any] | None:
    """Read an array by the library itself, item by item; None where it has no ``tolist``."""
    if not hasattr(x, "tolist"):
        return None
    try:
        return [*flat(x.tolist())]
    except NotImplementedError:
        return None


def reference_to(x: Any) -> Callable[[], Any]:
    """Refer to an object without keeping it."""
    try:
        return weakref.ref(x)
    except TypeError:
        raise NotApplicableError(f"{type(x).__name__} takes no weak references") from None


def collect() -> None:
    """Collect garbage."""
    gc.collect()


def in_another_thread(call: Callable[[], object]) -> None:
    """Call from another thread, and pass on what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
