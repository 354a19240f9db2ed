"""Producers that expose exactly one protocol attribute, and other stand-ins for foreign objects."""

from __future__ import annotations

import sys
import warnings

from cai_bridge import HostSyncWarning, from_cai

# There, what a thread made ends in that thread, once it runs again, whoever let go of it last.
FREE_THREADED = not getattr(sys, "_is_gil_enabled", lambda: True)()


class OnlyCai:
    """Exposes ``__cuda_array_interface__`` and nothing else; counts how often it was read."""

    def __init__(self, interface, keep=None):
        self.interface = interface
        self.keep = keep
        self.reads = 0

    @property
    def __cuda_array_interface__(self):
        self.reads += 1
        if isinstance(self.interface, BaseException):
            raise self.interface
        return self.interface


class Trusted(OnlyCai):
    """The same of a library whose dicts name no stream where nothing is pending."""

    __module__ = "cai_bridge.testing"
    __cuda_array_interface__ = OnlyCai.__cuda_array_interface__


def interface(x, **entries):
    """A version 3 dict of `x` (or of the bytes at its address), with entries replaced."""
    made = {"shape": (4,), "typestr": "<f4", "version": 3, "strides": None, "stream": None}
    return {**made, "data": (x.ptr, False), **entries}


def only_cai(x, **entries):
    """`x` as an object that speaks CAI only."""
    return OnlyCai(interface(x, **entries), keep=x)


class OnlyDLPack:
    """Exposes ``__dlpack__`` and nothing else; notes what it was asked for.

    `answer` is called with the keywords of each call: it returns a capsule, or raises.
    """

    def __init__(self, answer):
        self._answer = answer
        self.asked = []

    def __dlpack__(self, **wishes):
        self.asked.append(wishes)
        return self._answer(**wishes)


class DLPackPair(OnlyDLPack):
    """Exposes ``__dlpack__`` and ``__dlpack_device__``."""

    def __init__(self, answer, device=(2, 0)):
        super().__init__(answer)
        self._device = device

    def __dlpack_device__(self):
        if isinstance(self._device, BaseException):
            raise self._device
        return self._device


class StreamObject:
    """Exposes ``__cuda_stream__`` and nothing else."""

    def __init__(self, answer):
        self._answer = answer

    def __cuda_stream__(self):
        return self._answer


class Closing:
    """A stream object that can be closed while it is held, as some libraries have them."""

    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return (0, self.stream.handle if self.stream else 0)

    def close(self):
        self.stream = None


class StreamField:
    """Has ``__cuda_stream__`` as a field, where a method belongs."""

    def __init__(self, answer):
        self.__cuda_stream__ = answer


class Bits:
    """What torch's tensors say beside the protocols."""

    layout = "torch.strided"
    _neg = _conj = False

    @property
    def requires_grad(self):
        return getattr(self, "_grad", False)

    def is_neg(self):
        return self._neg

    def is_conj(self):
        return self._conj


def torch_like(x, **bits):
    """`x`, an array of the simulated device, with torch's questions answered so."""

    def interface(self):
        if self.requires_grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")
        return super(kind, self).__cuda_array_interface__

    speaks = hasattr(type(x), "__cuda_array_interface__")
    members = {"__cuda_array_interface__": property(interface)} if speaks else {}
    kind = type("Tensor", (Bits, type(x)), members)
    made = kind(x._tensor, x._session, x.name)
    for name, value in bits.items():
        setattr(made, name, value)
    return made


def without_warning(x, door=from_cai, **arguments):
    """Call `from_cai`, or another door, with an array whose dict names no stream; do not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HostSyncWarning)
        return door(x, **arguments)


ATTRIBUTES = (
    *("shape", "strides", "typestr", "itemsize", "ndim", "size", "nbytes"),
    *("ptr", "device", "readonly", "stream"),
)


def restated(view):
    """The attributes that a view has whatever it speaks."""
    return {name: getattr(view, name) for name in ATTRIBUTES}
