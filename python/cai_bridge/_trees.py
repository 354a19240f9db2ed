"""Trees: the arrays in nested containers, and the same containers around others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ._containers import by_item, held_by, parts_of
from ._core import DLPackView, _is_on_gpu, _plain_types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Rebuild = Callable[[Iterator[Any]], Any]
    """Makes a container again, of the arrays that come next."""

    Place = Any
    """Where a part is: the root's name; or its container's place, how a key is shown, the key."""

PROTOCOLS = "__dlpack__", "__cuda_array_interface__", "__dlpack_c_exchange_api__"
"""What arrays have, whatever else they are."""

CAPSULE = type(DLPackView.__dlpack_c_exchange_api__)


class Leaves:
    """The arrays of a tree, and where each is: arrays on GPUs, and others that are `wanted`."""

    def __init__(self, wanted: Callable[[Any], bool] = lambda _: False) -> None:
        self.wanted = wanted
        self.arrays: list[Any] = []
        self.places: list[Place] = []
        self.around: dict[int, Place] = {}
        """The containers that are being taken apart, by `id`."""
        self.loops: dict[int, Place] = {}
        """Which of them were met again in their own parts, and where."""

    def without(self, some: Collection[int]) -> Leaves:
        """Give the others."""
        others = Leaves(self.wanted)
        for number, array in enumerate(self.arrays):
            if number not in some:
                others.arrays.append(array)
                others.places.append(self.places[number])
        return others

    def path(self, number: int) -> str:
        """Give an array's place as a program has it: ``x["mask"][2]``."""
        return path(self.places[number])


def path(place: Place) -> str:
    """Give a place as a program has it."""
    words: list[str] = []
    while isinstance(place, tuple):
        place, shown, key = place
        words.append(shown(key))
    return "".join([place, *reversed(words)])


def say_at(error: Exception, root: str | list[str], keys: list[Any]) -> None:
    """Say where in lists, tuples and dicts an error's array is.

    The root has a name; or it is a call's arguments by place and by name, and its names are those
    of the parameters.
    """
    place: Place = root
    if not isinstance(root, str):
        by_name, first, *keys = keys
        place = first if by_name else parameter(root, first)
    for key in keys:
        place = place, by_item, key
    say_where(error, path(place))


def parameter(names: list[str], number: int) -> str:
    """Name an argument that is passed by its place."""
    return names[number] if number < len(names) else f"argument {number + 1}"


def say_where(error: Exception, path: str) -> None:
    """Put a place in front of what is wrong there."""
    said = error.args
    if said and isinstance(said[0], str):
        error.args = (f"{path}: {said[0]}", *said[1:])
        if path in str(error):
            return
        # An ImportError shows another attribute.
        error.args = said
    error.add_note(f"at {path}")


def is_tree(x: Any) -> bool:
    """Tell whether `x` is a container, rather than an array."""
    return not _is_array(x) and parts_of(x) is not None


def _is_array(x: Any) -> bool:
    """Tell whether `x` is an array, or is refused in place of one."""
    try:
        known = ARRAYS[type(x)]
    except KeyError:
        known = _learn(type(x))
    if known is not None:
        return known
    return _is_bare_dict(x) if isinstance(x, dict) else _speaks(x)


def _learn(kind: type) -> bool | None:
    if len(ARRAYS) == MOST:
        ARRAYS.clear()
    # A class that sets one of them to None has it not, as with `__hash__`.
    known: bool | None = kind is CAPSULE or any(
        getattr(kind, name, None) is not None for name in PROTOCOLS
    )
    # A class has what its objects have, and is none.
    if not known and not issubclass(kind, type) and (issubclass(kind, dict) or _has_more(kind)):
        known = None
    ARRAYS[kind] = known
    return known


def _has_more(kind: type) -> bool:
    """Tell whether objects may have attributes that their type has not."""
    if kind.__dictoffset__ or hasattr(kind, "__getattr__"):
        return True
    made_by = getattr(kind.__getattribute__, "__objclass__", None)
    return getattr(made_by, "__module__", None) != "builtins"


