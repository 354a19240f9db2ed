"""What `convert` and `adapt` find in a tree: objects that speak by themselves, capsules, dicts."""

import gc
import itertools
import types
import unittest.mock
import weakref
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import capsules
import numpy as np
import pytest
from capsules import HandMade
from fakes import OnlyCai, interface
from scenes import done
from stand_in import Array, count, library, made_on, no_libraries, producer

from cai_bridge import adapt, convert, to_dlpack

__all__ = ["library", "no_libraries", "producer"]


class Holder:
    """Has the dict, and what keeps its memory, as attributes of its own."""

    def __init__(self, x):
        self.__cuda_array_interface__ = interface(x)
        self.keep = x


class Proxy:
    """Has whatever another object has."""

    def __init__(self, to):
        self._to = to

    def __getattr__(self, name):
        return getattr(self._to, name)


class Whatever:
    """The same, by the other way in."""

    def __init__(self, to):
        self._to = to

    def __getattribute__(self, name):
        return getattr(object.__getattribute__(self, "_to"), name)


SPEAK = {
    "an attribute": Holder,
    "a field": lambda x: types.SimpleNamespace(__cuda_array_interface__=interface(x), keep=x),
    "a proxy": Proxy,
    "a proxy by getattribute": Whatever,
    "a weak proxy": weakref.proxy,
}


@pytest.mark.parametrize("speaks", ["cai3", "dlpack"])
@pytest.mark.parametrize("made", SPEAK.values(), ids=SPEAK)
def test_objects_that_speak_by_themselves_are_arrays_in_trees_too(
    made, speaks, cuda, library, producer
):
    x = made_on(cuda, producer, 7.0, speaks)
    cuda.synchronize()
    for tree in ([made(x)], [made(x), {"a": made(x)}["a"]]):
        for one in convert(tree, "stand_in"):
            assert (type(one), one.view.ptr) == (Array, x.ptr)
            assert done(one.read()) == [7.0] * 4
    assert type(convert(made(x), "stand_in")) is Array
    assert convert([made(x)], "numpy")[0].tolist() == [7.0] * 4


