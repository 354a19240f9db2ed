"""Containers come back whole, and the caller's own stays as it was, whatever its class does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from stand_in import Array, Odd, StandIn, known, library, no_libraries, producer

from cai_bridge import adapt, convert

__all__ = ["known", "library", "no_libraries", "producer"]


@dataclasses.dataclass(frozen=True)
class Unchanging:
    data: Any

    def __copy__(self) -> Unchanging:
        return self


@dataclasses.dataclass
class ByName:
    data: Any

    def __reduce__(self) -> str:
        return "BY_NAME"


@dataclasses.dataclass
class Unpickled:
    data: Any

    def __getstate__(self) -> Any:
        raise TypeError("holds GPU memory and cannot be pickled")


@dataclasses.dataclass
class Base:
    __slots__ = ("__hidden", "data", "gone")
    data: Any

    def hide(self, x: Any) -> None:
        self.__hidden = x

    def hidden(self) -> Any:
        return self.__hidden


@dataclasses.dataclass
class Partly(Base):
    """Has slots and attributes besides its fields, of which a pickle would have some."""

    def __post_init__(self) -> None:
        self.cache = {"rate": 0.1}
        self.hide("hidden")

    def __getstate__(self) -> Any:
        return {}


@dataclasses.dataclass
class Failed(Exception):
    data: Any


class OwnDict(dict):  # type: ignore[type-arg]
    def __copy__(self) -> OwnDict:
        return self


class OwnList(list):  # type: ignore[type-arg]
    def __copy__(self) -> OwnList:
        return self


@pytest.mark.parametrize("kind", [Unchanging, ByName, Unpickled, Partly])
def test_a_dataclass_is_made_again_without_being_copied(
    cuda: Any, library: StandIn, kind: type
) -> None:
    x = cuda.array([1.0])
    tree = kind(x)
    made = convert([tree], "stand_in")[0]
    assert (type(made), type(made.data), tree.data is x) == (kind, Array, True)
    assert adapt(lambda a: type(a.data), "stand_in")(tree) is Array
    assert tree.data is x


def test_a_dataclass_keeps_what_it_has_besides_its_fields(cuda: Any, library: StandIn) -> None:
    tree = Partly(cuda.array([1.0]))
    made = convert([tree], "stand_in")[0]
    assert (made.cache, made.hidden(), hasattr(made, "gone")) == ({"rate": 0.1}, "hidden", False)
    assert type(made.data) is Array


def test_a_dataclass_that_c_makes_is_made_again(cuda: Any, library: StandIn) -> None:
    tree = Failed(cuda.array([1.0]))
    made = convert([tree], "stand_in")[0]
    assert (type(made), type(made.data), made is tree) == (Failed, Array, False)


def test_a_container_whose_copy_is_itself_is_refused(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])
    for tree in (OwnDict({0: x}), OwnList([x])):
        said = rf"^x\[0\]: container: got a {type(tree).__name__} whose copy is itself; allowed: "
        with pytest.raises(TypeError, match=said):
            convert([tree], "stand_in")
        with pytest.raises(TypeError, match=r"^a: container: got "):
            adapt(lambda a: a, "stand_in")(tree)
        assert tree[0] is x


# attributes that are arrays


class Bunch(dict):  # type: ignore[type-arg]
    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


def test_a_dict_whose_keys_are_its_attributes_stays_one(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])
    tree = Bunch(a=x, b=2)
    made = convert([tree], "stand_in")[0]
    assert (type(made), type(made.a), made.a is made["a"]) == (Bunch, Array, True)
    made.c = 3
    assert made["c"] == 3
    assert (dict(tree), tree.a is x) == ({"a": x, "b": 2}, True)


@dataclasses.dataclass
class Rows(list):  # type: ignore[type-arg]
    mask: Any = None


@dataclasses.dataclass
class Columns(dict):  # type: ignore[type-arg]
    mask: Any = None


@dataclasses.dataclass
class Point(tuple):  # type: ignore[type-arg]
    mask: Any = None

    def __new__(cls, *_: Any) -> Point:
        return super().__new__(cls, (1, 2))


@pytest.mark.parametrize("kind", [Rows, Columns, Point])
def test_the_fields_of_a_dataclass_that_is_a_container_are_parts_too(
    cuda: Any, library: StandIn, kind: Any
) -> None:
    x, y = cuda.array([1.0]), cuda.array([2.0])
    tree = kind(x)
    if kind is Rows:
        tree.append(y)
    elif kind is Columns:
        tree["data"] = y
    made = convert([tree], "stand_in")[0]
    assert (type(made), type(made.mask), tree.mask is x) == (kind, Array, True)
    if kind is Point:
        assert tuple(made) == (1, 2)
    else:
        assert type(made[0 if kind is Rows else "data"]) is Array
    tree.mask = cuda.array([1.0], readonly=True)
    with pytest.raises(BufferError, match=r"^x\[0\]\.mask: readonly: got "):
        convert([tree], "stand_in")


def test_a_field_that_is_an_item_too_stays_that(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])
    tree = Columns(x)
    tree["mask"] = x
    made = convert([tree], "stand_in")[0]
    assert type(made["mask"]) is Array
    assert made.mask is made["mask"]


# containers that change meanwhile


class Table(dict):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize("change", ["clear", "more", "less"])
@pytest.mark.parametrize("kind", [dict, Table])
def test_a_dict_that_changes_meanwhile_counts_as_it_was(
    cuda: Any, library: StandIn, kind: Any, change: str
) -> None:
    x, tree = cuda.array([1.0]), kind()
    changes = {
        "clear": tree.clear,
        "more": lambda: tree.setdefault("new", 1),
        "less": lambda: tree.pop("b", None),
    }
    tree.update(a=Odd(x, changes[change]), b=x, c=2)
    made = convert(tree, "stand_in")
    assert type(made) is kind
    assert {key: type(part) for key, part in made.items()} == {"a": Array, "b": Array, "c": int}
