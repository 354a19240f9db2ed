"""Copies of a `DLPackView`, asked for and looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

from cai_bridge import to_cai

from . import capsules
from .driver import Driver
from .libraries import raw_values

SPIN_MS = 60.0
COUNT = 4096
NEWEST = (1, 3)


def cai_of(address: int, shape: tuple[int, ...] = (COUNT,), **entries: Any) -> Any:
    """The bytes at an address as an object that speaks CAI only, float32."""
    return capsules.OnlyCai(capsules.interface(address, shape, **entries))


def copied(view: Any, **wishes: Any) -> Any:
    """A copy as an array that speaks CAI, with no order made beside the copy's own."""
    return to_cai(view.__dlpack__(copy=True, max_version=NEWEST, **wishes), stream=-1)


def floats(driver: Driver, view: Any) -> np.ndarray[Any, Any]:
    driver.synchronize()
    return raw_values(view.ptr, view.shape, view.strides, np.dtype(np.float32))


def write(driver: Driver, address: int, value: float, stream: int) -> None:
    bits = int(np.float32(value).view(np.uint32))
    driver.write(address, bits, COUNT, stream)
