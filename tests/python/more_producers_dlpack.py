"""Further producers that break a requirement of DLPack."""

from __future__ import annotations

import threading

from broken_producers import exporting, kept, versioned_with
from more_producers import DLPACK, also
from producers import Array, device


def refusing(what, **forbidden):
    """Capsules, but not for some wishes: functions of them."""

    def capsule(self, stream, max_version, dl_device, copy):
        asked = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        for name, wrong in forbidden.items():
            if wrong(asked[name]):
                raise what(f"{name}: got {asked[name]!r}")
        return Array.capsule(self, **asked)

    return capsule


also("dlpack-device", "it has three parts", DLPACK, device=lambda self: (2, 0, 0))
also("dlpack-device", "its parts have names", DLPACK, device=lambda self: ("cuda", 0))
also("dlpack-device", "it is the type alone", DLPACK, device=lambda self: 2)
also("dlpack-device", "it wants a stream", DLPACK, __dlpack_device__=lambda self, stream: (2, 0))


def positions(self, stream=None, max_version=None, device=None, copied=None, /):
    return self.capsule(stream, max_version, device, copied)


also("dlpack-keywords", "it takes them by position", DLPACK, __dlpack__=positions)


def of_version(major, minor):
    def capsule(self, stream, max_version, dl_device, copy):
        tensor = self.managed(f"{major}.{minor}" if max_version else "legacy")
        return tensor.capsule()

    return capsule


also("dlpack-version", "it is 2.0", DLPACK, capsule=of_version(2, 0))
also("dlpack-version", "it is 0.8", DLPACK, capsule=of_version(0, 8))
also("dlpack-flags", "one that there is not", DLPACK, capsule=versioned_with(flags=lambda _: 8))
also("dlpack-flags", "padded types", DLPACK, capsule=versioned_with(flags=lambda _: 4))


def writable(self):
    return type(self)(self._memory, self.at(self._region, readonly=False))


also(
    "dlpack-readonly", "a writable array's flag", DLPACK, capsule=versioned_with(flags=lambda _: 1)
)
also(
    "dlpack-shape",
    "it is that of the transpose",
    DLPACK,
    capsule=exporting(shape=lambda a: a._region.shape[::-1]),
)
also(
    "dlpack-shape",
    "it is flat",
    DLPACK,
    capsule=exporting(shape=lambda a: (a._region.size,), strides=lambda _: [1]),
)
also("dlpack-shape", "ndim is negative", DLPACK, capsule=exporting(ndim=lambda a: -1))
also(
    "dlpack-zero-size",
    "the pointer is 1, for none",
    DLPACK,
    capsule=exporting(ptr=lambda a: a._region.ptr or 1),
)
also(
    "dlpack-zero-size",
    "the shape is that of nothing",
    DLPACK,
    capsule=exporting(shape=lambda a: (0,), strides=lambda _: [1]),
)


def copied(values, flags=2, honest=True):
    """Copies that hold something."""

    def capsule(self, stream, max_version, dl_device, copy):
        if not (copy if honest else copy is False):
            return Array.capsule(self, stream, max_version, dl_device, None)
        made = type(self).made(self._region.shape, self._region.dtype)
        if values is not None:
            device()._session.store(made._region.ptr, bytes([values]) * 4 * made._region.size)
        return made.managed("versioned", flags=flags).capsule()

    return capsule


def served_as(replaced, only_for=None):
    """Tensors that say another device than theirs, where one is asked for."""

    def capsule(self, stream, max_version, dl_device, copy):
        said = self._region.device
        if dl_device is not None and only_for in (None, tuple(dl_device)):
            said = replaced(tuple(dl_device))
        elif dl_device not in (None, self._region.device):
            raise BufferError("dl_device")
        return self.managed("versioned", device=said).capsule()

    return capsule


also(
    "dlpack-dl-device",
    "memory of CUDA is called the host's",
    DLPACK,
    capsule=served_as(lambda wanted: wanted, (1, 0)),
)
also(
    "dlpack-dl-device",
    "its own device is served with another",
    DLPACK,
    capsule=served_as(lambda _: (2, 1), (2, 0)),
)


# --- streams --------------------------------------------------------------------------------------

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


# --- lifetimes ------------------------------------------------------------------------------------


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
