"""The library that `convert` is told: its module, its name, a type of its arrays, or itself."""

from __future__ import annotations

import sys
import types
from typing import Any, assert_type

import numpy as np
import pytest
import stand_in
from stand_in import Array, StandIn, library, no_libraries

from cai_bridge import (
    CaiView,
    DLPackView,
    Library,
    _libraries,
    adapt,
    convert,
    register,
    to_cai,
)

__all__ = ["library", "no_libraries"]


class Subclass(Array):
    """An array of a subclass, from another module."""


@pytest.mark.parametrize(
    "to", [stand_in, "stand_in", "stand_in.part", Array, Subclass], ids=lambda to: repr(to)[:30]
)
def test_a_library_is_named_by_module_name_or_type(cuda: Any, library: StandIn, to: Any) -> None:
    assert type(convert(cuda.array([1.0]), to)) is Array


def test_a_part_of_a_package_names_the_package(
    cuda: Any, library: StandIn, monkeypatch: Any
) -> None:
    part = types.ModuleType("stand_in.part")
    monkeypatch.setitem(sys.modules, part.__name__, part)
    assert type(convert(cuda.array([1.0]), part)) is Array


def test_a_library_can_be_given_itself(cuda: Any, no_libraries: Any) -> None:
    assert type(convert(cuda.array([1.0]), StandIn({0: cuda.legacy}))) is Array


@pytest.mark.parametrize(
    ("to", "kind"),
    [("cai", CaiView), ("dlpack", DLPackView), (CaiView, CaiView), (DLPackView, DLPackView)],
)
def test_views_are_named_too(cuda: Any, to: Any, kind: type) -> None:
    x = cuda.array([1.0])
    view = convert(x, to)
    assert type(view) is kind
    assert (view.ptr, view.owner) == (x.ptr, x)
    assert convert(view, to) is view


def test_the_type_of_the_array_follows_from_what_it_is_converted_to(cuda: Any) -> None:
    view = to_cai(cuda.array([1.0]))
    assert_type(convert(view, "cai"), CaiView)
    assert_type(convert(view, "dlpack"), DLPackView)
    assert_type(convert(view, DLPackView), DLPackView)
    assert_type(convert([view], "dlpack"), Any)


UNKNOWN = [
    ("nobody", "'nobody'"),
    (3, "3"),
    (None, "None"),
    ([1], r"\[1\]"),
    (types, "<module 'types'"),
    (int, "the type builtins.int"),
    (stand_in.StandIn, "the type stand_in.StandIn"),
    (np.float32, "the type numpy.float32"),
]


@pytest.mark.parametrize(("to", "got"), UNKNOWN, ids=lambda value: repr(value)[:20])
def test_a_library_that_is_not_known_is_refused(
    cuda: Any, library: StandIn, to: Any, got: str
) -> None:
    x = cuda.array([1.0])
    allowed = "the module, .+ type of cai, cuda, .+, stand_in, torch, .+, or of a library"
    with pytest.raises(TypeError, match=rf"^to: got {got}.*; allowed: {allowed}"):
        convert(x, to)
    assert x.exports == 0


@pytest.mark.parametrize(
    ("to", "meant"),
    [
        ("pytorch", "torch"),
        ("Torch", "torch"),
        ("CuPy", "cupy"),
        ("tvm-ffi", "tvm_ffi"),
        ("jaxx", "jax"),
        ("jnp", "jax"),
        ("tensorflow", None),
    ],
)
def test_a_name_that_is_nearly_one_says_which(cuda: Any, to: str, meant: str | None) -> None:
    with pytest.raises(TypeError) as refused:
        convert(cuda.array([1.0]), to)
    said = f"; did you mean {meant!r}?"
    assert str(refused.value).endswith(said) if meant else "did you" not in str(refused.value)


def test_a_library_that_is_not_installed_says_so(cuda: Any, no_libraries: Any) -> None:
    class Absent(Library):
        name = "absent"
        arrays = ("absent_from_here:Array",)
        view = None

    register(Absent())
    with pytest.raises(ModuleNotFoundError, match="absent_from_here"):
        convert(cuda.array([1.0]), "absent")


def test_a_type_of_another_distribution_with_that_name_is_of_no_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """cuda.bindings without cuda.core, whose arrays' module is missing then."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "cuda"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setattr(_libraries, "FOUND", {})
    monkeypatch.delitem(vars(_libraries._named("cuda")), "types", raising=False)
    handle = type("CUstream", (), {"__module__": "cuda.bindings.driver"})()
    assert adapt(lambda x: x, to="cai")(handle) is handle
    with pytest.raises(TypeError, match=r"^to: got the type cuda\.bindings\.driver\.CUstream"):
        convert(1, type(handle))
