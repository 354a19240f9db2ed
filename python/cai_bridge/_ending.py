"""The interpreter's end, at which other threads leave the bridge.

From then on a call from another thread ends that thread as `sys.exit` does, quietly. In a finalizer
that exit would be reported as an exception that was ignored, so it is not reported there either.
"""

import atexit
import sys
import threading
from typing import Any

from cai_bridge import _core


def _end() -> None:
    here, before = threading.get_ident(), sys.unraisablehook

    def report(said: Any, ident: Any = threading.get_ident) -> None:
        if said.exc_type is not SystemExit or ident() == here:
            before(said)

    sys.unraisablehook = report
    _core._end()


atexit.register(_end)
