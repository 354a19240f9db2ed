"""`convert` of what is of the wanted kind already: our views, and arrays of the library itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scenes import done
from stand_in import StandIn, library, made_on, no_libraries, producer

from cai_bridge import convert, to_cai, to_dlpack

__all__ = ["library", "no_libraries", "producer"]

KINDS = {"cai": to_cai, "dlpack": to_dlpack}
each_kind = pytest.mark.parametrize("to", KINDS)


@each_kind
@pytest.mark.parametrize("tree", [False, True])
def test_a_view_for_another_stream_is_ordered_both_ways(to: str, tree: bool, cuda: Any) -> None:
    theirs, mine = cuda.stream("theirs"), cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks="cai3", stream=theirs)
    theirs.fill(x, 7.0)
    view = KINDS[to](x)
    given = [view, "else"] if tree else view
    made = convert(given, to, stream=mine)
    made = made[0] if tree else made
    assert type(made) is type(view)
    assert made.ptr == view.ptr
    seen = mine.read(made)
    made.release()
    view.release()
    theirs.fill(x, -1.0)
    assert done(seen) == [7.0] * 4


@each_kind
def test_a_view_with_nothing_asked_for_is_itself(to: str, cuda: Any) -> None:
    view = KINDS[to](cuda.array([1.0]))
    assert convert(view, to) is view
    assert convert([view], to)[0] is view


@each_kind
def test_a_view_becomes_read_only_where_that_is_asked_for(to: str, cuda: Any) -> None:
    view = KINDS[to](cuda.array([1.0]))
    assert not view.readonly
    assert convert(view, to, readonly=True).readonly
    assert convert([view], to, readonly=True)[0].readonly
    assert not convert(convert(view, to, readonly=True), to, readonly=False).readonly


@each_kind
@pytest.mark.parametrize("how", [{}, {"readonly": True}, {"copy": True}, {"stream": 1}])
def test_a_released_view_is_refused(to: str, how: dict[str, Any], cuda: Any) -> None:
    view = KINDS[to](cuda.array([1.0]))
    view.release()
    with pytest.raises(BufferError, match=r"^view: got a released view"):
        convert(view, to, **how)
    with pytest.raises(BufferError, match=r"^x\[1\]: view: got a released view"):
        convert([cuda.array([1.0]), view], to, **how)


def test_an_array_of_a_library_that_writes_is_not_made_read_only(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    own = convert(made_on(cuda, producer, 7.0), "stand_in")
    with pytest.raises(BufferError, match=r"^readonly: got True for one of the library's own"):
        convert(own, "stand_in", readonly=True)
    with pytest.raises(BufferError, match=r"^x\['b'\]: readonly: got True|^x\[\"b\"\]"):
        convert({"a": cuda.array([1.0]), "b": own}, "stand_in", readonly=True)
    assert convert(own, "stand_in", readonly=False) is own


@pytest.mark.parametrize(
    ("argument", "value", "wrong"),
    [("readonly", "x", "readonly: got 'x'"), ("stream", "y", "stream: got an object of type str")],
)
def test_arguments_are_looked_at_though_the_array_stays_as_it_is(
    argument: str, value: Any, wrong: str, cuda: Any, library: StandIn, producer: Any
) -> None:
    own = convert(made_on(cuda, producer, 7.0), "stand_in")
    view = to_cai(cuda.array([1.0]))
    for x, to in [(own, "stand_in"), (view, "cai"), (np.zeros(3), "numpy"), ([own], "stand_in")]:
        with pytest.raises((TypeError, ValueError), match=f"^{wrong}|^x.*{wrong}"):
            convert(x, to, **{argument: value})
