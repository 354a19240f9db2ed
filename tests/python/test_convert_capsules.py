"""Capsules that are converted: consumed when all is made, and as they were where it is refused."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from stand_in import StandIn, no_libraries

from cai_bridge import CaiView, adapt, convert, register, to_cai

__all__ = ["no_libraries"]


class Refuses(StandIn):
    """A library that refuses what is not of one dimension when it makes its array."""

    view = CaiView

    def make(self, view: Any, stream: Any) -> Any:
        if view.ndim != 1:
            raise BufferError("ndim: got 2; allowed: 1")
        return super().make(view, stream)


def capsule(cuda: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    x = cuda.array(fill=1.0, shape=shape, speaks="dlpack", stream=cuda.stream("producer"))
    return x, x.__dlpack__(stream=1, max_version=(1, 3))


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("how", ["make", "copy", "numpy", "adapt"])
def test_a_capsule_that_is_refused_at_last_is_as_it_was(
    cuda: Any, no_libraries: None, how: str, tree: bool
) -> None:
    own = cuda.stream("own")
    register(Refuses({0: own}))
    (x, good), (y, bad) = capsule(cuda, (4,)), capsule(cuda, (2, 2))
    given = [good, bad] if tree else bad
    if how == "make":
        with pytest.raises(BufferError, match="ndim: got 2"):
            convert(given, "stand_in")
    elif how == "adapt":
        with pytest.raises(BufferError, match="ndim: got 2"):
            adapt(lambda _: None, "stand_in")(given)
    else:
        copy, to = (True, "cai") if how == "copy" else (None, "numpy")
        with cuda.capture(own), pytest.raises(RuntimeError, match="graph capture: got a copy"):
            convert(given, to, stream=own, copy=copy)
    assert (x.exports, y.exports) == (1, 1)
    made = convert([good, bad], "cai")
    assert [view.ptr for view in made] == [x.ptr, y.ptr]
    del good, bad, given
    assert (x.exports, y.exports) == (1, 1)
    cuda.synchronize()
    del made
    assert (x.exports, y.exports) == (0, 0)


@pytest.mark.parametrize("to", ["stand_in", "numpy", "tvm_ffi", "cai"])
@pytest.mark.parametrize("copy", [None, True])
def test_a_capsule_that_is_converted_is_consumed(
    cuda: Any, no_libraries: None, to: str, copy: Any
) -> None:
    if to == "tvm_ffi":
        pytest.importorskip("tvm_ffi")
    register(Refuses({0: cuda.stream("own")}))
    x, made_of = capsule(cuda, (4,))
    made = convert(made_of, to, copy=copy)
    assert "used_dltensor" in repr(made_of)
    cuda.synchronize()
    assert x.exports == (0 if copy or to == "numpy" else 1)
    with pytest.raises(ValueError, match="capsule: got a consumed one"):
        convert(made_of, to)
    del made
    cuda.synchronize()
    assert x.exports == 0


def test_a_view_of_a_capsule_that_was_refused_is_a_released_one(
    cuda: Any, no_libraries: None
) -> None:
    kept = []

    class Keeps(Refuses):
        def make(self, view: Any, stream: Any) -> Any:
            kept.append(view)
            return super().make(view, stream)

    register(Keeps({0: cuda.stream("own")}))
    (x, good), (_, bad) = capsule(cuda, (4,)), capsule(cuda, (2, 2))
    with pytest.raises(BufferError, match="ndim: got 2"):
        convert([good, bad], "stand_in")
    # The capsules have the memory again, for whoever is next.
    for view in kept:
        with pytest.raises(AttributeError, match="released"):
            view.__cuda_array_interface__  # noqa: B018 - it is read
        with pytest.raises(BufferError, match="released"):
            convert(view, "dlpack")
    assert convert(good, "cai").ptr == x.ptr


def test_a_capsule_that_is_consumed_meanwhile_costs_no_other(cuda: Any, no_libraries: None) -> None:
    class Takes(Refuses):
        def make(self, view: Any, stream: Any) -> Any:
            if "used" not in repr(second):
                to_cai(second)
            return super().make(view, stream)

    register(Takes({0: cuda.stream("own")}))
    (x, first), (_, second) = capsule(cuda, (4,)), capsule(cuda, (4,))
    with pytest.raises(ValueError, match=r"x\[1\]: capsule: got "):
        convert([first, second], "stand_in")
    assert convert(first, "cai").ptr == x.ptr
    cuda.synchronize()


@pytest.mark.parametrize("copy", [None, True])
def test_an_error_about_one_capsule_has_nothing_of_ours(cuda: Any, copy: Any) -> None:
    _, used = capsule(cuda, (4,))
    assert convert(used, "cai").ndim == 1
    with pytest.raises(ValueError, match="capsule: got a consumed one") as caught:
        convert(used, "cai", copy=copy)
    assert vars(caught.value) == {}
    cuda.synchronize()


class Frozen(dict):  # type: ignore[type-arg]
    def __setitem__(self, key: Any, part: Any) -> None:
        raise TypeError("may not be changed")


WAYS = {
    "a tree": lambda tree, own: convert(tree, "cai"),
    "numpy": lambda tree, own: convert(tree, "numpy"),
    "a copy": lambda tree, own: convert(tree, "cai", copy=True),
    "an argument": lambda tree, own: adapt(lambda tree: tree)(tree),
    "a result": lambda tree, own: adapt(lambda: tree, returns="cai")(),
    "a result of a stream": lambda tree, own: adapt(lambda: tree, returns="cai", stream=own)(),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_container_that_cannot_be_made_again_costs_no_capsule(cuda: Any, way: Any) -> None:
    x, kept = capsule(cuda, (4,))
    y, own = cuda.array([1.0] * 4), cuda.stream("own")
    with pytest.raises(TypeError, match=r"^may not be changed\nat .*\[1\]$"):
        way([kept, Frozen(a=y)], own)
    cuda.synchronize()
    assert (x.exports, y.exports) == (1, 0)
    assert convert(kept, "cai").ptr == x.ptr


def test_a_result_that_is_refused_costs_no_capsule_and_is_named(cuda: Any) -> None:
    x, kept = capsule(cuda, (4,))
    other = cuda.stream("other", device=1)
    with pytest.raises(ValueError, match=r"^the result\[0\]: stream: got "):
        adapt(lambda: [kept], returns="cai", stream=other)()
    with pytest.raises(ValueError, match=r"^the result\[1\]: capsule: got one that is there twice"):
        adapt(lambda: [kept, kept], returns="cai", stream=cuda.stream("own"))()
    assert convert(kept, "cai").ptr == x.ptr
    cuda.synchronize()


@pytest.mark.parametrize("tree", [False, True])
def test_a_call_that_its_function_does_not_take_costs_no_capsule(cuda: Any, tree: bool) -> None:
    class Method:
        @adapt
        def method(self, a: Any, b: Any) -> Any:
            return b

    @adapt
    async def awaited(a: Any, b: Any) -> Any:
        return b

    def decorated(*args: Any) -> Any:
        return args[0]

    _, one = capsule(cuda, (4,))
    cuda.synchronize()
    given = {"k": [one]} if tree else one
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        adapt(lambda a, b: b)(given)
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        Method().method(given)
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        awaited(given).send(None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        adapt(lambda a: a)(given, c=1)
    # What a decorator says in another's place is not what it takes.
    decorated.__signature__ = inspect.signature(lambda: None)  # type: ignore[attr-defined]
    assert adapt(decorated)(given) is not None
    with pytest.raises(ValueError, match="capsule"):
        to_cai(one)
    assert Method().method(1, 2) == 2
