"""The libraries that are registered, or come by entry points: their types, and what is refused."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import types
from typing import Any, ClassVar

import pytest
import stand_in
from fakes import OnlyCai, interface
from stand_in import Array, StandIn, library, no_libraries

from cai_bridge import DriverError, Library, _libraries, adapt, convert, register

__all__ = ["library", "no_libraries"]


# --- which one is asked ---------------------------------------------------------------------------


def test_one_of_the_same_name_replaces_the_other(cuda: Any, library: StandIn) -> None:
    x = cuda.array([1.0])
    convert(x, "stand_in")
    convert(x, Array)
    other = StandIn({0: cuda.legacy})
    register(other)
    convert(x, "stand_in")
    convert(x, Array)
    assert (library.asked, other.asked) == ([0, 0], [0, 0])


def test_a_library_whose_class_has_no_hash_is_found_each_time(cuda: Any, no_libraries: Any) -> None:
    class Compared(StandIn):
        __hash__ = None  # type: ignore[assignment]

    library = Compared({0: cuda.legacy})
    for _ in range(2):
        assert type(convert(cuda.array([1.0]), library)) is Array


@pytest.mark.parametrize("memory", ["managed", "pinned"])
def test_for_memory_of_another_gpu_that_ones_stream_is_asked_for(
    memory: str, cuda: Any, library: StandIn
) -> None:
    x = cuda.array([1.0] * 4, memory=memory, device=1)
    cuda.synchronize()
    with cuda.current_stream(library.streams[1]):
        cuda.set_device(1)
        own = convert(x, "stand_in", stream=library.streams[1])
    library.asked.clear()
    convert(own, "stand_in", copy=True)
    assert set(library.asked) == {1}


@pytest.mark.parametrize("typestr", ["<f8", "<M8[s]"])
def test_an_array_that_does_not_hold_its_view_is_refused_whatever_its_items(
    typestr: str, cuda: Any, no_libraries: Any
) -> None:
    class Forgets(StandIn):
        def make(self, view: Any, stream: Any) -> Array:
            return Array(None, stream)

    register(Forgets({0: cuda.legacy}))
    x = cuda.array([1.0] * 4, dtype="float64")
    with pytest.raises(TypeError, match="make: got an array that does not hold its view"):
        convert(OnlyCai(interface(x, typestr=typestr), keep=x), "stand_in")


def test_a_library_that_is_replaced_during_a_look_up_is_not_remembered(
    cuda: Any, no_libraries: Any
) -> None:
    newer = StandIn({0: cuda.legacy})

    class Older(StandIn):
        @property
        def types(self) -> Any:
            register(newer)
            return (Array,)

    older = Older({0: cuda.legacy})
    register(older)
    x = cuda.array([1.0])
    convert(x, "stand_in")
    convert(x, "stand_in")
    assert (older.asked, newer.asked) == ([0], [0])


def test_a_type_of_another_module_is_found_by_what_was_registered(
    cuda: Any, no_libraries: Any
) -> None:
    class Elsewhere(StandIn):
        name = "elsewhere"

    register(Elsewhere({0: cuda.legacy}))
    assert type(convert(cuda.array([1.0]), Array)) is Array


def test_a_library_is_not_imported_for_the_arrays_of_others(
    cuda: Any, no_libraries: Any, monkeypatch: Any, tmp_path: Any
) -> None:
    (tmp_path / "not_named_yet.py").write_text("class Array: pass")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("not_named_yet", "absent_from_here"):
        register(type("Other", (StandIn,), {"name": name, "arrays": (f"{name}:Array",)})({}))
    assert adapt(lambda a: a.size, to="cai")(cuda.array([1.0])) == 1
    with pytest.raises(TypeError, match=r"^to: got the type builtins.int"):
        convert(cuda.array([1.0]), int)
    assert "not_named_yet" not in sys.modules


# --- its types ------------------------------------------------------------------------------------


def test_a_library_may_give_its_types_themselves(cuda: Any, no_libraries: Any) -> None:
    class Typed(StandIn):
        name = "typed"
        arrays: ClassVar[tuple[type | str, ...]] = (Array,)

    register(Typed({0: cuda.legacy}))
    assert type(convert(cuda.array([1.0]), Array)) is Array
    assert type(convert(cuda.array([1.0]), "typed")) is Array


@pytest.mark.parametrize("by", ["object", "class"])
def test_a_library_may_say_its_types_itself(by: str, cuda: Any, no_libraries: Any) -> None:
    class Own:
        def __init__(self, view: Any) -> None:
            self.view = view

        @property
        def __cuda_array_interface__(self) -> Any:
            return self.view.__cuda_array_interface__

    class Says(StandIn):
        arrays = ()
        if by == "class":
            types = (Own,)

        def make(self, view: Any, stream: Any) -> Any:
            return Own(view)

    says = Says({0: cuda.stream()})
    if by == "object":
        says.types = (Own,)  # type: ignore[misc]
    register(says)
    x = cuda.array([1.0] * 4)
    mine = convert(x, "stand_in")
    assert type(adapt(lambda view: view, to="cai")(mine)) is Own
    cuda.synchronize()


@pytest.mark.parametrize("name", ["stand_in:Nobody", "stand_in:pytest", "stand_in:Array.read"])
def test_an_array_type_that_is_not_there_is_named(cuda: Any, no_libraries: Any, name: str) -> None:
    register(type("Wrong", (StandIn,), {"arrays": (name,)})({0: cuda.legacy}))
    with pytest.raises(
        TypeError, match=f"^arrays: got '{name}', which is no type, for the library"
    ):
        convert(cuda.array([1.0]), "stand_in")


# --- entry points ---------------------------------------------------------------------------------


class EntryPoints:
    """What stands in for the installed packages' entry points."""

    def __init__(self, loaded: Any) -> None:
        self.loaded, self.asked = loaded, []

    def __call__(self, **wanted: str) -> Any:
        self.asked.append(wanted)
        if wanted != {"group": "cai_bridge.libraries", "name": "stand_in"}:
            return []
        return [types.SimpleNamespace(load=lambda: self.loaded)]


