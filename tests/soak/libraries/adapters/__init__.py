"""The libraries as a program uses them, an adapter each; `dry` has stand-ins for a machine without
a GPU.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from ...step import LIBRARIES
from ...zygote import Ready

NOT_INITIALIZED = 3


def load(name: str) -> type[Any]:
    """Import a library, and give its adapter. Nothing here is to touch the GPU."""
    adapter: type[Any] = importlib.import_module(f"{__name__}.{name}").Adapter
    return adapter


def stand_ins() -> Ready:
    """Import what stands in for the libraries, so that no child has to."""
    for name in ("dry", "simulated"):
        importlib.import_module(f"{__name__}.{name}")
    return Ready(list(LIBRARIES))


def imported(later: list[str]) -> Ready:
    """Import the libraries, and see whether one of them starts CUDA."""
    ready = Ready()
    for name in LIBRARIES:
        if name in later:
            ready.there.append(name)
            continue
        try:
            load(name)
        except Exception as error:
            ready.missing[name] = f"{type(error).__name__}: {error}"
            continue
        ready.there.append(name)
        ready.versions[name] = str(getattr(importlib.import_module(name), "__version__", "?"))
        if cuda_is_started():
            ready.started_by = name
            break
    return ready


def cuda_is_started() -> bool:
    """Whether anybody has initialised the driver in this process."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return int(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))) != NOT_INITIALIZED
