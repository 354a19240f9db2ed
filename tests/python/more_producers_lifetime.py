"""Further producers that break a requirement of DLPack's lifetimes."""

from __future__ import annotations

import threading

from broken_producers import exporting, kept
from more_producers import DLPACK, also


class Complains:
    """An owner that is let go of by the thread that made it, and complains else."""

    def __init__(self, array):
        self.array, self.made = array, threading.get_ident()

    def __del__(self):
        if threading.get_ident() != self.made:
            kept.append(self.array)


_local = threading.local()


class InThreadsRegister:
    """An owner that is found by a register of the thread."""

    def __init__(self, array):
        self.array = array
        _local.__dict__.setdefault("held", {})[id(self)] = array

    def __del__(self):
        held = _local.__dict__.get("held", {})
        if held.pop(id(self), None) is None:
            kept.append(self.array)


also(
    "dlpack-deleter-anywhere",
    "only the thread that made it",
    DLPACK,
    capsule=exporting(owner=Complains),
)
also(
    "dlpack-deleter-anywhere",
    "a register of the thread is asked",
    DLPACK,
    capsule=exporting(owner=InThreadsRegister),
)
