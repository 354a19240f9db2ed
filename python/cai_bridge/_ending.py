"""The interpreter's end, at which other threads leave the bridge.

From then on a call from another thread ends that thread as `sys.exit` does, quietly. In a finalizer
that exit would be reported as an exception that was ignored, so it is not reported there either.
"""

from __future__ import annotations

import atexit
import sys
import threading

from cai_bridge import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _end() -> None:
    here, before = threading.get_ident(), sys.unraisablehook

    def report(said: Any, ident: Any = threading.get_ident) -> None:
        if said.exc_type is not SystemExit or ident() == here:
            before(said)

    sys.unraisablehook = report
    _core._end()


atexit.register(_end)
