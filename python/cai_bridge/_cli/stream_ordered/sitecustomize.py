"""Has CuPy take memory in the order of its streams: `cai-bridge races --stream-ordered`.

Python imports this module when it starts, as the folder comes first on the path. It imports the
module of this name that it hides, and waits for CuPy to be imported.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _Finder:
    """Finds CuPy as Python would, and sets its allocator when it has been executed."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name != "cupy":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                module.cuda.set_allocator(module.cuda.MemoryAsyncPool().malloc)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def _hidden() -> None:
    """Execute the module of this name that this folder hides."""
    here = str(Path(__file__).parent)
    rest = [one for one in sys.path if one != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_hidden()
