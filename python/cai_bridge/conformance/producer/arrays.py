"""A producer's arrays for the checks, and how to ask them for exports."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import re
import weakref
from collections.abc import Callable
from typing import Any, TypeGuard, cast

from cai_bridge.testing._kit.dlpack_abi import (
    ExchangeTable,
    TensorFields,
    capsule_name,
    exchange_table,
)
from cai_bridge.testing._kit.dlpack_fields import fields_of
from cai_bridge.testing._kit.said import Said
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import DTYPES

from ..adapter import ProducerAdapter
from ..cases import Case
from ..lab import Lab, flat
from ..requirement import NotApplicableError, UnmetError, UsedCapsuleError, expect, needs

DICT = "__cuda_array_interface__"
CPU, CUDA, PINNED, MANAGED = 1, 2, 3, 13


def made(
    p: ProducerAdapter, lab: Lab, shape: tuple[int, ...] = (3, 4), dtype: str = "float32"
) -> Any:
    """Make a C-contiguous array with nothing pending."""
    x = p.make(shape, dtype)
    lab.synchronize()
    return x


def speaks_dlpack(x: Any) -> None:
    """Skip the check if the array has no ``__dlpack__``."""
    needs(hasattr(x, "__dlpack__"), f"{type(x).__name__} has no __dlpack__")


ROUTES: dict[str, dict[str, Any]] = {
    "max_version 1.3": {"max_version": (1, 3)},
    "legacy": {"max_version": None},
    "max_version 1.0": {"max_version": (1, 0)},
    "max_version 2.0": {"max_version": (2, 0)},
    "dl_device": {"max_version": (1, 3)},
    "copy=False": {"max_version": (1, 3), "copy": False},
    "copy=True": {"max_version": (1, 3), "copy": True},
}
"""The arguments of each route; the array's own device is looked up."""


def export(x: Any, case: Case | None = None, **wishes: Any) -> Any:
    """Ask for a capsule by the case's route, without arguments that a producer need not take.

    These are ``max_version``, which older producers lack, and a stream: None means 1 as well.

    Raises
    ------
    UnmetError
        The result is not an unused capsule.
    """
    speaks_dlpack(x)
    route = (case or Case()).route
    wishes = {**ROUTES[route], **wishes}
    needs_saying(case)
    if route == "dl_device" and "dl_device" not in wishes:
        wishes["dl_device"] = x.__dlpack_device__()
    if on_cpu(x) and wishes.get("stream") == 1:
        del wishes["stream"]
    try:
        return _asked(x, wishes)
    except UnmetError:
        raise
    except Exception as refused:
        if isinstance(refused, BufferError) and not wishes["max_version"] and has_versioned(x):
            # The requirement dlpack-legacy judges these capsules.
            raise NotApplicableError(f"legacy capsules are refused: {refused}") from None
        if wishes.get("stream") != 1:
            raise
        del wishes["stream"]
        try:
            return _asked(x, wishes)
        except BufferError:
            raise
        except Exception:
            # The stream was not the reason for the refusal.
            raise refused from None


def needs_saying(case: Case | None) -> None:
    """Skip read-only memory in legacy capsules, which have no read-only flag.

    The producer refuses or copies it, which dlpack-legacy and dlpack-readonly judge.
    """
    unsayable = case is not None and (case.route, case.flag) == ("legacy", "read-only")
    needs(not unsayable, "a legacy capsule cannot say that memory is read-only")


def has_versioned(x: Any, **wishes: Any) -> bool:
    """Return whether the array gives versioned capsules, as arrays that refuse legacy ones do."""
    try:
        capsule = _asked(x, {"max_version": (1, 3), **wishes})
    except Exception:
        return False
    return capsule_name(capsule) == "dltensor_versioned"


def on_cpu(x: Any) -> bool:
    """Return whether an array reports that it is in CPU memory."""
    try:
        return int(x.__dlpack_device__()[0]) == CPU
    except Exception:
        return False


