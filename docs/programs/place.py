"""Where a program of the manual runs: with the real libraries, or on the simulated device.

Each program has both parts. It takes the real libraries where they and a GPU are; `--gpu` and
`--simulated` choose.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path


def run(*libraries: str, gpu: Callable[[], object], simulated: Callable[[], object]) -> None:
    """Run one of the two parts."""
    there = Path("/dev/nvidiactl").exists() and all(map(find_spec, libraries))
    if "--gpu" in sys.argv or (there and "--simulated" not in sys.argv):
        _help_numba(libraries)
        gpu()
    else:
        simulated()


def _help_numba(libraries: tuple[str, ...]) -> None:
    """NumPy 2.5 removed a name that Numba 0.68 still reads when it is imported."""
    if "numba" in libraries:
        import numpy as np

        if not hasattr(np, "row_stack"):
            np.row_stack = np.vstack  # type: ignore[attr-defined]
