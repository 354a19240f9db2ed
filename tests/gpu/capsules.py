"""A stub that exposes exactly one dunder, and DLPack capsules as the conformance kit reads them."""

from __future__ import annotations

from typing import Any

from cai_bridge.testing._kit.dlpack_abi import DLManagedTensorVersioned, read_capsule
from cai_bridge.testing._kit.dlpack_abi import capsule_name as name_of

__all__ = [
    "DLManagedTensorVersioned",
    "OnlyCai",
    "interface",
    "name_of",
    "read_capsule",
]


class OnlyCai:
    """Exposes `__cuda_array_interface__` and nothing else; keeps what owns the memory."""

    def __init__(self, interface: dict[str, Any], keep: object = None) -> None:
        self.__cuda_array_interface__ = interface
        self._keep = keep


def interface(
    ptr: int, shape: tuple[int, ...], typestr: str = "<f4", **fields: Any
) -> dict[str, Any]:
    """A v3 CAI dict with nothing pending, with `fields` added or replaced."""
    return {
        "shape": shape,
        "typestr": typestr,
        "data": (ptr, False),
        "version": 3,
        "strides": None,
        **fields,
    }
