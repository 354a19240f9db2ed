"""`convert` of containers: which are taken apart, and that each comes back as it was."""

from __future__ import annotations

import collections
import dataclasses
import gc
import sys
import types
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import tvm_ffi
from fakes import OnlyCai, interface
from stand_in import Array, StandIn, known, library, no_libraries, producer

from cai_bridge import _containers, adapt, convert

__all__ = ["known", "library", "no_libraries", "producer"]


class Pair(NamedTuple):
    one: Any
    other: Any


class NotedPair(Pair):
    note = "new"


class Items(list):  # type: ignore[type-arg]
    note = "kept"


class Places(tuple):  # type: ignore[type-arg]
    __slots__ = ()


class Pixel(tuple):  # type: ignore[type-arg]
    """A tuple that is made of other arguments than its parts."""

    def __new__(cls, *, x: Any, y: Any) -> Pixel:
        made = super().__new__(cls, (x, y))
        made.note = "new"  # type: ignore[attr-defined]
        return made


class Picky(list):  # type: ignore[type-arg]
    def __setitem__(self, at: Any, parts: Any) -> None:
        raise TypeError("no other parts")


class Table(dict):  # type: ignore[type-arg]
    pass


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


# the shape


def shapes(x: Any) -> dict[str, Any]:
    batch = Batch(x)
    batch.made = [x]
    ordered = collections.OrderedDict(b=x, a=1)
    default = collections.defaultdict(list, a=x)
    return {
        "a list": [x, 1, x],
        "a tuple": (x, None),
        "a named tuple": Pair(x, Pair("text", x)),
        "a dict": {"a": x, 7: [x], None: 2.0},
        "an ordered dict": ordered,
        "a default dict": default,
        "a subclass of dict": Table(a=x),
        "a subclass of list": Items([x, 2]),
        "a subclass of tuple": Places([x, 2]),
        "a dataclass": batch,
        "a frozen dataclass": Frozen((x, 1)),
        "a dataclass with slots": Slotted(x),
        "a tree of trees": {"a": [(x, {"b": Frozen([x])})], "c": x},
    }


def leaves(tree: Any, kind: type) -> list[Any]:
    """The arrays of a tree by hand, in order."""
    if isinstance(tree, kind):
        return [tree]
    if dataclasses.is_dataclass(tree):
        tree = [getattr(tree, field.name) for field in dataclasses.fields(tree)]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [leaf for part in tree for leaf in leaves(part, kind)] if is_container(tree) else []


def is_container(x: Any) -> bool:
    return isinstance(x, (list, tuple))


@pytest.mark.parametrize("shape", shapes(None))
def test_a_tree_keeps_its_shape(cuda: Any, library: StandIn, shape: str) -> None:
    x = cuda.array([1.0] * 4)
    tree = shapes(x)[shape]
    made = convert(tree, "stand_in")
    assert type(made) is type(tree)
    assert made is not tree
    assert not leaves(tree, Array)
    assert not leaves(made, type(x))
    assert len(leaves(made, Array)) == len(leaves(tree, type(x))) > 0
    # Putting the arrays back gives what was there.
    wanted = shapes("an array")[shape]
    assert with_words(made) == wanted
    assert repr(with_words(made)) == repr(wanted)


def with_words(tree: Any) -> Any:
    """The tree with a word for each array, made by hand."""
    if isinstance(tree, Array):
        return "an array"
    if dataclasses.is_dataclass(tree):
        made = type(tree)(**{f.name: with_words(getattr(tree, f.name)) for f in fields(tree, True)})
        for field in fields(tree, False):
            object.__setattr__(made, field.name, with_words(getattr(tree, field.name)))
        return made
    if isinstance(tree, dict):
        items = {key: with_words(part) for key, part in tree.items()}
        if isinstance(tree, collections.defaultdict):
            return collections.defaultdict(tree.default_factory, items)
        return type(tree)(items)
    if isinstance(tree, Pair):
        return Pair(*map(with_words, tree))
    return type(tree)(map(with_words, tree)) if is_container(tree) else tree


