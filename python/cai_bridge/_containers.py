"""Containers: their keys and parts, and the same containers rebuilt around other parts.

Lists, tuples and dicts never arrive here: the core takes them apart.
"""

from __future__ import annotations

import contextlib
import copy
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, ValuesView
from types import (
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MemberDescriptorType,
    ModuleType,
    TracebackType,
)

from ._core import _imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Parts = tuple[Iterable[Any], Iterable[Any], Callable[[Any], str], Callable[[list[Any]], Any]]

    Way = list[tuple[Callable[[Any], str] | None, Any]]
    """The keys on the way to a part. A key is shown by its function, or as an item's key."""

_field = ".{}".format
_OWN = __file__.rpartition("_containers")[0]
"""The package's folder."""


def by_item(key: Any) -> str:
    if type(key) is str and '"' not in key:
        return f'["{key:.40}"]'
    try:
        return f"[{key!r:.40}]"
    except Exception:
        return f"[{type(key).__name__}]"  # a key that cannot show itself


def parts_of(x: Any) -> Parts | list[Any] | dict[str, Any] | bool | None:
    """Return a container's keys and parts, how its keys are shown, and what rebuilds it.

    For a container that cannot be rebuilt: only its parts. For an object that is no container: its
    attributes by name. For an iterator, whose parts can be taken only once: True. Otherwise None.
    """
    if isinstance(x, _ITERATORS):
        return True
    found = _parts_of(x)
    if found is None:
        return _held_by(x)
    keys, parts, shown, again = found
    return keys, tuple(parts), shown, again


def _parts_of(x: Any) -> Parts | None:
    kind = type(x)
    found: Parts
    if isinstance(x, dict):
        items = list(kind.items(x))
        keys = [key for key, _ in items]
        parts = [part for _, part in items]
        found = keys, parts, by_item, lambda new: _refilled(x, keys, new)
    elif isinstance(x, list):
        found = range(len(x)), x, by_item, lambda new: _relisted(x, new)
    elif isinstance(x, tuple):
        if hasattr(kind, "_fields") and hasattr(kind, "_make"):
            return kind._fields, x, _field, lambda new: _renamed(x, new)
        found = range(len(x)), x, by_item, lambda new: _retupled(x, new)
    elif hasattr(kind, "__dataclass_fields__"):
        names = _fields(x)
        own = [getattr(x, name) for name in names]
        return names, own, _field, lambda new: _renewed(x, names, new)
    else:
        return _registered(x, kind) or _like_a_builtin(x)
    return _with_fields(x, found) if hasattr(kind, "__dataclass_fields__") else found


def _fields(x: Any) -> list[str]:
    import dataclasses  # noqa: PLC0415

    return [field.name for field in dataclasses.fields(x) if hasattr(x, field.name)]


def _with_fields(x: Any, found: Parts) -> Parts:
    """Add the fields of a dataclass that is also a dict, a list or a tuple.

    A field may hold an item, too. It then gets the item's converted array.
    """
    keys, parts, shown, again = found
    keys, parts = list(keys), list(parts)
    items = {id(part): number for number, part in enumerate(parts)}
    places = [(shown, key) for key in keys]
    numbers: dict[str, int] = {}
    for name in _fields(x):
        field = getattr(x, name)
        numbers[name] = items.get(id(field), len(parts))
        if numbers[name] == len(parts):
            parts.append(field)
            places.append((_field, name))

    def made(new: list[Any]) -> Any:
        other = again(new[: len(keys)])
        for name, number in numbers.items():
            object.__setattr__(other, name, new[number])
        return other

    return places, parts, lambda place: place[0](place[1]), made


def _renamed(x: Any, parts: list[Any]) -> Any:
    made = type(x)._make(parts)
    # A subclass may have more than its fields.
    if more := getattr(x, "__dict__", None):
        made.__dict__.update(more)
    return made


def _retupled(x: tuple[Any, ...], parts: list[Any]) -> Any:
    kind = type(x)
    # A class's own constructor may take other arguments than a tuple's parts.
    if not isinstance(kind.__new__, FunctionType) and not isinstance(kind.__init__, FunctionType):
        return kind(parts)
    made = tuple.__new__(kind, parts)
    if kind.__dictoffset__:
        made.__dict__.update(x.__dict__)
    return made