@pytest.mark.parametrize("made_by", ["a library", "a function"])
def test_a_package_adds_its_library_by_an_entry_point(
    cuda: Any, no_libraries: Any, monkeypatch: Any, made_by: str
) -> None:
    made = StandIn({0: cuda.legacy})
    points = EntryPoints(made if made_by == "a library" else lambda: made)
    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    x = cuda.array([1.0])
    for to in (stand_in, "stand_in", Array):
        assert type(convert(x, to)) is Array
    assert len(points.asked) == 1
    with pytest.raises(TypeError, match=r"^to: got 'nobody'"):
        convert(x, "nobody")


@pytest.mark.parametrize(
    ("loaded", "said"),
    [
        (lambda: 3, "library: got 3; allowed: "),
        (5, "library: got 5; allowed: "),
        (
            type("Named", (StandIn,), {"name": "another"})({}),
            "name: got 'another'; allowed: 'stand_",
        ),
    ],
    ids=["no library", "no function", "another name"],
)
def test_an_entry_point_that_gives_something_else_is_named(
    cuda: Any, no_libraries: Any, monkeypatch: Any, loaded: Any, said: str
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", EntryPoints(loaded))
    where = r"^entry point 'stand_in' of 'cai_bridge.libraries': "
    with pytest.raises(TypeError, match=where + re.escape(said)):
        convert(cuda.array([1.0]), "stand_in")
    assert not _libraries._registered


def test_an_entry_point_that_does_not_load_is_named(
    cuda: Any, no_libraries: Any, monkeypatch: Any
) -> None:
    def load() -> Any:
        return importlib.import_module("absent_from_here")

    point = types.SimpleNamespace(load=load)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [point])
    with pytest.raises(ModuleNotFoundError, match=r"^No module named") as raised:
        convert(cuda.array([1.0]), "stand_in")
    assert raised.value.__notes__ == ["at entry point 'stand_in' of 'cai_bridge.libraries'"]