ARRAYS: dict[type, bool | None] = {}
"""Whether a type is one of arrays, which are no containers, whatever else they are.

None if that depends on the object.
"""
MOST = 64
PLAIN = frozenset(_plain_types())
"""What is no array and holds none, of which there may be very many."""


def _speaks(x: Any) -> bool:
    """Tell whether an object speaks a protocol for which its type has nothing.

    There are objects that have any attribute at all: only what answers as arrays do is one.
    """
    try:
        if callable(getattr(x, "__dlpack__", None)):
            device = getattr(x, "__dlpack_device__", None)
            if callable(device) and isinstance(device(), tuple):
                return True
        return isinstance(getattr(x, "__cuda_array_interface__", None), dict)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        # A stand-in for something that is not there now has none of it either.
        return False


def _is_bare_dict(x: dict[Any, Any]) -> bool:
    """Tell whether a dict is one of the CUDA Array Interface, which is refused: it has no owner."""
    if "typestr" in x and "data" in x and "shape" in x and "version" in x:
        return isinstance(x["typestr"], str)
    return False


def _leaf(x: Any, place: Place, leaves: Leaves) -> Rebuild:
    try:
        wanted = _is_on_gpu(x) or leaves.wanted(x)
    except Exception as error:
        say_where(error, path(place))
        raise
    if not wanted:
        return _same(x)
    leaves.arrays.append(x)
    leaves.places.append(place)
    return next


def plan(x: Any, place: Place, leaves: Leaves) -> Rebuild:
    """Take a tree apart: add its arrays on GPUs, and give what makes it again of others.

    All else stays as it is, containers without any too.
    """
    if id(x) in leaves.around:
        leaves.loops.setdefault(id(x), place)
        return _same(x)
    if _is_array(x):
        return _leaf(x, place, leaves)
    found = parts_of(x)
    if found is None:
        _refuse_arrays_in(x, place)
        return _same(x)
    (keys, parts, shown, again), before = found, len(leaves.arrays)
    held = list(parts)
    plans: list[Rebuild | None] = []
    has_plain = False
    leaves.around[id(x)] = place
    for key, part in zip(keys, held, strict=True):
        # Many arrays or numbers are the rule: they are told apart without another call.
        try:
            wanted = ARRAYS.get(type(part)) and _is_on_gpu(part)
        except Exception as error:
            say_where(error, path((place, shown, key)))
            raise
        if wanted:
            leaves.arrays.append(part)
            leaves.places.append((place, shown, key))
            plans.append(next)
        elif type(part) in PLAIN:
            plans.append(None)
            has_plain = True
        else:
            plans.append(plan(part, (place, shown, key), leaves))
    del leaves.around[id(x)]
    loop = leaves.loops.pop(id(x), None)
    if len(leaves.arrays) == before:
        return _same(x)
    if loop is not None:
        raise ValueError(
            f"{path(loop)}: got {path(place)} itself, which it is in; allowed: a tree: a container "
            "with arrays is not among its own parts"
        )
    if not has_plain:
        each: list[Rebuild] = plans  # type: ignore[assignment]
        return lambda new: _remade(again, [made(new) for made in each], place)
    return lambda new: _remade(
        again,
        [one if made is None else made(new) for one, made in zip(held, plans, strict=True)],
        place,
    )


def _refuse_arrays_in(x: Any, place: Place) -> None:
    """Refuse a container that cannot be made again: its arrays would stay unordered."""
    if type(x) in PLAIN:
        return
    try:
        has_arrays = any(_is_array(part) and _is_on_gpu(part) for part in held_by(x))
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return  # it says that it is a container, and is none
    if has_arrays:
        kind = type(x).__name__
        raise TypeError(
            f"{path(place)}: container: got a {kind} with arrays; allowed: lists, tuples, dicts, "
            "dataclasses, UserDict, UserList, ChainMap, deque, and containers registered with JAX "
            "or PyTorch: pass dict(x) or list(x)"
        )


def _same(x: Any) -> Rebuild:
    return lambda _: x


def _remade(again: Callable[[list[Any]], Any], parts: list[Any], place: Place) -> Any:
    try:
        return again(parts)
    except Exception as error:
        say_where(error, path(place))
        raise