class Anything:
    """Has every attribute that anybody asks for, and speaks nothing."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


class Declines:
    """Says that it speaks neither, whatever a base of it does."""

    __dlpack__ = None
    __cuda_array_interface__ = None


class Unbound:
    """Stands for something that is not there now."""

    def __init__(self, raised=RuntimeError):
        self.raised = raised

    def __getattr__(self, name):
        raise self.raised


SPEAKS_NOTHING = [
    *(Anything(), Declines(), Unbound(), unittest.mock.Mock(), unittest.mock.MagicMock()),
    *(Holder, Array, Proxy(np.ones(2)), np.__dict__, np, print, type("Empty", (), {})()),
]


@pytest.mark.parametrize("x", SPEAKS_NOTHING, ids=lambda x: type(x).__name__)
def test_what_speaks_nothing_stays_as_it_is(x, cuda, library):
    made = convert([x, cuda.array([1.0])], "stand_in")
    assert made[0] is x
    adapt(lambda a: None if a is x else pytest.fail("another"), to="stand_in")(x)


def test_a_stand_in_that_runs_out_of_memory_is_no_answer(cuda, library):
    with pytest.raises(MemoryError):
        convert([Unbound(MemoryError)], "stand_in")


def test_plain_values_stay_as_they_are(cuda, library):
    class Slotted(NamedTuple):
        a: int

    plain = [1, 2.0, 3j, "a", b"a", None, True, ..., range(3), slice(3), {1}, frozenset({1}), []]
    plain += [(), Slotted(1), np.ones(2, dtype="O")[0], np.float32(1), np.dtype("f4")]
    made = convert([*plain, cuda.array([1.0])], "stand_in")
    assert all(one is other for one, other in zip(plain, made, strict=False))
    assert type(made[-1]) is Array


class Items(Sequence):
    """A sequence that nobody registered."""

    def __init__(self, held):
        self.held = held

    def __len__(self):
        return len(self.held)

    def __getitem__(self, at):
        return self.held[at]


class Pairs(Mapping):
    """A mapping that nobody registered."""

    __len__, __getitem__ = Items.__len__, Items.__getitem__

    def __init__(self, held):
        self.held = dict(enumerate(held))

    def __iter__(self):
        return iter(self.held)


class Mute:
    """An array that cannot say where it is."""

    def __dlpack__(self, **how):
        raise RuntimeError("no capsule")

    def __dlpack_device__(self):
        raise RuntimeError("nowhere")


@pytest.mark.parametrize("kind", [Items, Pairs], ids=["sequence", "mapping"])
def test_a_part_that_cannot_be_asked_hides_no_array_behind_it(kind, cuda, library):
    with pytest.raises(TypeError, match=r"^x\[0\]"):
        convert([kind([Mute(), cuda.array([1.0])])], "stand_in")


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("to", ["stand_in", "numpy"])
def test_a_refusal_leaves_every_capsule_as_it_was(to, copy, cuda, library):
    x = cuda.array([1.0] * 4)
    good, bad = HandMade(x.ptr), HandMade(x.ptr, ndim=-1)
    capsule, wrong = good.capsule(), bad.capsule()
    for tree, where in (
        ([capsule, wrong], r"x\[1\]: ndim: got -1; "),
        ([capsule, capsule], r"x\[1\]: capsule: got one that is there twice; "),
        ([capsule, {"a": interface(x)}], r'x\[1\]\["a"\]: object: got a dict'),
    ):
        with pytest.raises((ValueError, TypeError), match=f"^{where}"):
            convert(tree, to, copy=copy)
        assert not capsules.name_of(capsule).startswith("used")
    for name in ("stream", "readonly"):
        for tree in (capsule, [capsule]):
            with pytest.raises(TypeError, match=f"^{name}: "):
                convert(tree, to, copy=copy, **{name: "none"})
        assert not capsules.name_of(capsule).startswith("used")
    if to != "numpy":
        for tree in (capsule, [x, capsule]):
            with pytest.raises(ValueError, match="of device 1 for an array on device 0"):
                convert(tree, to, copy=copy, stream=cuda.stream(device=1))
            assert not capsules.name_of(capsule).startswith("used")
    assert good.deleted == bad.deleted == 0
    (made,) = convert([capsule], to, copy=copy)
    assert capsules.name_of(capsule).startswith("used")
    del made
    gc.collect()
    cuda.synchronize()
    convert([], to)
    assert good.deleted == 1


@pytest.mark.parametrize("copy", [None, True])
def test_what_no_library_that_writes_gets_is_not_copied_first(copy, cuda, library):
    x = cuda.array([1.0] * 4)
    capsule = to_dlpack(x).__dlpack__(stream=1)
    cuda.synchronize()
    for tree in (capsule, [capsule], x, [x]):
        with pytest.raises(BufferError, match=r"^(x\[0\]: )?readonly: got True for a"):
            convert(tree, "stand_in", copy=copy, readonly=True)
    assert not capsules.name_of(capsule).startswith("used")
    assert count(cuda, "cuMemAllocAsync") == 0
    convert(capsule, "stand_in")


def test_a_bare_dict_is_refused_wherever_it_is(cuda, library):
    bare = interface(cuda.array([1.0]))
    words = r"object: got a dict, which has no owner; from_cai\(dict, owner=\.\.\.\) takes it"
    for to in ("stand_in", "numpy", "cai"):
        with pytest.raises(TypeError, match=f"^{words}"):
            convert(bare, to)
        with pytest.raises(TypeError, match=rf"^x\[1\]: {words}"):
            convert([cuda.array([1.0]), bare], to)
    with pytest.raises(TypeError, match=f"^a: {words}"):
        adapt(lambda a: None, to="stand_in")(bare)


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("tree", [False, True])
def test_what_is_read_only_is_read_only_in_numpy(tree, copy, cuda):
    mine, x = np.ones(2), cuda.array([3.0, 4.0])
    for one, readonly in itertools.product((mine, x), (True, False, None)):
        made = convert([one] if tree else one, "numpy", copy=copy, readonly=readonly)
        made = made[0] if tree else made
        assert made.flags.writeable == (readonly is not True)
        assert made.tolist() == one.tolist()
    assert mine.flags.writeable, "the caller's own stays as it was"
    dates = OnlyCai(interface(x, typestr="<M8[s]", shape=(1,)), keep=x)
    for readonly in (True, False, None):
        made = convert([dates] if tree else dates, "numpy", copy=copy, readonly=readonly)
        made = made[0] if tree else made
        assert (made.dtype, made.flags.writeable) == ("<M8[s]", readonly is not True)
    mine.flags.writeable = False
    assert convert(mine, "numpy", readonly=True) is mine
    assert convert(cuda.array([1.0], readonly=True), "numpy").flags.writeable, "a copy"


def test_a_stream_is_looked_at_though_no_array_is_there(cuda, library):
    trees = [], ["text"], {"a": np.ones(2)}, [np.ones(2), "text"]
    for wrong, tree, to in itertools.product(
        (0, True, "s", -2), trees, ("stand_in", "numpy", "cai")
    ):
        with pytest.raises((TypeError, ValueError), match=r"^stream: got "):
            convert(tree, to, stream=wrong)
    assert count(cuda, "cuEventRecord") == 0


def test_a_key_that_cannot_be_shown_is_named_by_its_type(cuda, library):
    class Silent:
        def __repr__(self):
            raise ZeroDivisionError

    x = cuda.array([1.0] * 4)
    with pytest.raises(TypeError, match=r"^x\[Silent\]: object: got a dict"):
        convert({Silent(): interface(x)}, "stand_in")
    cuda.synchronize()


# a protocol that a class declines
