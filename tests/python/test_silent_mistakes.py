"""Mistakes that nothing showed until the values were wrong: each is refused, or warned of once."""

import sys
import types
import warnings
from fractions import Fraction

import numpy as np
import pytest
from stand_in import Array, library, no_libraries, producer

from cai_bridge import CaiView, Library, adapt, convert, register

__all__ = ["library", "no_libraries", "producer"]

STREAM = ("get_stream", "currentstream", "currentStream", "get_current_stream")
# A member as somebody may write it, and the one that is meant.
MISSPELT = {
    **dict.fromkeys(STREAM, "current_stream"),
    **dict.fromkeys(("write", "Writes", "writeable", "mutable"), "writes"),
    **dict.fromkeys(("array", "classes"), "arrays"),
    "read_only": "readonly",
    "views": "view",
}


class Bare(Library):
    """A library that says what it must and no more."""

    name = "bare"

    def make(self, view, stream):
        return view


@pytest.mark.usefixtures("no_libraries")
@pytest.mark.parametrize("of", ["the class", "the instance"])
@pytest.mark.parametrize("written", MISSPELT)
def test_a_member_that_no_library_has_is_refused_by_the_near_name(written, of):
    kind = {"array": (Array,), "classes": (Array,), "views": CaiView}
    kind |= dict.fromkeys(STREAM, lambda self, device: 1)
    library = type("Misspelt", (Bare,), {})()
    setattr(type(library) if of == "the class" else library, written, kind.get(written, False))
    said = rf"^{written}: got a member that no library has; .+; did you mean '{MISSPELT[written]}'"
    with pytest.raises(TypeError, match=said):
        register(library)


@pytest.mark.usefixtures("no_libraries")
@pytest.mark.parametrize(
    "members",
    [
        {"write": lambda self, x: None},
        {"_write": True},
        {"write": True, "writes": True},
        {"pool": [], "device": 0, "makes": 3},
        {"array": Array, "arrays": (Array,)},
    ],
)
def test_what_a_class_has_of_its_own_is_its_own_affair(members):
    register(type("Own", (Bare,), members)())


OnStreams = type("OnStreams", (), {"stream": None})


@pytest.mark.usefixtures("no_libraries")
@pytest.mark.parametrize(
    ("members", "module", "known"),
    [
        ({"streams": {}}, [], "its streams"),
        ({"arrays": (OnStreams,)}, [], "OnStreams.stream"),
        ({}, ["get_stream"], "bare.get_stream"),
        ({}, ["Stream"], "bare.Stream"),
    ],
)
def test_a_library_that_works_on_streams_and_names_none_is_warned_of(
    members, module, known, monkeypatch
):
    imported = types.ModuleType("bare")
    vars(imported).update(dict.fromkeys(module))
    monkeypatch.setitem(sys.modules, "bare", imported)
    with pytest.warns(
        UserWarning, match=rf"^current_stream: got none .+ there is {known}; "
    ) as seen:
        register(type("Silent", (Bare,), members)())
    assert seen[0].filename == __file__
    explicit = {**members, "current_stream": lambda self, device: None}
    register(type("Explicit", (Bare,), explicit)())


class Holds:
    def __init__(self, x):
        self.name, self.weights = "model", x


class Slotted:
    __slots__ = ("weights", "x")


def test_an_object_whose_attribute_is_an_array_is_warned_of_once(cuda):
    x = cuda.array([1.0], speaks="dlpack")
    held = Holds(x)
    said = r'^x\["model"\]\[0\]: got an object of type Holds, whose attribute weights is an array; '
    with pytest.warns(UserWarning, match=said) as seen:
        made = convert({"model": [held], "x": x}, "cai")
    assert made["model"] == [held]
    assert seen[0].filename == __file__
    with warnings.catch_warnings(record=True) as again:
        warnings.simplefilter("default")
        for _ in range(3):
            convert({"model": [held], "x": x}, "cai")
    assert len(again) == 1


class Key:
    """An array that can be a key."""

    def __init__(self, x):
        self.__dlpack__, self.__dlpack_device__ = x.__dlpack__, x.__dlpack_device__


def slotted(x):
    made = Slotted()
    made.weights = x
    return made


STAYS = {
    "an object": (Holds, "got an object of type Holds, whose attribute weights is an array"),
    "slots": (slotted, "got an object of type Slotted, whose attribute weights is an array"),
    "a key": (lambda x: {Key(x): 1}, "got a dict with a key of type Key, which is an array"),
    "a generator": (lambda x: (one for one in [x]), "got a generator, whose parts can be had once"),
    "zip": (lambda x: zip([x], strict=True), "got a zip, whose parts can be had once"),
    "an iterator": (lambda x: iter([x]), "got a list_iterator, whose parts can be had once"),
}


@pytest.mark.parametrize("what", STAYS)
@pytest.mark.parametrize("on_host", [False, True])
def test_what_stays_as_it_is_in_a_tree_is_warned_of(what, on_host, cuda):
    make, said = STAYS[what]
    x = np.zeros(2, "float32") if on_host else cuda.array([1.0], speaks="dlpack")
    to = "tvm_ffi" if on_host else "cai"
    part = make(x)
    with pytest.warns(UserWarning, match=rf'^x\["a"\]\[0\]: {said}; it stays as it is: ') as seen:
        made = convert({"a": [part], "x": x}, to)
    assert made["a"][0] is part
    assert seen[0].filename == __file__


def test_what_holds_no_array_of_another_library_is_not_warned_of(cuda):
    host, x = np.zeros(2, "float32"), cuda.array([1.0], speaks="dlpack")
    convert([Holds(host), {host.size: host}, host], "numpy")
    convert([np.float64(1), Fraction(1, 2), host], "tvm_ffi")
    convert([Holds("text"), Holds([x]), Slotted(), Holds, types, Slotted.__init__, x], "cai")
    assert adapt(lambda model, x: model.weights is not x, to="cai")(Holds(x), x)
