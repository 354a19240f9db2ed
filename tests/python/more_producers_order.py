"""Further producers that break a requirement of DLPack's streams."""

from __future__ import annotations

from more_producers import DLPACK, also
from more_producers_dlpack import refusing
from producers import Array, current_stream, device


def the_other_way_round(self, stream):
    wanted = device().stream_of(1 if stream is None else stream)
    for one in self._memory.streams:
        one.wait(wanted.record())


def host_waits(self, stream):
    for one in self._memory.streams if stream != -1 else ():
        one.synchronize()


def before_the_current_one(self, stream):
    self._memory.order_before(current_stream())


also("dlpack-pending", "its own stream waits", DLPACK, order_for=the_other_way_round)
also("dlpack-no-host-wait", "the host waits", DLPACK, order_for=host_waits)
also("dlpack-pending", "its current stream waits", DLPACK, order_for=before_the_current_one)


def after_the_current_one(self, stream):
    if stream != -1:
        device().stream_of(stream or 1).wait(current_stream().record())


also(
    "dlpack-pending-elsewhere",
    "the work of the current stream is waited for",
    DLPACK,
    order_for=after_the_current_one,
)
also(
    "dlpack-pending-elsewhere",
    "its own streams wait",
    DLPACK,
    order_for=the_other_way_round,
)


def after_the_first(self, stream):
    for one in self._memory.streams[:1]:
        device().stream_of(stream or 1).wait(one.record())


also("dlpack-pending-on-two", "the first is waited for", DLPACK, order_for=after_the_first)
also(
    "dlpack-pending-on-two",
    "the current one is waited for",
    DLPACK,
    order_for=after_the_current_one,
)


def half_of_it(self, stream, max_version, dl_device, copy):
    """Slices of one dimension begin where their memory does."""
    first = self._memory.ptr if len(self._region.shape) == 1 else self._region.ptr
    return self.managed("versioned", ptr=first).capsule()


also("dlpack-pending-on-two", "a half begins where the array does", DLPACK, capsule=half_of_it)
also(
    "dlpack-pending",
    "None is the current stream",
    DLPACK,
    order_for=lambda self, stream: Array.order_for(self, stream or current_stream().handle),
)
also(
    "dlpack-pending",
    "None is -1",
    DLPACK,
    order_for=lambda self, stream: Array.order_for(self, stream or -1),
)
also(
    "dlpack-pending",
    "2 is the current stream",
    DLPACK,
    order_for=lambda self, s: Array.order_for(self, current_stream().handle if s == 2 else s),
)
also(
    "dlpack-pending",
    "it is made to be waited for",
    DLPACK,
    order_for=lambda self, s: (the_other_way_round if s == 2 else Array.order_for)(self, s),
)
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
