"""`convert` of containers: which are taken apart, and that each comes back whole, as it was."""

import collections
import dataclasses
import sys
import types
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import tvm_ffi
from fakes import interface
from stand_in import Array, Odd, StandIn, known, library, no_libraries, producer

from cai_bridge import adapt, convert

__all__ = ["known", "library", "no_libraries", "producer"]


class Pair(NamedTuple):
    one: Any
    other: Any


class NotedPair(Pair):
    note = "new"


class Items(list):
    note = "kept"


class Places(tuple):
    __slots__ = ()


class Table(dict):
    pass


class Pixel(tuple):
    """A tuple that is made of other arguments than its parts."""

    def __new__(cls, *, x, y):
        made = super().__new__(cls, (x, y))
        made.note = "new"
        return made


@dataclasses.dataclass
class Batch:
    data: Any
    size: int = 3
    made: Any = dataclasses.field(default=None, init=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    data: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    data: Any
    other: Any = 2


def shapes(x):
    batch = Batch(x)
    batch.made = [x]
    return {
        "a list": [x, 1, x],
        "a tuple": (x, None),
        "a named tuple": Pair(x, Pair("text", x)),
        "a dict": {"a": x, 7: [x], None: 2.0},
        "an ordered dict": collections.OrderedDict(b=x, a=1),
        "a default dict": collections.defaultdict(list, a=x),
        "a subclass of dict": Table(a=x),
        "a subclass of list": Items([x, 2]),
        "a subclass of tuple": Places([x, 2]),
        "a dataclass": batch,
        "a frozen dataclass": Frozen((x, 1)),
        "a dataclass with slots": Slotted(x),
        "a tree of trees": {"a": [(x, {"b": Frozen([x])})], "c": x},
    }


class AnyArray:
    """Equals each array of the stand-in, and is shown as one is."""

    def __eq__(self, other):
        return type(other) is Array

    __hash__ = None

    def __repr__(self):
        return "an array"


@pytest.mark.parametrize("shape", shapes(None))
def test_a_tree_keeps_its_shape(cuda, library, shape, monkeypatch):
    monkeypatch.setattr(Array, "__repr__", AnyArray.__repr__)
    x = cuda.array([1.0] * 4)
    tree, wanted = shapes(x)[shape], shapes(AnyArray())[shape]
    made = convert(tree, "stand_in")
    assert type(made) is type(tree)
    assert (made, repr(made)) == (wanted, repr(wanted))
    assert tree == shapes(x)[shape]


def test_a_subclass_keeps_what_it_has_besides(cuda, library):
    x = cuda.array([1.0])
    for tree in (Items([x, 2]), NotedPair(x, 2), Pixel(x=x, y=2)):
        tree.note = "mine"
        (made,) = convert([tree], "stand_in")
        assert (type(made), type(made[0]), made[1]) == (type(tree), Array, 2)
        assert made.note == "mine"


def test_what_a_dataclass_has_for_its_class_stays_the_classs(cuda, library):
    x = cuda.array([1.0])

    @dataclasses.dataclass(slots=True)
    class Model:
        weight: Any
        shared: ClassVar[Any] = x
        scale: dataclasses.InitVar[float] = 1.0

    made = convert(Model(x), "stand_in")
    assert (type(made.weight), made.shared is x, Model.shared is x) == (Array, True, True)


def test_an_array_that_is_a_dataclass_is_an_array(cuda, library):
    x = cuda.array([7.0] * 4)

    @dataclasses.dataclass
    class Owned:
        x: Any

        @property
        def __cuda_array_interface__(self):
            return interface(self.x)

    for made in (convert(Owned(x), "stand_in"), convert([Owned(x)], "stand_in")[0]):
        assert (type(made), made.view.ptr) == (Array, x.ptr)


def test_what_holds_no_array_of_a_gpu_stays_as_it_is(cuda, library):
    tree = [np.ones(3), tvm_ffi.from_dlpack(np.ones(2)), object(), "text", None, int, StandIn]
    tree += [[1, 2], {"deep": [None]}, Frozen(np.ones(2)), Node(cuda.array([1.0]))]
    made = convert([*tree, cuda.array([1.0])], "stand_in")
    assert all(one is other for one, other in zip(made, tree, strict=False))
    assert type(made[-1]) is Array
    for mixed in ([1, "two"], ["one"], [[], 1], {"notes": [1]}, [], (), {}):
        assert convert(mixed, "stand_in") is mixed


def test_a_container_that_is_in_itself_is_refused_by_its_place(cuda, library):
    x = cuda.array([1.0])
    batch = {"data": x, "steps": [{"size": 1}]}
    batch["steps"][0]["batch"] = batch
    said = r'x\["steps"\]\[0\]\["batch"\]: got x itself, which it is in; allowed: a tree'
    with pytest.raises(ValueError, match=said):
        convert(batch, "stand_in")
    inner = Batch(x)
    inner.made = outer = Batch(x)
    outer.made = inner
    with pytest.raises(ValueError, match=r"^a\.made\.made: got a itself"):
        adapt(lambda a: a, to="stand_in")(inner)
    assert type(convert(x, "stand_in")) is Array


def test_one_without_arrays_stays_as_it_is(cuda, library):
    x, node = cuda.array([1.0]), Batch([])
    node.data.append(Batch(node))
    made = convert([node, x, node], "stand_in")
    assert made[0] is made[2] is node
    assert type(made[1]) is Array
    assert convert(node, "stand_in") is node
    kinds = adapt(lambda a, b: (type(a), b is node, node), to="stand_in", returns="cai")
    assert kinds(x, node) == (Array, True, node)


@dataclasses.dataclass(frozen=True)
class Unchanging:
    """Its copy is itself, and its pickle a name, or an error."""

    data: Any

    def __copy__(self):
        return self

    def __reduce__(self):
        return "BY_NAME"

    def __getstate__(self):
        raise TypeError("holds GPU memory and cannot be pickled")


@dataclasses.dataclass
class Failed(Exception):
    data: Any


@dataclasses.dataclass
class Base:
    __slots__ = ("__hidden", "data", "gone")
    data: Any

    def hide(self, x):
        self.__hidden = x

    def hidden(self):
        return self.__hidden


@dataclasses.dataclass
class Partly(Base):
    """Has slots and attributes besides its fields, of which a pickle would have some."""

    def __post_init__(self):
        self.cache = {"rate": 0.1}
        self.hide("hidden")

    def __getstate__(self):
        return {}


@pytest.mark.parametrize("kind", [Unchanging, Failed, Partly])
def test_a_dataclass_is_made_again_without_being_copied(cuda, library, kind):
    x = cuda.array([1.0])
    tree = kind(x)
    made = convert([tree], "stand_in")[0]
    assert (type(made), type(made.data)) == (kind, Array)
    assert adapt(lambda a: type(a.data), "stand_in")(tree) is Array
    assert tree.data is x
    if kind is Partly:
        assert (made.cache, made.hidden()) == ({"rate": 0.1}, "hidden")
        assert not hasattr(made, "gone")


class OwnDict(dict):
    def __copy__(self):
        return self


class OwnList(list):
    __copy__ = OwnDict.__copy__


def test_a_container_whose_copy_is_itself_is_refused(cuda, library):
    x = cuda.array([1.0])
    for tree in (OwnDict({0: x}), OwnList([x])):
        said = rf"^x\[0\]: container: got a {type(tree).__name__} whose copy is itself; allowed: "
        with pytest.raises(TypeError, match=said):
            convert([tree], "stand_in")
        with pytest.raises(TypeError, match=r"^a: container: got "):
            adapt(lambda a: a, "stand_in")(tree)
        assert tree[0] is x


class Bunch(dict):
    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


def test_a_dict_whose_keys_are_its_attributes_stays_one(cuda, library):
    x = cuda.array([1.0])
    tree = Bunch(a=x, b=2)
    made = convert([tree], "stand_in")[0]
    assert (type(made), type(made.a), made.a is made["a"]) == (Bunch, Array, True)
    made.c = 3
    assert made["c"] == 3
    assert (dict(tree), tree.a is x) == ({"a": x, "b": 2}, True)


@dataclasses.dataclass
class Rows(list):
    mask: Any = None


@dataclasses.dataclass
class Columns(dict):
    mask: Any = None


@dataclasses.dataclass
class Point(tuple):
    mask: Any = None

    def __new__(cls, *_):
        return super().__new__(cls, (1, 2))


@pytest.mark.parametrize("kind", [Rows, Columns, Point])
def test_the_fields_of_a_dataclass_that_is_a_container_are_parts_too(cuda, library, kind):
    x = cuda.array([1.0])
    tree = kind(x)
    if kind is Rows:
        tree.append(x)
    elif kind is Columns:
        tree[0] = tree["mask"] = x
    made = convert([tree], "stand_in")[0]
    assert (type(made), type(made.mask), tree.mask is x) == (kind, Array, True)
    assert made[0] == 1 if kind is Point else type(made[0]) is Array
    if kind is Columns:
        assert made.mask is made["mask"]
    tree.mask = cuda.array([1.0], readonly=True)
    with pytest.raises(BufferError, match=r"^x\[0\]\.mask: readonly: got "):
        convert([tree], "stand_in")


@pytest.mark.parametrize("change", ["clear", "more", "less"])
def test_a_dict_that_changes_meanwhile_counts_as_it_was(cuda, library, change):
    x, tree = cuda.array([1.0]), Table()
    changes = {
        "clear": tree.clear,
        "more": lambda: tree.setdefault("new", 1),
        "less": lambda: tree.pop("b", None),
    }
    tree.update(a=Odd(x, changes[change]), b=x, c=2)
    made = convert(tree, "stand_in")
    assert type(made) is Table
    assert {key: type(part) for key, part in made.items()} == {"a": Array, "b": Array, "c": int}


class Node:
    def __init__(self, *parts):
        self.parts = parts


class TorchPytree(types.ModuleType):
    """The part of ``torch.utils._pytree`` that is asked, knowing `Node`."""

    SUPPORTED_NODES: ClassVar = {
        Node: types.SimpleNamespace(
            flatten_fn=lambda node: (list(node.parts), Node),
            unflatten_fn=lambda parts, context: context(*parts),
        )
    }


class JaxTreeUtil(types.ModuleType):
    """The part of ``jax.tree_util`` that is asked, knowing `Node`."""

    def tree_flatten(self, x, is_leaf):
        if not isinstance(x, Node) or is_leaf(x):
            return [x], None
        assert all(is_leaf(part) for part in x.parts)
        return list(x.parts), Node

    def treedef_is_leaf(self, shape):
        return shape is None

    def tree_unflatten(self, shape, parts):
        return shape(*parts)


PYTREES = {"torch.utils._pytree": TorchPytree, "jax.tree_util": JaxTreeUtil}


@pytest.mark.parametrize("name", PYTREES)
def test_the_libraries_pytrees_are_taken_apart(cuda, library, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, PYTREES[name](name))
    x = cuda.array([1.0])
    made = convert({"a": Node(x, [x], 2, None)}, "stand_in")["a"]
    assert type(made) is Node
    one, (other,), two, nothing = made.parts
    assert (type(one), type(other), two, nothing) == (Array, Array, 2, None)
    with pytest.raises(BufferError, match=r"^x\[0\]\[1\]: readonly: "):
        convert([Node(1, cuda.array([1.0], readonly=True))], "stand_in")
