"""Runs a program, and prints what keeps an array that the bridge refuses as kept.

    python -m tests.gpu.kept_child PROGRAM.py ARGUMENT ...

The lines are on stderr: the log of the bridge, and for each object that refers to the array its
type, with the function and the line if it is a frame.
"""

from __future__ import annotations

import gc
import logging
import runpy
import sys
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

from cai_bridge import _compiled_buffers

DEPTH, MOST = 4, 200
_kept = _compiled_buffers._kept


def told(x: Any, known: set[int], depth: int = 0) -> None:
    """Print what refers to an object, and what refers to that."""
    referrers = gc.get_referrers(x)
    known |= {id(x), id(referrers), id(sys._getframe())}
    for one in referrers:
        if id(one) in known or len(known) > MOST:
            continue
        known.add(id(one))
        what = type(one).__name__
        if isinstance(one, FrameType):
            what += f" of {one.f_code.co_name} in {one.f_code.co_filename}:{one.f_lineno}"
        print(f"KEPT {'  ' * depth}{what}, {sys.getrefcount(one)} references", file=sys.stderr)
        # A module's dict has too many.
        if depth < DEPTH and not isinstance(one, dict):
            told(one, known, depth + 1)


def kept(held: list[weakref.ref[Any]]) -> int | None:
    """Ask as the bridge does, and print what keeps the array."""
    number = _kept(held)
    if number is not None and (x := held[number]()) is not None:
        told(x, {id(sys._getframe())})
    return number


def main() -> None:
    logging.basicConfig(format="%(name)s %(message)s")
    logging.getLogger("cai_bridge").setLevel(1)
    _compiled_buffers._kept = kept
    sys.argv[:] = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
