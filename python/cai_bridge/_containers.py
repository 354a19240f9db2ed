"""Containers: their keys and parts, and the same containers again around other parts."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

_field = ".{}".format


def by_item(key: Any) -> str:
    if type(key) is str and '"' not in key:
        return f'["{key:.40}"]'
    try:
        return f"[{key!r:.40}]"
    except Exception:
        return f"[{type(key).__name__}]"  # which cannot show itself, and is not what is wrong


Parts = tuple[Iterable[Any], Iterable[Any], Callable[[Any], str], Callable[[list[Any]], Any]]


def parts_of(x: Any) -> Parts | None:
    """Give a container's keys and parts, how a key is shown, and what makes it again; else None."""
    kind = type(x)
    if isinstance(x, dict):
        return list(x), list(x.values()), by_item, lambda new: _refilled(x, new)
    if isinstance(x, list):
        return range(len(x)), x, by_item, lambda new: _relisted(x, new)
    if isinstance(x, tuple):
        if hasattr(kind, "_fields") and hasattr(kind, "_make"):
            return kind._fields, x, _field, lambda new: _renamed(x, new)
        return range(len(x)), x, by_item, tuple if kind is tuple else lambda new: _retupled(x, new)
    if hasattr(kind, "__dataclass_fields__"):
        import dataclasses  # noqa: PLC0415

        names = [field.name for field in dataclasses.fields(x) if hasattr(x, field.name)]
        parts = [getattr(x, name) for name in names]
        return names, parts, _field, lambda new: _renewed(x, names, new)
    return _registered(x, kind)


def _renamed(x: Any, parts: list[Any]) -> Any:
    made = type(x)._make(parts)
    # A subclass may have more than its fields.
    if more := getattr(x, "__dict__", None):
        made.__dict__.update(more)
    return made


def _retupled(x: tuple[Any, ...], parts: list[Any]) -> Any:
    kind = type(x)
    # What a class has of its own may take other arguments than a tuple's parts.
    if not isinstance(kind.__new__, FunctionType) and not isinstance(kind.__init__, FunctionType):
        return kind(parts)
    made = tuple.__new__(kind, parts)
    if kind.__dictoffset__:
        made.__dict__.update(x.__dict__)
    return made


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
    """Take apart a container that an imported library has registered."""
    pytree = sys.modules.get("torch.utils._pytree")
    if pytree is not None and kind in pytree.SUPPORTED_NODES:
        node = pytree.SUPPORTED_NODES[kind]
        children, context = node.flatten_fn(x)
        children = list(children)
        return range(len(children)), children, by_item, lambda new: node.unflatten_fn(new, context)
    tree_util = sys.modules.get("jax.tree_util")
    if tree_util is None or x is None:
        return None
    children, shape = tree_util.tree_flatten(x, is_leaf=lambda part: part is not x)
    if tree_util.treedef_is_leaf(shape):
        return None
    return range(len(children)), children, by_item, lambda new: tree_util.tree_unflatten(shape, new)
