"""The interpreter's end, when other threads leave the bridge.

From then on a call from another thread ends that thread quietly, as `sys.exit` does. In a finalizer
Python would report that exit as an ignored exception, so this module silences the report.
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
