"""Producers that are odd in one way: what the verdict of the requirement says of each."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from producers import Array, DLPack, exporting, is_columns, judged, saying


def in_legacy_form(self: Array, stream: Any, max_version: Any, dl_device: Any, copy: Any) -> Any:
    return Array.capsule(self, stream, None, dl_device, copy)


def a_copy_where_none_may_be(self: Array, stream: Any, newest: Any, device: Any, copy: Any) -> Any:
    shown = Array.made(self._region.shape, self._region.dtype) if copy is False else self
    return Array.capsule(shown, stream, newest, device, None)


def for_any_device(self: Array, stream: Any, newest: Any, device: Any, copy: Any) -> Any:
    return Array.capsule(self, stream, newest, None, copy)


def refuses_stream_2(self: Array, stream: Any, newest: Any, device: Any, copy: Any) -> Any:
    if stream == 2:
        raise BufferError("not there")
    return Array.capsule(self, stream, newest, device, copy)


def further(array: Array) -> int:
    """Tell a whole array's address wrong, and a slice's right."""
    whole = array.contiguous and array._region.shape == (3, 4)
    return array._region.ptr + 16 * whole


CAI, DLPACK = ("cai",), ("dlpack",)
EVIDENCE: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "a dict that is none": (
        "cai-entries",
        "failed",
        "__cuda_array_interface__ is a mappingproxy",
        {"doors": CAI, "interface": lambda a: MappingProxyType(Array.interface(a))},
    ),
    "a list for a shape": (
        "cai-shape",
        "failed",
        "shape is [3, 4], a list",
        {"doors": CAI, "interface": saying(shape=lambda _, shape: list(shape))},
    ),
    "a mask of its own": (
        "cai-mask",
        "passed",
        "has one",
        {"doors": CAI, "interface": lambda a: {**Array.interface(a), "mask": a}},
    ),
    "no mask": ("cai-mask", "passed", "none", {"doors": CAI}),
    "a byte of either order": (
        "cai-typestr",
        "passed",
        "<f4 (",
        {
            "doors": CAI,
            "interface": saying(typestr=lambda _, said: ">i1" if said[1:] == "i1" else said),
        },
    ),
    "a copy right behind the array": (
        "cai-strides",
        "passed",
        "None",
        {
            "doors": CAI,
            "interface": saying(
                data=lambda a, data: (data[0] + 96 * is_columns(a), data[1]),
                strides=lambda a, strides: None if is_columns(a) else strides,
            ),
        },
    ),
    "no stream to live": (
        "cai-stream-lifetime",
        "skipped",
        "the dict names no stream",
        {"doors": CAI, "ready_stream": lambda a: None},
    ),
    "no device": (
        "dlpack-device",
        "failed",
        "Odd has no __dlpack_device__",
        {"kind": type("Odd", (Array,), {"__dlpack__": DLPack.__dlpack__})},
    ),
    "half a device": (
        "dlpack-device",
        "failed",
        "it gives (2.0, 0)",
        {"doors": DLPACK, "device": lambda a: (2.0, 0)},
    ),
    "copy=False that copies": (
        "dlpack-copy",
        "failed",
        "copy=False is at ",
        {"doors": DLPACK, "capsule": a_copy_where_none_may_be},
    ),
    "any device": (
        "dlpack-dl-device",
        "failed",
        "dl_device=(",
        {"doors": DLPACK, "capsule": for_any_device},
    ),
    "a version that nobody knows": (
        "dlpack-version",
        "skipped",
        "its capsules are legacy ones, which have no version",
        {"doors": DLPACK, "capsule": in_legacy_form},
    ),
    "no flag for what is read-only": (
        "dlpack-readonly",
        "failed",
        "a legacy capsule, which cannot say it",
        {
            "doors": DLPACK,
            "capsule": in_legacy_form,
            "readonly": lambda a: type(a)(a._memory, a._region),
        },
    ),
    "a count of dimensions": (
        "dlpack-shape",
        "failed",
        "ndim is 3 for (3, 4)",
        {"doors": DLPACK, "capsule": exporting(ndim=lambda a: len(a._region.shape) + 1)},
    ),
    "no strides where they have to be": (
        "dlpack-strides",
        "failed",
        "strides is NULL",
        {"doors": DLPACK, "capsule": exporting(null=lambda a: ("strides",))},
    ),
    "no strides where they need not be": (
        "dlpack-strides",
        "skipped",
        "version (1, 1): NULL is allowed",
        {
            "doors": DLPACK,
            "managed": lambda a, form="versioned", **fields: Array.managed(a, "1.1", **fields),
        },
    ),
    "strides of version 1.2": (
        "dlpack-strides",
        "passed",
        "(4, 1)",
        {
            "doors": DLPACK,
            "managed": lambda a, form="versioned", **fields: Array.managed(a, "1.2", **fields),
        },
    ),
    "no stream 2": (
        "dlpack-pending",
        "passed",
        "asked for stream",
        {"doors": DLPACK, "capsule": refuses_stream_2},
    ),
    "no DLPack": (
        "dlpack-pending",
        "skipped",
        "Odd has no __dlpack__",
        {"doors": CAI},
    ),
    "a table that lends nothing": (
        "exchange-borrowed",
        "skipped",
        "the table has no such entry, which is optional",
        {"doors": ("exchange",), "table": {"borrow": 0}},
    ),
    "two that disagree of the whole": (
        "both-agree",
        "failed",
        "raised NotEquivalentError: Odd: the protocols say different things, 1 difference\n  field",
        {
            "doors": ("cai", "dlpack"),
            "interface": saying(data=lambda a, data: (further(a), data[1])),
        },
    ),
}


@pytest.mark.parametrize("what", EVIDENCE)
def test_the_verdict_says_what_was_seen(what: str, lab: Any) -> None:
    only, outcome, evidence, odd = EVIDENCE[what]
    found = judged(lab, only, **odd)
    assert found.outcome == outcome, found.evidence
    assert found.evidence.startswith(evidence)
