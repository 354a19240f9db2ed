"""What a conversion has to do whoever writes it: calls of the driver, and of the libraries.

The driver's calls are timed through ctypes, less a call of it that does nothing. ctypes lets the
interpreter's lock go for one kind of library object and keeps it for the other: the difference is
what that takes.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Iterator
from typing import Any

from timing import Row, timed

GROUP = "floors"
LEGACY = 1
ATTRIBUTES = (1, 2, 8, 9)
"""Context, kind of memory, managed, device: what the bridge asks of a pointer."""

CALLS = {
    "getattr": "pass",
    "SMV(t)": "SMV.from_dlpack(t, stream_ptr=-1)",
    "requires_grad": "t.requires_grad",
    "is_neg": "t.is_neg()",
    "cupy's attributes": "c.shape, c.strides, c.dtype, c.data.ptr",
    "cupy's dict": "c.__cuda_array_interface__",
    "numba's dict": "n.__cuda_array_interface__",
    "a dict": (
        '{"shape": (four, four), "typestr": text, "data": (four, False), "version": 3,'
        ' "strides": None, "stream": 1}'
    ),
    "a C function": "abs(four)",
}
"""Statements that a floor is made of."""


def floor_rows(found: dict[str, Any]) -> Iterator[Row]:
    """The parts, by the names that pairs.toml adds up."""
    least: dict[str, float] = {}
    names = {**found, "four": 4, "text": "<f4"}
    for name, statement in CALLS.items():
        try:
            (times,) = timed([statement], names)
        except Exception as error:
            yield Row(GROUP, name, None, remark=f"{type(error).__name__}: {error}")
            continue
        least[name] = min(times)
        yield Row(GROUP, name, min(times), median=statistics.median(times))
    parts = driver_parts(found)
    guards = ("requires_grad", "is_neg")
    if all(name in least for name in guards):
        parts["guards"] = sum(least[name] for name in guards) - 2 * least["getattr"]
    for name, value in parts.items():
        yield Row(GROUP, name, value)


def driver_parts(found: dict[str, Any]) -> dict[str, float]:
    """The driver's calls of an order each way, of a look at a pointer, and the lock's release."""
    from gpu import driver as cuda_driver

    if "t" not in found:
        return {}
    loaded = cuda_driver.load()
    loaded.use_primary()
    event, side, pointer = loaded.event(), found["side"], found["t"].data_ptr()
    letting, keeping = ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL("libcuda.so.1")
    found = {"p": ctypes.c_void_p, "e": ctypes.c_void_p(event), "legacy": ctypes.c_void_p(LEGACY)}
    found["side"], found["version"] = ctypes.c_void_p(side), ctypes.byref(ctypes.c_int())
    found["status"], found["none"] = ctypes.byref(ctypes.c_int()), ctypes.c_uint(0)
    found |= {"keeping": keeping, "letting": letting}
    slots = [ctypes.c_uint64() for _ in ATTRIBUTES]
    found["kinds"] = (ctypes.c_int * len(slots))(*ATTRIBUTES)
    found["answers"] = (ctypes.c_void_p * len(slots))(*map(ctypes.addressof, slots))
    found["count"], found["address"] = ctypes.c_uint(len(slots)), ctypes.c_uint64(pointer)
    # Less a call of the same arguments that takes no notice of them.
    calls = {
        "lock": ("letting.cuDriverGetVersion", "version"),
        "record legacy": ("keeping.cuEventRecord", "e, legacy"),
        "wait side": ("keeping.cuStreamWaitEvent", "side, e, none"),
        "record side": ("keeping.cuEventRecord", "e, side"),
        "wait legacy": ("keeping.cuStreamWaitEvent", "legacy, e, none"),
        "capturing": ("keeping.cuStreamIsCapturing", "side, status"),
        "pointer": ("keeping.cuPointerGetAttributes", "count, kinds, answers, address"),
    }
    own = {}
    for name, (function, arguments) in calls.items():
        rest = arguments.partition(",")[2]
        nothing = f"keeping.cuDriverGetVersion(version,{rest})"
        loaded.synchronize()
        whole, without = timed([f"{function}({arguments})", nothing], found, 500)
        own[name] = max(0.0, min(whole) - min(without))
    loaded.synchronize()
    loaded("cuEventDestroy_v2", event)
    asked = 2 * own["capturing"] + own["lock"]
    return {
        "pointer": own["pointer"],
        "lock": own["lock"],
        "capturing": own["capturing"],
        "order there": own["record legacy"] + own["wait side"] + asked,
        "order back": own["record side"] + own["wait legacy"] + asked,
    }
