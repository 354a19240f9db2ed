"""Further producers that break a requirement of DLPack's lifetimes."""

from __future__ import annotations

import threading

from broken_producers import exporting, kept
from more_producers import DLPACK, also
from producers import Array, device


def kept_by_a_list(self, *asked):
    kept.append(self)
    return Array.capsule(self, *asked)


also("dlpack-unconsumed", "a list keeps it", DLPACK, capsule=kept_by_a_list)


def null_deleter(self, stream, max_version, dl_device, copy):
    kept.append(tensor := self.managed("versioned" if max_version else "legacy", null=("deleter",)))
    return tensor.capsule()


also(
    "dlpack-unconsumed",
    "its deleter is NULL, and nobody else lets go",
    DLPACK,
    capsule=null_deleter,
)
also("dlpack-deleter", "a list keeps it", DLPACK, capsule=kept_by_a_list)


def a_block_for_all(array):
    """Where each new array is given the same memory."""
    if not kept_blocks or kept_blocks[-1][0] is not device():
        kept_blocks.append((device(), device().alloc(64)))
    return kept_blocks[-1][1].ptr


kept_blocks = []
also(
    "dlpack-deleter",
    "the same memory is given to all",
    DLPACK,
    capsule=exporting(ptr=a_block_for_all),
)


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


class ZeroesTheShape:
    """An owner whose end clears the array's own structure, which all tensors are given."""

    def __init__(self, array):
        self.array = array

    def __del__(self):
        for tensor in self.array.__dict__.get("tensors", []):
            tensor.struct.dl_tensor.data = 0


class MovesTheData:
    def __init__(self, array):
        self.array = array

    def __del__(self):
        for tensor in self.array.__dict__.get("tensors", []):
            tensor.struct.dl_tensor.byte_offset = 8


def sharing(owner):
    def capsule(self, stream, max_version, dl_device, copy):
        tensor = self.managed("versioned" if max_version else "legacy", owner=owner(self))
        self.__dict__.setdefault("tensors", []).append(tensor)
        return tensor.capsule()

    return capsule


also("dlpack-two-exports", "the end of one clears data", DLPACK, capsule=sharing(ZeroesTheShape))
also("dlpack-two-exports", "the end of one moves the other", DLPACK, capsule=sharing(MovesTheData))