def _refilled(x: dict[Any, Any], keys: list[Any], parts: list[Any]) -> Any:
    made = _copied(x)
    # A dict whose keys are its attributes.
    if getattr(x, "__dict__", None) is x:
        object.__setattr__(made, "__dict__", made)
    # Keys added or removed meanwhile do not count.
    if list(made) != keys:
        made.clear()
    for key, part in zip(keys, parts, strict=True):
        made[key] = part
    return made


def _relisted(x: list[Any], parts: list[Any]) -> Any:
    made = _copied(x)
    made[:] = parts
    return made


def _copied(x: Any) -> Any:
    made = copy.copy(x)
    if made is x:
        kind = type(x).__name__
        raise TypeError(
            f"container: got a {kind} whose copy is itself; allowed: a container that copy.copy() "
            "gives another of, such as a dict, a list or a dataclass"
        )
    return made


def _renewed(x: Any, names: list[str], parts: list[Any]) -> Any:
    try:
        made = object.__new__(type(x))
    except TypeError:
        made = _copied(x)  # exceptions and other C classes need their own constructors
    else:
        _share(x, made)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


def _share(x: Any, made: Any) -> None:
    """Return a new object the attributes of another of its class, which may refuse to be copied."""
    if type(x).__dictoffset__:
        made.__dict__.update(x.__dict__)
    for kind in type(x).__mro__:
        for slot in vars(kind).values():
            if isinstance(slot, MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    slot.__set__(made, slot.__get__(x))


def _like_a_builtin(x: Any) -> Parts | None:
    """Take apart the standard library's other containers, and classes derived from them."""
    if isinstance(x, ChainMap):
        return range(len(x.maps)), list(x.maps), ".maps[{}]".format, lambda new: _rechained(x, new)
    if isinstance(x, UserDict):
        keys = list(x)
        return keys, [x[key] for key in keys], by_item, lambda new: _reset(x, keys, new)
    if isinstance(x, UserList | deque):
        return range(len(x)), list(x), by_item, lambda new: _reset(x, range(len(new)), new)
    if isinstance(x, MappingProxyType):
        keys = list(x)
        parts = [x[key] for key in keys]
        return keys, parts, by_item, lambda new: type(x)(dict(zip(keys, new, strict=True)))
    return None


def _rechained(x: ChainMap[Any, Any], maps: list[Any]) -> Any:
    made = _copied(x)
    made.maps[:] = maps
    return made


def _reset(x: Any, keys: Iterable[Any], parts: list[Any]) -> Any:
    made = _copied(x)  # each class copies the container in which it keeps its parts
    for key, part in zip(keys, parts, strict=True):
        made[key] = part
    return made


_ITERATORS: tuple[type, ...] = (
    *(GeneratorType, zip, map, filter, enumerate, reversed, type(iter(())), type(iter([]))),
    *(type(iter({})), type(iter({}.values())), type(iter({}.items())), type(iter(set()))),
)


def _held_by(x: Any) -> list[Any] | dict[str, Any] | None:
    """Return the parts of a container that is not taken apart, if it claims to be one.

    For any other object return its own attributes.
    """
    plain = str | bytes | bytearray | memoryview | range
    try:
        if isinstance(x, Mapping):
            return list(x.values())
        if isinstance(x, Sequence | Set | ValuesView):
            return None if isinstance(x, plain) else _flat(x)
        # A class has attributes of its own, a function has none, and a module's do not matter here.
        kind = type | ModuleType | FunctionType
        return None if isinstance(x, kind) else _attributes(x) or None
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return None  # it claims to be a container and is none


def _flat(parts: Iterable[Any]) -> list[Any]:
    """List the parts, and the parts of tuples and frozen sets among them, which sets may hold."""
    flat: list[Any] = []
    for part in parts:
        flat += _flat(part) if isinstance(part, tuple | frozenset) else (part,)
    return flat


def _attributes(x: Any) -> dict[str, Any]:
    """List an object's own attributes, in its dict and in its slots."""
    found = dict(getattr(x, "__dict__", ()))
    for kind in type(x).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    found[name] = slot.__get__(x)
    return found


def _registered(x: Any, kind: type) -> Parts | None:
    """Take apart a container that an imported library has registered."""
    pytree = _imported("torch.utils._pytree")
    if pytree is not None and kind in pytree.SUPPORTED_NODES:
        node = pytree.SUPPORTED_NODES[kind]
        children, context = node.flatten_fn(x)
        children = list(children)
        return range(len(children)), children, by_item, lambda new: node.unflatten_fn(new, context)
    tree_util = _imported("jax.tree_util")
    if tree_util is None or x is None:
        return None
    children, shape = tree_util.tree_flatten(x, is_leaf=lambda part: part is not x)
    if tree_util.treedef_is_leaf(shape):
        return None
    return range(len(children)), children, by_item, lambda new: tree_util.tree_unflatten(shape, new)


# --------------------------------------------------------------------------------------------------
# places of parts in messages


def say_at(
    error: Exception, traceback: TracebackType | None, root: str | list[str], way: Way
) -> None:
    """Name the place of the part that an error is about."""
    say_where(error, traceback, _path(root, way))


def warn_of_attribute(x: Any, name: str, root: str | list[str], way: Way, level: int) -> None:
    """Warn about an object in a tree that holds an array and is passed unchanged."""
    import warnings  # noqa: PLC0415

    kind = type(x).__name__
    warnings.warn(
        f"{_path(root, way)}: got an object of type {kind}, whose attribute {name} is an array; "
        "it stays as it is: make it a dataclass, or register its class with JAX or PyTorch, and "
        "its arrays are converted",
        stacklevel=level + 1,
    )


def warn_of_key(x: Any, kind: str, root: str | list[str], way: Way, level: int) -> None:
    """Warn about a dict with an array as a key, which is passed unchanged."""
    import warnings  # noqa: PLC0415

    warnings.warn(
        f"{_path(root, way)}: got a {type(x).__name__} with a key of type {kind}, which is an "
        "array; it stays as it is: only values are converted",
        stacklevel=level + 1,
    )


def warn_of_iterator(x: Any, _: None, root: str | list[str], way: Way, level: int) -> None:
    """Warn about an iterator in a tree, which is passed unchanged."""
    import warnings  # noqa: PLC0415

    warnings.warn(
        f"{_path(root, way)}: got a {type(x).__name__}, whose parts can be had once; it stays as "
        "it is: pass list(x), and its arrays are converted",
        stacklevel=level + 1,
    )


def in_itself(root: str | list[str], again_at: Way, way: Way) -> ValueError:
    """Return the error for a container that contains itself."""
    return ValueError(
        f"{_path(root, again_at)}: got {_path(root, way)} itself, which it is in; allowed: a tree: "
        "a container with arrays is not among its own parts"
    )


def _path(root: str | list[str], way: Way) -> str:
    """Write a place as a program would.

    The root is a name, or the arguments of a call. Positional arguments get their parameters'
    names.
    """
    if not isinstance(root, str):
        (_, by_name), (_, first), *way = way
        root = first if by_name else _parameter(root, first)
    return root + "".join((shown or by_item)(key) for shown, key in way)


def _parameter(names: list[str], number: int) -> str:
    """Name the parameter of a positional argument."""
    return names[number] if number < len(names) else f"argument {number + 1}"


def say_where(error: Exception, traceback: TracebackType | None, path: str) -> None:
    """Add a place to an error: before the bridge's own words, ``x["mask"][2]: …``, or as a note.

    Other code may recognise its own exception by the text, so the text of such an exception stays.
    """
    said = error.args
    if _is_ours(error, traceback):
        error.args = (f"{path}: {said[0]}", *said[1:])
    elif (note := f"at {path}") not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _is_ours(error: Exception, traceback: TracebackType | None) -> bool:
    """Return whether an exception is the bridge's own, by its words and by its traceback."""
    said = error.args
    if not (said and isinstance(said[0], str) and "; allowed: " in said[0]):
        return False
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    # Exceptions from Rust have no traceback.
    return traceback is None or traceback.tb_frame.f_code.co_filename.startswith(_OWN)