def fields(tree: Any, init: bool) -> Any:
    return [field for field in dataclasses.fields(tree) if field.init == init]


def test_a_subclass_keeps_what_it_has_besides(cuda: Any, library: StandIn) -> None:
    items = Items([cuda.array([1.0])])
    items.note = "mine"
    assert convert(items, "stand_in").note == "mine"
    default = collections.defaultdict(list, a=cuda.array([1.0]))
    assert convert(default, "stand_in").default_factory is list
    pair = NotedPair(cuda.array([1.0]), 2)
    pair.note = "mine"
    made = convert(pair, "stand_in")
    assert (type(made), type(made.one), made.note) == (NotedPair, Array, "mine")


def test_a_tuple_that_is_made_of_other_arguments_keeps_its_shape(
    cuda: Any, library: StandIn
) -> None:
    pixel = Pixel(x=cuda.array([1.0]), y=3)
    pixel.note = "mine"  # type: ignore[attr-defined]
    (made,) = convert([pixel], "stand_in")
    assert type(made) is Pixel
    assert (type(made[0]), made[1], made.note) == (Array, 3, "mine")


def test_a_container_that_cannot_be_made_again_is_named(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])
    with pytest.raises(TypeError, match=r'^no other parts\nat x\["a"\]\[1\]$'):
        convert({"a": [x, Picky([x])]}, "stand_in")
    gc.collect()
    assert x.exports == 0


def test_what_a_dataclass_has_for_its_class_stays_the_classs(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])

    @dataclasses.dataclass(slots=True)
    class Model:
        weight: Any
        shared: ClassVar[Any] = x
        scale: dataclasses.InitVar[float] = 1.0

    made = convert(Model(x), "stand_in")
    assert (type(made.weight), made.shared is x, Model.shared is x) == (Array, True, True)


def test_what_is_no_array_of_a_gpu_stays_as_it_is(cuda: Any, library: StandIn) -> None:
    host, made_of_host = np.ones(3), tvm_ffi.from_dlpack(np.ones(2))
    own, text = object(), "text"
    tree = [host, made_of_host, own, text, None, cuda.array([1.0]), int, StandIn]
    made = convert(tree, "stand_in")
    assert all(one is other for one, other in zip(made[:5], tree[:5], strict=True))
    assert made[6:] == [int, StandIn]
    assert type(made[5]) is Array


def test_numbers_and_words_cost_no_call(
    cuda: Any, library: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []
    parts_of = _containers.parts_of
    monkeypatch.setattr(_containers, "parts_of", lambda x: planned.append(x) or parts_of(x))
    x = cuda.array([1.0])
    words = [1, 2.0, "three", True, None, b"4", 5j]
    made = convert([*words, x, dict.fromkeys("ab", 1)], "stand_in")
    assert made[:-2] == words
    assert made[-1] == {"a": 1, "b": 1}
    assert planned == []


def test_a_container_without_arrays_is_itself(cuda: Any, library: StandIn) -> None:
    notes, options, settings = [1, 2], {"deep": [None]}, Frozen(np.ones(2))
    assert convert(options, "stand_in") is options
    for mixed in ([1, "two"], ["one"], [[], 1], {"notes": notes}):
        assert convert(mixed, "stand_in") is mixed
    made = convert([notes, options, settings, cuda.array([1.0])], "stand_in")
    assert (made[0] is notes, made[1] is options, made[2] is settings) == (True, True, True)
    for empty in ([], (), {}):
        assert convert(empty, "stand_in") is empty


def test_a_container_that_is_in_itself_is_refused_by_its_place(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])
    batch: dict[str, Any] = {"data": x, "steps": [{"size": 1}]}
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


def test_one_without_arrays_stays_as_it_is(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])
    node = Batch([])
    node.data.append(Batch(node))
    made = convert([node, x, node], "stand_in")
    assert made[0] is made[2] is node
    assert type(made[1]) is Array
    assert convert(node, "stand_in") is node
    kinds = adapt(lambda a, b: (type(a), b is node, node), to="stand_in", returns="cai")
    assert kinds(x, node) == (Array, True, node)


