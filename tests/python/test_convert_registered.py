"""The libraries that are registered, or come by entry points: their types, and what is refused."""

import importlib.metadata
import re
import sys
import types

import pytest
import stand_in
from fakes import OnlyCai, interface
from stand_in import Array, StandIn, library, no_libraries

from cai_bridge import DriverError, Library, _libraries, adapt, convert, register

__all__ = ["library", "no_libraries"]


def test_one_of_the_same_name_replaces_the_other(cuda, library):
    x, other = cuda.array([1.0]), StandIn({0: cuda.legacy})
    for to in ("stand_in", Array):
        convert(x, to)
    register(other)
    for to in ("stand_in", Array):
        convert(x, to)
    assert (library.asked, other.asked) == ([0, 0], [0, 0])


def test_a_library_whose_class_has_no_hash_is_found_each_time(cuda, no_libraries):
    library = type("Compared", (StandIn,), {"__hash__": None})({0: cuda.legacy})
    for _ in range(2):
        assert type(convert(cuda.array([1.0]), library)) is Array


@pytest.mark.parametrize("memory", ["managed", "pinned"])
def test_for_memory_of_another_gpu_that_ones_stream_is_asked_for(memory, cuda, library):
    x = cuda.array([1.0] * 4, memory=memory, device=1)
    cuda.synchronize()
    with cuda.current_stream(library.streams[1]):
        cuda.set_device(1)
        own = convert(x, "stand_in", stream=library.streams[1])
    library.asked.clear()
    convert(own, "stand_in", copy=True)
    assert set(library.asked) == {1}


def test_a_library_that_is_replaced_during_a_look_up_is_not_remembered(cuda, no_libraries):
    class Older(StandIn):
        @property
        def types(self):
            register(newer)
            return (Array,)

    newer = StandIn({0: cuda.legacy})

    older = Older({0: cuda.legacy})
    register(older)
    x = cuda.array([1.0])
    convert(x, "stand_in")
    convert(x, "stand_in")
    assert (older.asked, newer.asked) == ([0], [0])


def test_a_library_is_not_imported_for_the_arrays_of_others(
    cuda, no_libraries, monkeypatch, tmp_path
):
    (tmp_path / "not_named_yet.py").write_text("class Array: pass")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("not_named_yet", "absent_from_here"):
        register(type("Other", (StandIn,), {"name": name, "arrays": (f"{name}:Array",)})({}))
    assert adapt(lambda a: a.size, to="cai")(cuda.array([1.0])) == 1
    with pytest.raises(TypeError, match=r"^to: got the type builtins.int"):
        convert(cuda.array([1.0]), int)
    assert "not_named_yet" not in sys.modules


@pytest.mark.parametrize("arrays", [(Array,), ("stand_in:Array",)])
def test_a_type_of_another_module_is_found_by_what_was_registered(arrays, cuda, no_libraries):
    register(
        type("Elsewhere", (StandIn,), {"name": "elsewhere", "arrays": arrays})({0: cuda.legacy})
    )
    assert type(convert(cuda.array([1.0]), Array)) is Array
    assert type(convert(cuda.array([1.0]), "elsewhere")) is Array


class Own:
    def __init__(self, view, stream=None):
        self.view = view

    @property
    def __cuda_array_interface__(self):
        return self.view.__cuda_array_interface__


@pytest.mark.parametrize("by", ["object", "class"])
def test_a_library_may_say_its_types_itself(by, cuda, no_libraries):
    types = {"types": (Own,)} if by == "class" else {}
    says = type("Says", (StandIn,), {"arrays": (), "make": lambda _, v, s: Own(v), **types})
    library = says({0: cuda.stream()})
    if by == "object":
        library.types = (Own,)
    register(library)
    mine = convert(cuda.array([1.0] * 4), "stand_in")
    assert type(adapt(lambda view: view, to="cai")(mine)) is Own
    cuda.synchronize()


@pytest.mark.parametrize("name", ["stand_in:Nobody", "stand_in:pytest", "stand_in:Array.read"])
def test_an_array_type_that_is_not_there_is_named(cuda, no_libraries, name):
    register(type("Wrong", (StandIn,), {"arrays": (name,)})({0: cuda.legacy}))
    with pytest.raises(
        TypeError, match=f"^arrays: got '{name}', which is no type, for the library"
    ):
        convert(cuda.array([1.0]), "stand_in")


