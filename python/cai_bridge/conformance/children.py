"""Child processes that judge: their environment, and how they ended."""

from __future__ import annotations

import os
import signal
import sys

from cai_bridge._environment import QUEUES


def environment() -> dict[str, str]:
    """Return the environment of a child, which finds the same modules as this process.

    The subject may be a module beside a script. The library may initialise CUDA before the lab
    does, so CUDA's settings are set here.
    """
    return {**QUEUES, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def ended_by(code: int) -> str | None:
    """Return the name of the signal that ended a child, from its exit code; None without one."""
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:
        return None