def test_an_array_that_is_a_dataclass_is_an_array(cuda: Any, library: StandIn) -> None:
    x = cuda.array([7.0] * 4)

    @dataclasses.dataclass
    class Owned:
        x: Any

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return interface(self.x)

    for made in (convert(Owned(x), "stand_in"), convert([Owned(x)], "stand_in")[0]):
        assert type(made) is Array
        assert made.view.ptr == x.ptr


def test_arrays_of_all_protocols_are_found(cuda: Any, library: StandIn) -> None:
    speak = ["exchange", "dlpack", "dlpack-legacy", "cai3", ("exchange", "cai2")]
    tree = [cuda.array([1.0] * 4, speaks=speaks) for speaks in speak]
    tree.append(OnlyCai(interface(tree[0]), keep=tree[0]))
    made = convert(tree, "stand_in")
    assert [type(one) for one in made] == [Array] * len(tree)
    assert [one.view.ptr for one in made[:-1]] == [one.ptr for one in tree[:-1]]


def test_an_array_that_is_there_twice_is_converted_at_both_places(
    cuda: Any, library: StandIn
) -> None:
    x = cuda.array([1.0])
    one, other = convert([x, x], "stand_in")
    assert one.view.ptr == other.view.ptr == x.ptr


def test_arrays_of_the_library_stay_among_others(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])
    mine = convert(x, "stand_in")
    made = convert([x, mine, {"a": mine}, x], "stand_in")
    assert made[1] is mine is made[2]["a"]
    assert type(made[0]) is type(made[3]) is Array


# what libraries were told are containers


class Node:
    def __init__(self, *parts: Any) -> None:
        self.parts = parts


def test_pytorchs_pytrees_are_taken_apart(cuda: Any, library: StandIn, monkeypatch: Any) -> None:
    pytree = types.ModuleType("torch.utils._pytree")
    pytree.SUPPORTED_NODES = {  # type: ignore[attr-defined]
        Node: types.SimpleNamespace(
            flatten_fn=lambda node: (list(node.parts), "context"),
            unflatten_fn=lambda parts, context: Node(context, *parts),
        )
    }
    monkeypatch.setitem(sys.modules, pytree.__name__, pytree)
    made = convert([Node(cuda.array([1.0]), 2)], "stand_in")[0]
    assert type(made) is Node
    assert (made.parts[0], type(made.parts[1]), made.parts[2]) == ("context", Array, 2)
    read_only = cuda.array([1.0], readonly=True)
    with pytest.raises(BufferError, match=r"^x\[0\]\[1\]: readonly: "):
        convert([Node(1, read_only)], "stand_in")


class JaxTreeUtil(types.ModuleType):
    """The part of ``jax.tree_util`` that is asked, knowing `Node`."""

    def __init__(self) -> None:
        super().__init__("jax.tree_util")

    def tree_flatten(self, x: Any, is_leaf: Any) -> Any:
        if not isinstance(x, Node) or is_leaf(x):
            return [x], None
        assert all(is_leaf(part) for part in x.parts)
        return list(x.parts), Node

    def treedef_is_leaf(self, shape: Any) -> bool:
        return shape is None

    def tree_unflatten(self, shape: Any, parts: Any) -> Any:
        return shape(*parts)


def test_jaxs_pytrees_are_taken_apart(cuda: Any, library: StandIn, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "jax.tree_util", JaxTreeUtil())
    made = convert({"a": Node(cuda.array([1.0]), [cuda.array([1.0])], 2, None)}, "stand_in")["a"]
    assert type(made) is Node
    one, (other,), two, nothing = made.parts
    assert (type(one), type(other), two, nothing) == (Array, Array, 2, None)


def test_without_those_libraries_their_containers_are_no_arrays(
    cuda: Any, library: StandIn
) -> None:
    node = Node(cuda.array([1.0]))
    assert convert([node], "stand_in")[0] is node