class EntryPoints:
    """What stands in for the installed packages' entry points."""

    def __init__(self, loaded):
        self.loaded, self.asked = loaded, []

    def __call__(self, **wanted):
        self.asked.append(wanted)
        if wanted != {"group": "cai_bridge.libraries", "name": "stand_in"}:
            return []
        return [types.SimpleNamespace(load=lambda: self.loaded)]


@pytest.mark.parametrize("made_by", ["a library", "a function"])
def test_a_package_adds_its_library_by_an_entry_point(cuda, no_libraries, monkeypatch, made_by):
    made = StandIn({0: cuda.legacy})
    points = EntryPoints(made if made_by == "a library" else lambda: made)
    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    x = cuda.array([1.0])
    for to in (stand_in, "stand_in", Array):
        assert type(convert(x, to)) is Array
    assert len(points.asked) == 1
    with pytest.raises(TypeError, match=r"^to: got 'nobody'"):
        convert(x, "nobody")


NO_LIBRARIES = {
    "no library": (lambda: 3, "library: got 3; allowed: "),
    "no function": (5, "library: got 5; allowed: "),
    "another name": (
        type("Named", (StandIn,), {"name": "another"})({}),
        "name: got 'another'; allowed: 'stand_",
    ),
}


@pytest.mark.parametrize("loads", NO_LIBRARIES)
def test_an_entry_point_that_gives_something_else_is_named(cuda, no_libraries, monkeypatch, loads):
    loaded, said = NO_LIBRARIES[loads]
    monkeypatch.setattr(importlib.metadata, "entry_points", EntryPoints(loaded))
    where = r"^entry point 'stand_in' of 'cai_bridge.libraries': "
    with pytest.raises(TypeError, match=where + re.escape(said)):
        convert(cuda.array([1.0]), "stand_in")
    assert not _libraries._registered


def test_an_entry_point_that_does_not_load_is_named(cuda, no_libraries, monkeypatch):
    point = types.SimpleNamespace(load=lambda: importlib.import_module("absent_from_here"))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [point])
    with pytest.raises(ModuleNotFoundError, match=r"^No module named") as raised:
        convert(cuda.array([1.0]), "stand_in")
    assert raised.value.__notes__ == ["at entry point 'stand_in' of 'cai_bridge.libraries'"]


def test_what_no_library_makes_is_looked_for_once(cuda, no_libraries, monkeypatch):
    points = EntryPoints(None)
    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    adapted = adapt(lambda a: a, to="cai")

    class Frame(OnlyCai):
        """An array of a class of the program's own."""

    memory = cuda.array([1.0])
    x = Frame(interface(memory), memory)
    adapted(x)
    asked = len(points.asked)
    assert asked > 0
    adapted(x)
    assert len(points.asked) == asked
    # A library that comes later is asked.
    monkeypatch.setattr(stand_in, "Frame", Frame, raising=False)
    register(type("Frames", (StandIn,), {"arrays": ("stand_in:Frame",)})({0: cuda.legacy}))
    assert type(adapted(x)) is Array


@pytest.mark.parametrize(
    ("library", "said"),
    [
        (StandIn, r"StandIn\(\), an instance: a cai_br"),
        (Library(), "a cai_bridge.Library with"),
        (3, "a cai_bridge.Library with"),
        ("stand_in", "a cai_bridge.Library with"),
    ],
    ids=["a class", "without a name", "a number", "a name"],
)
def test_only_libraries_with_a_name_are_registered(library, said):
    with pytest.raises(TypeError, match=f"^library: got .+; allowed: {said}"):
        register(library)