def _asked(x: Any, wishes: dict[str, Any]) -> Any:
    try:
        capsule = x.__dlpack__(**wishes)
    except TypeError:
        told = [name for name in ("dl_device", "copy") if name in wishes and lacks(x, name)]
        needs(not told, f"__dlpack__ takes no {' and no '.join(told)}, which came later")
        capsule = x.__dlpack__(**{name: wishes[name] for name in wishes if name != "max_version"})
    name = capsule_name(capsule)
    if name is not None and name.startswith("used_"):
        raise UsedCapsuleError(f"this capsule was used before: it is called {name!r}")
    if name not in ("dltensor", "dltensor_versioned"):
        what = f"a capsule called {name!r}" if name else f"a {type(capsule).__name__}"
        raise UnmetError(f"__dlpack__ gives {what}")
    return capsule


def lacks(x: Any, name: str) -> bool:
    """Return whether `__dlpack__` refuses a keyword even with the value None.

    Producers may adopt max_version, dl_device and copy at different times.
    """
    try:
        x.__dlpack__(**{name: None})
    except TypeError:
        return True
    except Exception:
        return False
    return False


def asked_on(x: Any, stream: int | None, case: Case | None = None, *, strict: bool = False) -> Any:
    """Ask for a capsule on a stream; None if the stream is refused, as any but None may be."""
    needs_saying(case)
    wishes = {**ROUTES[(case or Case()).route], "stream": stream}
    if case is not None and case.route == "dl_device":
        wishes["dl_device"] = x.__dlpack_device__()
    try:
        return _asked(x, wishes)
    except UnmetError:
        raise
    except Exception:
        if strict or stream is None:
            raise
        return None


def stream_taken(x: Any) -> dict[str, int]:
    """Return the stream argument for a capsule that is ready on the default stream."""
    if on_cpu(x):
        return {}
    try:
        _asked(x, {"max_version": (1, 3), "stream": 1})
    except Exception:
        return {}
    return {"stream": 1}


def refuse(x: Any) -> None:
    """Make requests that are refused: stream 0, a missing device, an unknown argument."""
    for wishes in ({"stream": 0}, {"dl_device": (10, 0)}, {"copy": True, "dl_device": (10, 7)}):
        with contextlib.suppress(Exception):
            x.__dlpack__(**wishes)


def table_of(x: Any) -> ExchangeTable:
    """Return the exchange API table of the array's type."""
    table = exchange_table(type(x))
    if table is None:
        needs(not has_table(x), "the table is none of DLPack 1, of which exchange-table tells")
        raise NotApplicableError(f"{type(x).__name__} has no __dlpack_c_exchange_api__")
    return table


def has_table(x: Any) -> bool:
    """Return whether the type has any object in the place of a table."""
    return getattr(type(x), "__dlpack_c_exchange_api__", None) is not None


def cai_of(x: Any) -> Any:
    """Read the dict; skip the check if the library has none.

    A property that raises AttributeError means that the array does not speak CAI.
    """
    reason = f"{type(x).__name__} has no __cuda_array_interface__"
    needs(hasattr(type(x), "__cuda_array_interface__") or hasattr(x, DICT), reason)
    try:
        return x.__cuda_array_interface__
    except AttributeError as error:
        raise NotApplicableError(f"{reason}: {error}") from error


def can_be_late(p: ProducerAdapter) -> bool:
    """Return whether the adapter can make pending work."""
    return type(p).late is not ProducerAdapter.late or p.stream() is not None


def is_int(value: object) -> TypeGuard[int]:
    """Return whether `value` is an int; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_typestr(text: object, dtype: str) -> bool:
    """Return whether `text` is a typestr of NumPy's array interface for this element type."""
    found = re.fullmatch(r"[<>|]([biufcmMOSUV])([0-9]+)", str(text))
    if found is None:
        return False
    known = DTYPES.get(dtype)
    if known is None:
        return True
    # bfloat16 and the 8-bit floats have no letter of their own.
    kinds = "Vuf" if known.typestr[1] == "V" else known.typestr[1]
    return int(found[2]) == known.itemsize and found[1] in kinds


def descr_size(descr: list[Any]) -> int:
    """Return the number of bytes in the fields of a dict's ``descr``."""
    return sum(int(one[1][2:]) * math.prod(one[2] if one[2:] else ()) for one in descr)


