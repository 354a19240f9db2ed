"""A quick route to a library's arrays, or to an attribute: it answers what the public one does."""

import types

import capsules
import pytest
import tables

from cai_bridge import to_cai
from cai_bridge._libraries._library import Quick


def routes(quick_does):
    """A route, and which of its two ways is called."""
    calls = []

    def quick(view, stream):
        calls.append("quick")
        return quick_does(view)

    def public(view, stream):
        calls.append("public")
        return view.size

    return Quick("library", quick, public, lambda one, other: one == other), calls


def raises(view):
    raise AttributeError("gone")


@pytest.mark.parametrize("does", [raises, lambda view: view.size + 1], ids=["raises", "another"])
def test_a_quick_route_that_does_not_do_the_same_is_not_taken(does, caplog):
    route, calls = routes(does)
    with caplog.at_level("DEBUG", logger="cai_bridge"):
        assert [route(types.SimpleNamespace(size=4), None) for _ in "ab"] == [4, 4]
    assert "library: the bridge uses the public route: " in caplog.text
    assert calls[-2:] == ["public", "public"]


def test_a_quick_route_that_does_the_same_is_taken_from_then_on():
    route, calls = routes(lambda view: view.size)
    sizes = [0, 4, 3, 2]
    assert [route(types.SimpleNamespace(size=size), None) for size in sizes] == sizes
    # Arrays of nothing go by the public route, and tell nothing of the other.
    assert calls == ["public", "quick", "public", "quick", "quick", "quick"]


class Slotted:
    """An exporter that keeps what it says in slots."""

    __slots__ = ("__weakref__", "of", "requires_grad")

    def __init__(self, of):
        self.of = of

    def __dlpack__(self, **wishes):
        return self.of.__dlpack__(**wishes)

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()


class Filled(Slotted):
    """Answers for a slot that nobody has filled."""

    __slots__ = ()

    def __getattr__(self, name):
        if name == "requires_grad":
            return False
        raise AttributeError(name)


class Finds(Slotted):
    """Looks its attributes up itself."""

    __slots__ = ()

    def __getattribute__(self, name):
        return True if name == "requires_grad" else super().__getattribute__(name)


def test_a_slot_is_read_as_python_reads_it(cuda, monkeypatch):
    assert to_cai(Filled(cuda.array([1.0]))).size == 1
    x, finds = Slotted(cuda.array([1.0])), Finds(cuda.array([1.0]))
    x.requires_grad = finds.requires_grad = False
    assert to_cai(x).size == 1
    with pytest.raises(BufferError, match=r"^requires_grad: got True"):
        to_cai(finds)
    monkeypatch.setattr(Slotted, "requires_grad", property(lambda _: True))
    with pytest.raises(BufferError, match=r"^requires_grad: got True"):
        to_cai(x)


@pytest.mark.parametrize("finds", [False, True])
def test_a_method_of_c_is_asked_as_python_does(finds, cuda):
    """`list.copy` stands for a library's C function, unless the class looks methods up itself."""

    def found(self, name):
        return (lambda: True) if name == "is_conj" else object.__getattribute__(self, name)

    x = cuda.array([1.0] * 4, speaks=())
    table = tables.table(lambda _: capsules.HandMade(x.ptr, owner=x, dtype=(5, 64, 1), shape=(2,)))
    members = {"requires_grad": False, "is_neg": lambda _: False}
    members["is_conj"] = list.copy  # an empty list's copy is false
    if finds:
        members["__getattribute__"] = found
    speaker = tables.speaker(table, list, **members)()
    if finds:
        with pytest.raises(BufferError, match=r"^conj: got"):
            to_cai(speaker)
    else:
        assert to_cai(speaker).shape == (2,)