@pytest.mark.parametrize(
    ("field", "attributes", "got"),
    [
        ("name", {"name": ""}, "''"),
        ("name", {"name": "a.b"}, "'a.b'"),
        ("arrays", {"arrays": "stand_in:Array"}, "'stand_in:Array'"),
        ("arrays", {"arrays": ("stand_in",)}, r"\('stand_in',\)"),
        ("arrays", {"arrays": (":Array",)}, r"\(':Array',\)"),
        ("arrays", {"arrays": (), "view": None}, r"\(\)"),
        ("view", {"view": int}, "<class 'int'>"),
        ("make", {"make": Library.make}, "none"),
        ("make", {"make": None}, "None"),
        ("make", {"make": lambda self, view: view}, r"<lambda>\(self, view\)"),
        ("make", {"make": lambda self, v, *, stream: v}, r"<lambda>\(self, v, \*, stream\)"),
        ("current_stream", {"current_stream": lambda self: 1}, r"<lambda>\(self\)"),
        ("current_stream", {"current_stream": 5}, "5"),
        ("writes", {"writes": "no"}, "'no'"),
        ("readonly", {"readonly": "x"}, "'x'"),
        ("readonly", {"readonly": 0}, "0"),
        ("readonly", {"writes": True, "readonly": False}, "False"),
        ("readonly", {"writes": True, "readonly": True}, "True"),
    ],
)
def test_a_library_that_could_make_no_array_is_refused_when_it_is_registered(
    field, attributes, got, cuda, library
):
    wrong = type("Wrong", (StandIn,), {"name": "wrong", **attributes})({0: cuda.legacy})
    for call in (register, lambda wrong: convert(cuda.array([1.0]), wrong)):
        with pytest.raises(TypeError, match=f"^{field}: got {got}; allowed: "):
            call(wrong)
    with pytest.raises(TypeError, match=r"^to: got 'wrong'; allowed: "):
        convert(cuda.array([1.0]), "wrong")


def copied_dict(view):
    """An object with a view's dict, which does not hold the view."""
    return types.SimpleNamespace(__cuda_array_interface__=view.__cuda_array_interface__)


NOT_ARRAYS = {
    "None": (lambda view: None, "None"),
    "no view": (lambda view: Array(None, None), "an array that does not hold its view"),
    "a copied dict": (lambda view: Array(copied_dict(view), None), "an array that does not hold"),
}


@pytest.mark.parametrize("makes", NOT_ARRAYS)
@pytest.mark.parametrize("typestr", ["<f8", "<M8[s]"])
def test_what_a_library_must_not_make_is_refused_at_once(typestr, makes, cuda, no_libraries):
    made, got = NOT_ARRAYS[makes]
    library = StandIn({0: cuda.legacy})
    library.make = lambda view, stream: made(view)
    register(library)
    x = cuda.array([1.0] * 4, dtype="float64")
    given = x if typestr == "<f8" else OnlyCai(interface(x, typestr=typestr), keep=x)
    with pytest.raises(TypeError, match=f"^make: got {got}.*; allowed: an array of the library"):
        convert(given, "stand_in")
    assert x.exports == 0


NO_STREAMS = [
    ("no stream", r"got an object of type str; allowed: None, -1, 1, 2, a handle, or"),
    (0, r"got 0; allowed: "),
    (True, r"got the bool True; allowed: "),
    (0x777, r"got the stream 0x777, which is no stream"),
]


CALLS = {
    "one": lambda x, y: convert(x, "stand_in"),
    "several": lambda x, y: convert([x, y], "stand_in"),
    "tree": lambda x, y: convert({"a": x}, "stand_in"),
    "copy": lambda x, y: convert(x, "stand_in", copy=True),
    "argument": lambda x, y: adapt(lambda a: a, "stand_in")(x),
}


@pytest.mark.parametrize("how", CALLS)
@pytest.mark.parametrize(("answer", "said"), NO_STREAMS)
def test_what_a_librarys_current_stream_answers_wrong_is_said_of_the_library(
    cuda, no_libraries, how, answer, said
):
    register(StandIn({0: answer}))
    x, y = cuda.array([1.0]), cuda.array([1.0])
    refusals = TypeError, ValueError, DriverError
    whose = "" if (how, answer) == ("copy", 0x777) else "current_stream of 'stand_in': "
    with pytest.raises(refusals, match=f"{whose}{said}") as caught:
        CALLS[how](x, y)
    if type(caught.value) is DriverError:
        assert caught.value.code == 400
    with pytest.raises(refusals, match=f"^stream: {said}"):
        convert(x, "stand_in", stream=answer)
    cuda.clear_reports()
