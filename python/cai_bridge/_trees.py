"""Containers of arrays: which arrays are in them, and the same containers around others."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any

Rebuild = Callable[[Iterator[Any]], Any]
"""Makes a container again, of the arrays that come next."""

PROTOCOLS = "__dlpack__", "__cuda_array_interface__", "__dlpack_c_exchange_api__"
"""What arrays have, whatever else they are."""

GPU = {2, 3, 13}
"""DLPack's types of devices that CUDA reaches."""


class Leaf:
    """An array in a tree, and where it is: ``x["mask"][2]``."""

    __slots__ = ("array", "path")

    def __init__(self, array: Any, path: str) -> None:
        self.array, self.path = array, path


def is_tree(x: Any) -> bool:
    """Tell whether `x` is a container, rather than an array."""
    kind = type(x)
    try:
        return not ARRAYS[kind] and _parts(x) is not None
    except KeyError:
        if len(ARRAYS) == MOST:
            ARRAYS.clear()
        ARRAYS[kind] = _speaks(kind)
        return is_tree(x)


ARRAYS: dict[type, bool] = {}
"""Whether a type is one of arrays, which are no containers, whatever else they are."""
MOST = 64


def is_gpu_array(x: Any) -> bool:
    """Tell whether `x` is an array that the bridge takes, on a GPU."""
    kind = type(x)
    if hasattr(kind, "__dlpack_device__"):
        return int(x.__dlpack_device__()[0]) in GPU
    return hasattr(kind, "__cuda_array_interface__") or hasattr(kind, "__dlpack_c_exchange_api__")


def plan(x: Any, path: str, leaves: list[Leaf]) -> Rebuild:
    """Take a tree apart: add its arrays on GPUs, and give what makes it again of others.

    All else stays as it is, containers without any too.
    """
    found = None if _speaks(type(x)) else _parts(x)
    if found is not None:
        (parts, again), before = found, len(leaves)
        plans = [plan(part, path + where, leaves) for where, part in parts]
        if len(leaves) == before:
            return lambda _: x
        return lambda new: again([made(new) for made in plans])
    if is_gpu_array(x):
        leaves.append(Leaf(x, path))
        return next
    return lambda _: x


def _speaks(kind: type) -> bool:
    return any(hasattr(kind, name) for name in PROTOCOLS)


Parts = tuple[list[tuple[str, Any]], Callable[[list[Any]], Any]]


def _parts(x: Any) -> Parts | None:
    """Give a container's parts with their places, and what makes it again; else None."""
    kind = type(x)
    if isinstance(x, dict):
        return [(f"[{key!r:.40}]", part) for key, part in x.items()], lambda new: _refilled(x, new)
    if isinstance(x, list):
        return _numbered(x), lambda new: _relisted(x, new)
    if isinstance(x, tuple):
        if hasattr(kind, "_fields") and hasattr(kind, "_make"):
            fields = zip(kind._fields, x, strict=True)
            return [(f".{name}", part) for name, part in fields], kind._make
        return _numbered(x), tuple if kind is tuple else kind
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses  # noqa: PLC0415

        names = [field.name for field in dataclasses.fields(x) if hasattr(x, field.name)]
        parts = [(f".{name}", getattr(x, name)) for name in names]
        return parts, lambda new: _renewed(x, names, new)
    return _registered(x, kind)


def _numbered(x: Any) -> list[tuple[str, Any]]:
    return [(f"[{number}]", part) for number, part in enumerate(x)]


def _refilled(x: dict[Any, Any], parts: list[Any]) -> Any:
    made = copy.copy(x)
    for key, part in zip(x, parts, strict=True):
        made[key] = part
    return made


def _relisted(x: list[Any], parts: list[Any]) -> Any:
    if type(x) is list:
        return parts
    made = copy.copy(x)
    made[:] = parts
    return made


def _renewed(x: Any, names: list[str], parts: list[Any]) -> Any:
    made = copy.copy(x)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def _registered(x: Any, kind: type) -> Parts | None:
    """Take apart what a library was told to be a container, of those that are imported."""
    pytree = sys.modules.get("torch.utils._pytree")
    if pytree is not None and kind in pytree.SUPPORTED_NODES:
        node = pytree.SUPPORTED_NODES[kind]
        children, context = node.flatten_fn(x)
        return _numbered(children), lambda new: node.unflatten_fn(new, context)
    tree_util = sys.modules.get("jax.tree_util")
    if tree_util is None or x is None:
        return None
    children, shape = tree_util.tree_flatten(x, is_leaf=lambda part: part is not x)
    if tree_util.treedef_is_leaf(shape):
        return None
    return _numbered(children), lambda new: tree_util.tree_unflatten(shape, new)
