"""The libraries as a program uses them, an adapter each; `dry` has stand-ins for a machine without
a GPU.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..step import LIBRARIES


def load(name: str) -> type[Any]:
    """Import a library, and give its adapter. Nothing here is to touch the GPU."""
    adapter: type[Any] = importlib.import_module(f"{__name__}.{name}").Adapter
    return adapter


def available(names: tuple[str, ...] = LIBRARIES) -> tuple[list[str], dict[str, str]]:
    """Import what is there; tell why the others are not."""
    found, missing = [], {}
    for name in names:
        try:
            load(name)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"
        else:
            found.append(name)
    return found, missing