def host_values(x: Any) -> list[Any] | None:
    """Read an array's items through the library; None if it has no ``tolist``."""
    if not hasattr(x, "tolist"):
        return None
    try:
        return [*flat(x.tolist())]
    except NotImplementedError:
        return None


def on_host(lab: Lab, said: Said) -> list[Any]:
    """Read the items of an array in memory that the host can read."""
    strides = cast("tuple[int, ...]", said.strides)
    shape = cast("tuple[int, ...]", said.shape)
    ptr, itemsize = cast("int", said.ptr), cast("int", said.itemsize)
    region = Region(ptr, shape, strides, str(said.dtype), itemsize)
    load = lab.load if region.size and lab.device_of(ptr) else ctypes.string_at
    return [*flat(region.read(load))]


def is_readable(lab: Lab, fields: TensorFields, own: tuple[int, int]) -> bool:
    """Return whether the host can read a tensor's memory; `own` is the array's own device."""
    kind, _ = lab.device_of(fields.ptr) or (CPU, 0)
    return kind != CUDA or own[0] in (PINNED, MANAGED)


def reference_to(x: Any) -> Callable[[], Any]:
    """Make a weak reference to an object, if it can have one."""
    try:
        return weakref.ref(x)
    except TypeError:
        raise NotApplicableError(f"{type(x).__name__} takes no weak references") from None


def collect() -> None:
    """Collect garbage."""
    gc.collect()


def expect_gone(p: ProducerAdapter, lab: Lab, alive: Callable[[], Any], when: str = "") -> None:
    """Collect garbage, and judge whether an array is freed: at once, or a moment later.

    A deleter may leave the rest to another thread, or to the next allocation.

    Raises
    ------
    UnmetError
        The array is still alive.
    """
    collect()
    if alive() is not None:
        made(p, lab)
    gone = lab.soon(lambda: alive() is None)
    expect(gone, f"the array is still there{when}")


def expect_kept(
    p: ProducerAdapter, lab: Lab, region: Region, region_of: Callable[[Any], Region], gone: str
) -> None:
    """Fill new arrays, and judge whether a region of 5s keeps its values: its memory is not reused.

    Raises
    ------
    UnmetError
        The region holds other values after its holder is `gone`.
    """
    for other in [made(p, lab) for _ in range(4)]:
        lab.put(region_of(other), 6.0)
    seen = lab.read(1, region)
    lab.wait(1)
    right = not region.size or set(flat(seen.value)) == {5.0}
    expect(right, f"with {gone} gone it holds {seen.value}")


def expect_freed(lab: Lab, make: Callable[[], Any], what: str) -> None:
    """Make and delete tensors of new memory, and judge whether some of the memory was freed.

    Raises
    ------
    UnmetError
        None of the memory was freed.
    """
    places = []
    for _ in range(MANY):
        taken = make()
        places.append(taken.fields.ptr)
        lab.synchronize()
        taken.delete()
        del taken
        collect()

    def left() -> int:
        return sum(lab.device_of(ptr) is not None for ptr in {*places})

    # The library may leave some to another thread or the next allocation; a pool reuses them.
    freed = lab.soon(lambda: left() < MANY)
    expect(freed, f"{what} {MANY} times, one after another, takes memory each time, and keeps all")


MANY = 8


def expect_independent(first: Any, second: Any, another: Callable[[], Any]) -> Any:
    """Delete the first of two tensors, take another, and judge whether the second is unchanged.

    Raises
    ------
    UnmetError
        The second tensor changed.
    """
    before = fields_of(second.struct)
    first.delete()
    collect()
    after = fields_of(second.struct)
    expect(after == before, f"then the other says {after}")
    third = another()
    after = fields_of(second.struct)
    expect(after == before, f"then, with another array exported, it says {after}")
    third.delete()
    return before


def expect_unwritten(p: ProducerAdapter, lab: Lab, x: Any, said: Region, *, readonly: bool) -> None:
    """Judge that the library itself does not write to an array that is marked read-only."""
    if not readonly or p.immutable:
        return
    value = next(lab.values())
    try:
        p.fill(x, value)
    except Exception:
        return  # refused
    lab.synchronize()
    seen = {*flat(lab.get(said))}
    expect(seen != {value}, "it is told as read-only, and the library's own fill() has written it")
