"""A quick route to a library's arrays, or to an attribute: it answers what the public one does."""

from __future__ import annotations

import types
from typing import Any

import capsules
import pytest
import tables

from cai_bridge import to_cai
from cai_bridge._libraries._library import Quick


@pytest.mark.parametrize("fails", ["it raises", "it makes another array"])
def test_a_quick_route_that_does_not_do_the_same_is_not_taken(fails: str, caplog: Any) -> None:
    calls = []

    def quick(view: Any, stream: Any) -> Any:
        calls.append("quick")
        if fails == "it raises":
            raise AttributeError("gone")
        return (view.size, 1)

    def public(view: Any, stream: Any) -> Any:
        calls.append("public")
        return (view.size, 2)

    route = Quick("library", quick, public, lambda one, other: one == other)
    view = types.SimpleNamespace(size=4)
    with caplog.at_level("DEBUG", logger="cai_bridge"):
        assert route(view, None) == (4, 2)
    assert "library: the bridge uses the public route: " in caplog.text
    calls.clear()
    assert route(view, None) == (4, 2)
    assert calls == ["public"]


def test_a_quick_route_that_does_the_same_is_taken_from_then_on() -> None:
    calls = []
    quick = lambda view, stream: calls.append("quick") or view.size  # noqa: E731
    public = lambda view, stream: calls.append("public") or view.size  # noqa: E731
    route = Quick("library", quick, public, lambda one, other: one == other)
    sizes = [0, 4, 3, 2]
    assert [route(types.SimpleNamespace(size=size), None) for size in sizes] == sizes
    # Arrays of nothing go by the public route, and tell nothing of the other.
    assert calls == ["public", "quick", "public", "quick", "quick", "quick"]


class Slotted:
    """An exporter that keeps what it says in slots."""

    __slots__ = ("__weakref__", "of", "requires_grad")

    def __init__(self, of: Any) -> None:
        self.of = of

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.of.__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.of.__dlpack_device__()


class Filled(Slotted):
    """Answers for a slot that nobody has filled."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name == "requires_grad":
            return False
        raise AttributeError(name)


class Finds(Slotted):
    """Looks its attributes up itself."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        return True if name == "requires_grad" else super().__getattribute__(name)


def test_a_slot_that_nobody_filled_is_read_by_the_objects_getattr(cuda: Any) -> None:
    assert to_cai(Filled(cuda.array([1.0]))).size == 1


def test_a_slot_is_read_by_the_objects_getattribute(cuda: Any) -> None:
    x = Finds(cuda.array([1.0]))
    x.requires_grad = False
    with pytest.raises(BufferError, match=r"^requires_grad: got True"):
        to_cai(x)


def test_a_property_that_takes_a_slots_place_is_asked(cuda: Any) -> None:
    x = Slotted(cuda.array([1.0]))
    x.requires_grad = False
    assert to_cai(x).size == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slotted, "requires_grad", property(lambda _: True))
        with pytest.raises(BufferError, match=r"^requires_grad: got True"):
            to_cai(x)


@pytest.mark.parametrize("finds", [False, True])
def test_a_method_of_c_is_asked_as_python_does(finds: bool, cuda: Any) -> None:
    """`list.copy` stands for a library's C function, unless the class looks methods up itself."""

    def found(self: Any, name: str) -> Any:
        return (lambda: True) if name == "is_conj" else object.__getattribute__(self, name)

    x = cuda.array([1.0] * 4, speaks=())
    table = tables.table(lambda _: capsules.HandMade(x.ptr, owner=x, dtype=(5, 64, 1), shape=(2,)))
    members: dict[str, Any] = {"requires_grad": False, "is_neg": lambda _: False}
    members["is_conj"] = list.copy  # an empty list's copy is false
    if finds:
        members["__getattribute__"] = found
    speaker = tables.speaker(table, list, **members)()
    if finds:
        with pytest.raises(BufferError, match=r"^conj: got"):
            to_cai(speaker)
    else:
        assert to_cai(speaker).shape == (2,)
