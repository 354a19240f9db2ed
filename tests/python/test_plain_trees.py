"""Lists, tuples and dicts are taken apart without a call of Python's for each part.

What else is no array is shown to the Python that knows all containers, each object once.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from stand_in import Array, Odd, StandIn, library, made_on, no_libraries, producer

from cai_bridge import DLPackView, _containers, convert, from_cai, register, to_dlpack

__all__ = ["library", "no_libraries", "producer"]

CAPSULE = type(DLPackView.__dlpack_c_exchange_api__)


@pytest.fixture(autouse=True)
def planned(library: StandIn, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The parts that Python is shown."""
    seen: list[Any] = []
    parts_of = _containers.parts_of
    monkeypatch.setattr(_containers, "parts_of", lambda x: seen.append(x) or parts_of(x))
    return seen


def nested(x: Any, depth: int) -> Any:
    for _ in range(depth):
        x = [x]
    return x


PLAIN = [
    lambda x: [x],
    lambda x: (x, x),
    lambda x: {"a": x, 7: x, None: 1},
    lambda x: {"a": [x, 1, 2.0, "text", b"bytes", True, None, 1j], "b": ((x,), {"c": x})},
    lambda x: [[], {}, (), x, {"nothing": [1]}],
    lambda x: nested(x, 16),
    lambda x: nested(x, 2000),
    lambda x: [to_dlpack(x), x],
    lambda x: [x, convert(x, "stand_in")],
    lambda x: [x, to_dlpack(x).__dlpack__()],
    lambda x: [x, np.ones(2)],
    lambda x: [x, tvm_ffi.from_dlpack(np.ones(2))],
]


@pytest.mark.parametrize("tree", PLAIN, ids=range(len(PLAIN)))
def test_plain_trees_are_not_taken_apart_by_python(cuda: Any, tree: Any, planned: Any) -> None:
    x = cuda.array([1.0])
    given = tree(x)
    made = convert(given, "stand_in")
    assert planned == []
    assert shape(made) == shape(given)


def shape(x: Any) -> Any:
    """A tree with a word for each array."""
    deep = 0
    while type(x) is list and len(x) == 1:
        x, deep = x[0], deep + 1
    if isinstance(x, (list, tuple)):
        x = type(x)(map(shape, x))
    elif isinstance(x, dict):
        x = {key: shape(part) for key, part in x.items()}
    elif hasattr(x, "__dlpack__") or isinstance(x, (Array, CAPSULE)):
        x = "array"
    return deep, x


def test_a_part_without_arrays_is_itself(cuda: Any, planned: Any) -> None:
    names, options = ["a"], {"deep": ([None],)}
    made = convert([names, cuda.array([1.0]), options], "stand_in")
    assert (made[0] is names, made[2] is options, planned) == (True, True, [])


OTHERS = [
    lambda part: [1, part],
    lambda part: nested(part, 17),
    lambda part: {"a": part, "b": (2,)},
]


@pytest.mark.parametrize("tree", OTHERS, ids=range(len(OTHERS)))
@pytest.mark.parametrize("kind", [object, type("Items", (list,), {})])
def test_python_is_shown_each_other_object_once(
    cuda: Any, tree: Any, kind: Any, planned: Any
) -> None:
    part, given = kind(), [cuda.array([1.0])]
    given.append(tree(part))
    made = convert(given, "stand_in")
    assert len(planned) == 1
    assert planned[0] is part
    assert made[1] is given[1]


def test_an_array_on_the_host_that_says_so_as_it_is_taken_stays(cuda: Any, planned: Any) -> None:
    x, host = cuda.array([1.0]), tvm_ffi.from_dlpack(np.ones(2))
    made = convert({"a": [x, host], "b": host}, "stand_in")
    assert type(made["a"][0]) is Array
    assert (made["a"][1] is host, made["b"] is host, planned) == (True, True, [])


@pytest.mark.parametrize(
    "tree", [list, lambda xs: {0: xs}, lambda xs: types.MappingProxyType({0: xs})]
)
def test_where_a_batch_had_arrays_on_the_host_those_of_the_next_are_asked(
    cuda: Any, library: StandIn, tree: Any
) -> None:
    class Counted(Odd):
        def __dlpack__(self, **asked: Any) -> Any:
            times.append(None)
            return super().__dlpack__(**asked)

    def taken(*xs: Any) -> int:
        """How often an array is taken in."""
        times.clear()
        convert(tree(xs), "stand_in")
        return len(times)

    times: list[None] = []
    x, host = Counted(cuda.array([1.0]), lambda: None), tvm_ffi.from_dlpack(np.ones(2))
    assert [taken(x, host), taken(x, host), taken(x), taken(x), taken(x, host)] == [2, 1, 1, 1, 2]


def test_a_bare_dict_of_cai_is_refused_in_a_tree(cuda: Any) -> None:
    x = cuda.array([1.0], speaks="cai3")
    with pytest.raises(TypeError, match=r"^x\[1\]: "):
        convert([x, x.__cuda_array_interface__], "stand_in")