def test_what_no_library_makes_is_looked_for_once(
    cuda: Any, no_libraries: Any, monkeypatch: Any
) -> None:
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


# --- what is refused ------------------------------------------------------------------------------


def test_a_class_of_a_library_is_refused_with_what_was_meant() -> None:
    with pytest.raises(TypeError, match=r"allowed: StandIn\(\), an instance: a cai_br"):
        register(StandIn)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "library",
    [Library(), 3, "stand_in"],
    ids=["without a name", "a number", "a name"],
)
def test_only_libraries_with_a_name_are_registered(library: Any) -> None:
    with pytest.raises(TypeError, match=r"^library: got .+; allowed: a cai_bridge.Library with"):
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
        (
            "make",
            {"make": lambda self, view, *, stream: view},
            r"<lambda>\(self, view, \*, stream\)",
        ),
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
    field: str, attributes: dict[str, Any], got: str, cuda: Any, library: StandIn
) -> None:
    wrong = type("Wrong", (StandIn,), {"name": "wrong", **attributes})({0: cuda.legacy})
    for call in (register, lambda wrong: convert(cuda.array([1.0]), wrong)):
        with pytest.raises(TypeError, match=f"^{field}: got {got}; allowed: "):
            call(wrong)
    with pytest.raises(TypeError, match=r"^to: got 'wrong'; allowed: "):
        convert(cuda.array([1.0]), "wrong")


@pytest.mark.parametrize(
    ("made", "got"),
    [
        (lambda view: None, "None"),
        (lambda view: stand_in.Array(copied_dict(view), None), "an array that does not hold"),
    ],
    ids=["None", "no view"],
)
def test_what_a_library_must_not_make_is_refused_at_once(
    cuda: Any, no_libraries: Any, made: Any, got: str
) -> None:
    library = StandIn({0: cuda.legacy})
    library.make = lambda view, stream: made(view)  # type: ignore[method-assign]
    register(library)
    x = cuda.array([1.0])
    with pytest.raises(TypeError, match=f"^make: got {got}.*; allowed: an array of the library"):
        convert(x, "stand_in")
    assert x.exports == 0


def copied_dict(view: Any) -> Any:
    """An object with a view's dict, which does not hold the view."""
    return types.SimpleNamespace(__cuda_array_interface__=view.__cuda_array_interface__)


NO_STREAMS = [
    ("no stream", r"got an object of type str; allowed: None, -1, 1, 2, a handle, or"),
    (0, r"got 0; allowed: "),
    (True, r"got the bool True; allowed: "),
    (0x777, r"got the stream 0x777, which is no stream"),
]


@pytest.mark.parametrize("how", ["one", "several", "tree", "copy", "argument"])
@pytest.mark.parametrize(("answer", "said"), NO_STREAMS)
def test_what_a_librarys_current_stream_answers_wrong_is_said_of_the_library(
    cuda: Any, no_libraries: Any, how: str, answer: Any, said: str
) -> None:
    register(StandIn({0: answer}))
    x, y = cuda.array([1.0]), cuda.array([1.0])
    calls = {
        "one": lambda: convert(x, "stand_in"),
        "several": lambda: convert([x, y], "stand_in"),
        "tree": lambda: convert({"a": x}, "stand_in"),
        "copy": lambda: convert(x, "stand_in", copy=True),
        "argument": lambda: adapt(lambda a: a, "stand_in")(x),
    }
    refusals = TypeError, ValueError, DriverError
    whose = "" if (how, answer) == ("copy", 0x777) else "current_stream of 'stand_in': "
    with pytest.raises(refusals, match=f"{whose}{said}") as caught:
        calls[how]()
    if type(caught.value) is DriverError:
        assert caught.value.code == 400
    with pytest.raises(refusals, match=f"^stream: {said}"):
        convert(x, "stand_in", stream=answer)
    cuda.clear_reports()
