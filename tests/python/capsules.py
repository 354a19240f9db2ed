"""DLPack structures made by hand, so that every field can be hostile, and read back.

The structures are the conformance kit's, which uses nothing of the code under test. A `HandMade`
tensor counts how often its deleter runs. `conftest.py` asserts after each test that no deleter ran
twice, and that whatever was handed out was deleted.
"""

from __future__ import annotations

from ctypes import c_char_p

from cai_bridge.testing._kit import dlpack_abi
from cai_bridge.testing._kit.dlpack_abi import (
    IS_COPIED,
    IS_SUBBYTE_TYPE_PADDED,
    READ_ONLY,
    DLTensor,
    ManagedTensor,
)
from cai_bridge.testing._kit.dlpack_abi import capsule_name as name_of
from cai_bridge.testing._kit.dlpack_abi import read_capsule as read
from cai_bridge.testing._kit.dlpack_capsule import NAMES, new_capsule
from cai_bridge.testing._kit.dlpack_managed import strays as ghosts

__all__ = [
    "IS_COPIED",
    "IS_SUBBYTE_TYPE_PADDED",
    "READ_ONLY",
    "DLTensor",
    "HandMade",
    "Taken",
    "capsule_of",
    "forget",
    "ghosts",
    "made",
    "name_of",
    "read",
    "take",
]

# Names that capsules have are borrowed by them, so they live here.
ODD_NAMES = {name: c_char_p(name.encode()) for name in ("something else",)}

made: dict[int, HandMade] = {}
"""The tensors that were made in this test, by the address of their structure."""


def forget():
    """Begin anew, for the next test."""
    made.clear()
    ghosts.clear()


class HandMade(ManagedTensor):
    """A managed tensor, float32 of shape (4,) on (2, 0) but for the fields that are given.

    It is held to the end of the test, so that a deleter that is called again is seen.
    """

    def __init__(self, ptr, **fields):
        super().__init__(ptr, **fields)
        self.has_deleter = bool(self.struct.deleter)
        made[self.address] = self


class Taken(dlpack_abi.Taken):
    """A managed tensor that somebody gave away; one that a test forgets is never deleted."""

    def __del__(self):
        self.give_away()


def capsule_of(address, name):
    """A capsule of any name or none, without a destructor."""
    return new_capsule(address, {**NAMES, **ODD_NAMES}[name] if name else None, None)


def take(capsule):
    """Consume a capsule, as a good consumer does."""
    name, taken = name_of(capsule), dlpack_abi.take(capsule)
    taken.give_away()
    return Taken(taken.struct, name)
