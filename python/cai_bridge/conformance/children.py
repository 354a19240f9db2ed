"""What is known of child processes that judge: what they find, and how they ended."""

from __future__ import annotations

import os
import signal
import sys

from cai_bridge._queues import QUEUES


def environment() -> dict[str, str]:
    """Make the environment of a child, which finds the modules that this process finds.

    Subjects may be modules beside a script. A library may begin CUDA before the lab does.
    """
    return {**QUEUES, **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def ended_by(code: int) -> str | None:
    """Name the signal that a child ended by, from its exit code; None where it has no name."""
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:
        return None