@pytest.mark.parametrize(
    ("tree", "where"),
    [
        (lambda good, bad: [good, bad], "x[1]"),
        (lambda good, bad: {"a": [], "b": (good, [good], {"c": bad})}, 'x["b"][2]["c"]'),
        (lambda good, bad: [[good, good], good, 1, [good, bad, good]], "x[3][1]"),
    ],
)
def test_what_is_refused_is_named_by_its_place(
    cuda: Any, tree: Any, where: str, planned: Any
) -> None:
    good, bad = cuda.array([1.0]), cuda.array([1.0])
    released = to_dlpack(bad)
    released.release()
    with pytest.raises(BufferError) as caught:
        convert(tree(good, released), "stand_in")
    assert str(caught.value).startswith(f"{where}: view: got ")
    assert not vars(caught.value)
    assert planned == []


def test_what_is_wrong_with_the_call_names_no_array(cuda: Any, planned: Any) -> None:
    with pytest.raises(ValueError, match=r"^stream: got 0"):
        convert([cuda.array([1.0])], "stand_in", stream=0)
    assert planned == []


@pytest.mark.parametrize("change", ["clear", "more"])
@pytest.mark.parametrize("kind", [list, dict])
def test_a_container_that_changes_meanwhile_counts_as_it_was(
    cuda: Any, kind: Any, change: str
) -> None:
    x = cuda.array([1.0])
    tree: Any = kind()
    more = (lambda: tree.insert(0, "new")) if kind is list else (lambda: tree.update(new=1))
    parts = [Odd(x, tree.clear if change == "clear" else more), x, "z"]
    tree.extend(parts) if kind is list else tree.update(enumerate(parts))
    made = convert(tree, "stand_in")
    assert [type(one) for one in (made if kind is list else made.values())] == [Array, Array, str]


def test_a_container_in_itself_is_not_gone_through_again(cuda: Any, planned: Any) -> None:
    asked: list[None] = []
    loops: list[Any] = [Odd(cuda.array([1.0]), lambda: asked.append(None))]
    loops += [loops] * 3
    with pytest.raises(ValueError, match=r"^x\[1\]: got x itself"):
        convert(loops, "stand_in")
    assert (planned, len(asked)) == ([], 2)


def test_a_container_in_itself_with_arrays_of_the_host_alone_stays(cuda: Any) -> None:
    loop: list[Any] = [tvm_ffi.from_dlpack(np.ones(2))]
    loop.append(loop)
    made = convert([loop, cuda.array([1.0])], "stand_in")
    assert (made[0] is loop, type(made[1])) == (True, Array)


def test_lists_that_are_a_librarys_arrays_are_no_trees(cuda: Any, library: StandIn) -> None:
    class Lists(StandIn):
        name = "lists"
        arrays = ("builtins:list",)

    register(Lists(library.streams))
    x = [cuda.array([1.0])]
    assert convert(x, "lists") is x
    assert convert(x, "lists") is x


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("member", ["__dlpack_device__", "__dlpack__"])
def test_an_interrupt_passes_through_as_it_is(
    cuda: Any, member: str, raised: type[BaseException]
) -> None:
    error = raised("said")

    def fail(*_: Any, **asked: Any) -> None:
        raise error

    odd = type("Odd", (Odd,), {member: fail})(cuda.array([1.0]), lambda: None)
    with pytest.raises(raised) as caught:
        convert([cuda.array([1.0]), odd], "stand_in")
    assert caught.value is error
    assert (error.args, vars(error), getattr(error, "__notes__", [])) == (("said",), {}, [])


class Unshown(Exception):
    def __str__(self) -> str:
        raise OSError("cannot be shown")


class Answers(Exception):
    def __getattr__(self, name: str) -> int:
        return 0


@pytest.mark.parametrize("raised", [Unshown, Answers])
def test_an_exception_of_an_odd_kind_stays_what_it_is(cuda: Any, raised: type[Exception]) -> None:
    def fail(*_: Any, **asked: Any) -> None:
        raise raised

    odd = type("Odd", (Odd,), {"__dlpack__": fail})(cuda.array([1.0]), lambda: None)
    with pytest.raises(raised):
        convert([cuda.array([1.0]), odd], "stand_in")


@pytest.mark.parametrize("raised", [MemoryError, RecursionError, OSError])
def test_an_array_that_cannot_say_where_it_is_is_named(
    cuda: Any, raised: type[Exception], planned: Any
) -> None:
    asked: list[None] = []

    def fail() -> None:
        asked.append(None)
        raise raised("gone")

    with pytest.raises(raised, match=r"^gone\nat x\[1\]$"):
        convert([cuda.array([1.0]), Odd(cuda.array([1.0]), fail)], "stand_in")
    assert (planned, len(asked)) == ([], 1)


def test_a_tree_keeps_its_arrays_alive_and_no_longer(cuda: Any, producer: Any) -> None:
    x = made_on(cuda, producer)
    gone = weakref.ref(x)
    made = convert({"a": [x, (x, x)]}, "stand_in")
    del x
    assert gone() is not None
    del made
    cuda.synchronize()
    convert([None], "stand_in")
    assert gone() is None


def test_a_tree_that_is_taken_apart_reads_nothing_of_a_view(cuda: Any) -> None:
    x = cuda.array([1.0] * 4, speaks="cai3", stream=cuda.stream("producer's"))
    view = from_cai(x)
    convert([view], "cai", stream=-1)
    cuda.clear_calls()
    # As a reader would, one on the legacy stream would bar this end.
    with cuda.capture(cuda.stream("captured", blocking=True)):
        view.release()
    assert not {call.call for call in cuda.calls} & {"cuEventRecord", "cuModuleUnload"}
    cuda.synchronize()
