"""Further producers that break a requirement of DLPack's streams."""

from __future__ import annotations

from more_producers import DLPACK, also
from more_producers_dlpack import refusing
from producers import Array

also(
    "dlpack-streams", "1 is refused", DLPACK, capsule=refusing(ValueError, stream=lambda s: s == 1)
)
also(
    "dlpack-streams",
    "handles are refused",
    DLPACK,
    capsule=refusing(RuntimeError, stream=lambda s: s is not None and s > 2),
)
also(
    "dlpack-streams",
    "None is refused",
    DLPACK,
    capsule=refusing(TypeError, stream=lambda s: s is None),
)
also(
    "dlpack-no-synchronization",
    "the host waits",
    DLPACK,
    order_for=lambda self, stream: [one.synchronize() for one in self._memory.streams],
)
also(
    "dlpack-stream-zero",
    "0 is -1",
    DLPACK,
    capsule=lambda self, s, *more: Array.capsule(self, -1 if s == 0 else s, *more),
)
also(
    "dlpack-stream-zero",
    "0 is 1",
    DLPACK,
    capsule=lambda self, s, *more: Array.capsule(self, 1 if s == 0 else s, *more),
)
