"""Mistakes that nothing showed until the values were wrong: each is refused, or warned of once."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from stand_in import Array, library, no_libraries, producer

from cai_bridge import CaiView, Library, adapt, convert, register

__all__ = ["library", "no_libraries", "producer"]

# --- what a library says of itself ----------------------------------------------------------------

# A member as somebody may write it, and the one that is meant.
MISSPELT: dict[str, tuple[dict[str, Any], str]] = {
    "currentstream": ({"currentstream": lambda self, device: None}, "current_stream"),
    "currentStream": ({"currentStream": lambda self, device: None}, "current_stream"),
    "get_current_stream": ({"get_current_stream": lambda self, device: 1}, "current_stream"),
    "write": ({"write": False}, "writes"),
    "Writes": ({"Writes": False}, "writes"),
    "read_only": ({"read_only": False}, "readonly"),
    "views": ({"views": CaiView}, "view"),
    "array": ({"array": (Array,)}, "arrays"),
    "classes": ({"classes": (Array,)}, "arrays"),
    "writeable": ({"writeable": False}, "writes"),
    "mutable": ({"mutable": True}, "writes"),
    "get_stream": ({"get_stream": lambda self, device: 1}, "current_stream"),
}


class Bare(Library):
    """A library that says what it must and no more."""

    name = "bare"

    def make(self, view: Any, stream: Any) -> Any:
        return view


@pytest.mark.usefixtures("no_libraries")
@pytest.mark.parametrize("written", MISSPELT)
def test_a_member_that_no_library_has_is_refused_by_the_near_name(written: str) -> None:
    members, meant = MISSPELT[written]
    said = rf"^{written}: got a member that no library has; allowed: .+; did you mean '{meant}'\?$"
    with pytest.raises(TypeError, match=said):
        register(type("Misspelt", (Bare,), members)())


@pytest.mark.usefixtures("no_libraries")
def test_such_a_member_of_the_instance_is_refused_too() -> None:
    one = Bare()
    one.write = False  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"did you mean 'writes'\?$"):
        register(one)


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
def test_what_a_class_has_of_its_own_is_its_own_affair(members: Any) -> None:
    register(type("Own", (Bare,), members)())


class OnStreams:
    """An array that says which stream it works on."""

    stream = None


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
    members: Any, module: list[str], known: str, monkeypatch: Any
) -> None:
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


# --- what stays as it is in a tree ----------------------------------------------------------------


class Holds:
    def __init__(self, x: Any) -> None:
        self.name, self.weights = "model", x


class Slotted:
    __slots__ = ("weights", "x")


def test_an_object_whose_attribute_is_an_array_is_warned_of_once(cuda: Any) -> None:
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

    def __init__(self, x: Any) -> None:
        self.x = x

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.x.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()


def slotted(x: Any) -> Slotted:
    made = Slotted()
    made.weights = x
    return made


STAYS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an object": (Holds, "got an object of type Holds, whose attribute weights is an array"),
    "slots": (slotted, "got an object of type Slotted, whose attribute weights is an array"),
    "a key": (lambda x: {Key(x): 1}, "got a dict with a key of type Key, which is an array"),
    "a generator": (lambda x: (one for one in [x]), "got a generator, whose parts can be had once"),
    "zip": (lambda x: zip([x], strict=True), "got a zip, whose parts can be had once"),
    "an iterator": (lambda x: iter([x]), "got a list_iterator, whose parts can be had once"),
}


@pytest.mark.parametrize("what", STAYS)
@pytest.mark.parametrize("on_host", [False, True])
def test_what_stays_as_it_is_in_a_tree_is_warned_of(what: str, on_host: bool, cuda: Any) -> None:
    make, said = STAYS[what]
    x = np.zeros(2, "float32") if on_host else cuda.array([1.0], speaks="dlpack")
    to = "tvm_ffi" if on_host else "cai"
    part = make(x)
    with pytest.warns(UserWarning, match=rf'^x\["a"\]\[0\]: {said}; it stays as it is: ') as seen:
        made = convert({"a": [part], "x": x}, to)
    assert made["a"][0] is part
    assert seen[0].filename == __file__


def test_the_librarys_own_and_numbers_are_not_warned_of(cuda: Any) -> None:
    host = np.zeros(2, "float32")
    convert([Holds(host), {host.size: host}, host], "numpy")
    convert([np.float64(1), Fraction(1, 2), host], "tvm_ffi")


@pytest.mark.parametrize(
    "numbers", [[np.float64(1)], [Fraction(1, 2)], [[Decimal(1)], [2]], [np.int8(1), np.bool_(1)]]
)
def test_a_list_of_any_numbers_is_refused(numbers: Any) -> None:
    with pytest.raises(TypeError, match=r"^object: got a list of numbers; allowed: "):
        convert(numbers, "tvm_ffi")


def test_an_object_that_has_none_and_the_arguments_of_a_call_are_not(cuda: Any) -> None:
    x = cuda.array([1.0], speaks="dlpack")
    convert([Holds("text"), Holds([x]), Slotted(), Holds, types, test_silent, x], "cai")
    assert adapt(lambda model, x: model.weights is not x, to="cai")(Holds(x), x)


def test_silent() -> None:
    """A function has attributes as well."""


def objects(xs: Any) -> Any:
    made = np.empty(2, object)
    made[0] = xs[0]
    return made


def items(xs: Any) -> Any:
    return dict(enumerate(xs)).items()


@pytest.mark.parametrize(
    "kind",
    [
        *(set, frozenset, items, lambda xs: dict(enumerate(xs)).values()),
        lambda xs: {(1, *xs)},
        lambda xs: {(frozenset(xs), 2)},
        objects,
    ],
)
def test_a_set_with_arrays_is_refused_as_other_containers_are(cuda: Any, kind: Any) -> None:
    x = cuda.array([1.0], speaks="dlpack")
    with pytest.raises(TypeError, match=r'^x\["s"\]: container: got a \w+ with arrays; allowed: '):
        convert({"s": kind([x])}, "cai")
    with pytest.raises(TypeError, match=r"^s\[0\]: container: got a \w+ with arrays; allowed: "):
        adapt(lambda s: s, to="cai")([kind([x])])
    plain = kind([1, "two"])
    assert convert([plain, x], "cai")[0] is plain
