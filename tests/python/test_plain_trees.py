"""Lists, tuples and dicts are taken apart without a call of Python's for each part.

What else is no array is shown to the Python that knows all containers, each object once.
"""

import signal
import time
import types
from collections import UserList, namedtuple

import numpy as np
import pytest
import tvm_ffi
from fakes import only_cai
from stand_in import Array, Odd, StandIn, library, no_libraries, producer

from cai_bridge import DLPackView, _containers, adapt, convert, from_cai, register, to_dlpack

__all__ = ["library", "no_libraries", "producer"]

CAPSULE = type(DLPackView.__dlpack_c_exchange_api__)


@pytest.fixture(autouse=True)
def planned(library, monkeypatch):
    """The parts that Python is shown."""
    seen = []
    parts_of = _containers.parts_of
    monkeypatch.setattr(_containers, "parts_of", lambda x: seen.append(x) or parts_of(x))
    return seen


def nested(x, depth, around=lambda x: [x]):
    for _ in range(depth):
        x = around(x)
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
def test_plain_trees_are_not_taken_apart_by_python(cuda, tree, planned):
    x = cuda.array([1.0])
    given = tree(x)
    made = convert(given, "stand_in")
    assert planned == []
    assert shape(made) == shape(given)


def shape(x):
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


OTHERS = [
    lambda part: [1, part],
    lambda part: nested(part, 17),
    lambda part: {"a": part, "b": (2,)},
]


@pytest.mark.parametrize("tree", OTHERS, ids=range(len(OTHERS)))
@pytest.mark.parametrize("kind", [object, type("Items", (list,), {})])
def test_python_is_shown_each_other_object_once(cuda, tree, kind, planned):
    part, given = kind(), [cuda.array([1.0])]
    given.append(tree(part))
    made = convert(given, "stand_in")
    assert len(planned) == 1
    assert planned[0] is part
    assert made[1] is given[1]


def test_an_array_on_the_host_that_says_so_as_it_is_taken_stays(cuda, planned):
    x, host = cuda.array([1.0]), tvm_ffi.from_dlpack(np.ones(2))
    made = convert({"a": [x, host], "b": host}, "stand_in")
    assert type(made["a"][0]) is Array
    assert (made["a"][1] is host, made["b"] is host, planned) == (True, True, [])


@pytest.mark.parametrize(
    "tree", [list, lambda xs: {0: xs}, lambda xs: types.MappingProxyType({0: xs})]
)
def test_where_a_batch_had_arrays_on_the_host_those_of_the_next_are_asked(cuda, library, tree):
    class Counted(Odd):
        def __dlpack__(self, **asked):
            times.append(None)
            return super().__dlpack__(**asked)

    def taken(*xs):
        """How often an array is taken in."""
        times.clear()
        convert(tree(xs), "stand_in")
        return len(times)

    times = []
    x, host = Counted(cuda.array([1.0]), lambda: None), tvm_ffi.from_dlpack(np.ones(2))
    assert [taken(x, host), taken(x, host), taken(x), taken(x), taken(x, host)] == [2, 1, 1, 1, 2]


@pytest.mark.parametrize("change", ["clear", "more"])
@pytest.mark.parametrize("kind", [list, dict])
def test_a_container_that_changes_meanwhile_counts_as_it_was(cuda, kind, change):
    x = cuda.array([1.0])
    tree = kind()
    more = (lambda: tree.insert(0, "new")) if kind is list else (lambda: tree.update(new=1))
    parts = [Odd(x, tree.clear if change == "clear" else more), x, "z"]
    tree.extend(parts) if kind is list else tree.update(enumerate(parts))
    made = convert(tree, "stand_in")
    assert [type(one) for one in (made if kind is list else made.values())] == [Array, Array, str]


def test_a_container_in_itself_is_not_gone_through_again(cuda, planned):
    asked = []
    loops = [Odd(cuda.array([1.0]), lambda: asked.append(None))]
    loops += [loops] * 3
    with pytest.raises(ValueError, match=r"^x\[1\]: got x itself"):
        convert(loops, "stand_in")
    assert (planned, len(asked)) == ([], 2)


def test_a_container_in_itself_with_arrays_of_the_host_alone_stays(cuda):
    loop = [tvm_ffi.from_dlpack(np.ones(2))]
    loop.append(loop)
    made = convert([loop, cuda.array([1.0])], "stand_in")
    assert (made[0] is loop, type(made[1])) == (True, Array)


def test_lists_that_are_a_librarys_arrays_are_no_trees(cuda, library):
    class Lists(StandIn):
        name = "lists"
        arrays = ("builtins:list",)

    register(Lists(library.streams))
    x = [cuda.array([1.0])]
    assert convert(x, "lists") is x
    assert convert(x, "lists") is x


class Unshown(Exception):
    def __str__(self):
        raise OSError("cannot be shown")


class Answers(Exception):
    def __getattr__(self, name):
        return 0


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit, Unshown, Answers])
@pytest.mark.parametrize("member", ["__dlpack_device__", "__dlpack__"])
def test_an_exception_of_an_odd_kind_passes_through_as_it_is(cuda, member, raised):
    error = raised("said")

    def fail(*_, **asked):
        raise error

    odd = type("Odd", (Odd,), {member: fail})(cuda.array([1.0]), lambda: None)
    with pytest.raises(raised) as caught:
        convert([cuda.array([1.0]), odd], "stand_in")
    if not issubclass(raised, Exception):
        assert caught.value is error
        assert (error.args, vars(error), getattr(error, "__notes__", [])) == (("said",), {}, [])


@pytest.mark.parametrize("raised", [MemoryError, RecursionError, OSError])
def test_an_array_that_cannot_say_where_it_is_is_named(cuda, raised, planned):
    asked = []

    def fail():
        asked.append(None)
        raise raised("gone")

    with pytest.raises(raised, match=r"^gone\nat x\[1\]$"):
        convert([cuda.array([1.0]), Odd(cuda.array([1.0]), fail)], "stand_in")
    assert (planned, len(asked)) == ([], 1)


def test_a_tree_that_is_taken_apart_reads_nothing_of_a_view(cuda):
    x = cuda.array([1.0] * 4, speaks="cai3", stream=cuda.stream("producer's"))
    view = from_cai(x)
    convert([view], "cai", stream=-1)
    cuda.clear_calls()
    # As a reader would, one on the legacy stream would bar this end.
    with cuda.capture(cuda.stream("captured", blocking=True)):
        view.release()
    assert not {call.call for call in cuda.calls} & {"cuEventRecord", "cuModuleUnload"}
    cuda.synchronize()


# Trees whose parts are in several places, deep ones and wide ones: each part costs once.

Pair = namedtuple("Pair", "first second")
PAIRS = {
    "tuples": lambda x: (x, x),
    "lists": lambda x: [x, x],
    "dicts": lambda x: {"first": x, "second": x},
    "named tuples": lambda x: Pair(x, x),
    "a tuple in a list": lambda x: [(x,), x],
    "user lists": lambda x: UserList([x, x]),
}


def first(tree):
    while not isinstance(tree, DLPackView):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree


@pytest.mark.parametrize("kind", PAIRS)
def test_a_container_in_several_places_is_taken_apart_once(cuda, kind):
    x = cuda.array([1.0], speaks="dlpack")
    made = convert(nested([x], 60, PAIRS[kind]), "dlpack")
    assert first(made).ptr == x.ptr
    assert x.exports == 1, "each way to it was gone"


def test_what_is_one_container_is_one_afterwards(cuda):
    shared = [cuda.array([1.0], speaks="dlpack")]
    made = convert({"a": shared, "b": (1, shared), "c": [{"d": shared}]}, "dlpack")
    assert made["a"] is made["b"][1] is made["c"][0]["d"]
    assert made["a"] is not shared
    assert adapt(lambda x, y: x is y, to="dlpack")(shared, shared)


@pytest.mark.parametrize("kind", PAIRS)
def test_one_without_arrays_stays_what_it_is(cuda, kind):
    tree = nested([1], 60, PAIRS[kind])
    x = cuda.array([1.0], speaks="dlpack")
    assert convert([tree, x, tree], "dlpack")[0] is tree


def test_a_container_that_is_refused_is_named_where_it_was_met_first(cuda):
    shared = [only_cai(cuda.array([1.0]), typestr=">f4")]
    with pytest.raises(BufferError, match=r'^x\["a"\]\[0\]: '):
        convert({"a": shared, "b": shared}, "dlpack")


# Seconds, of a build that is not optimised: 0.1 is promised.
AT_ONCE = 0.3
ENDLESS = {
    "parts without arrays": lambda x: [x, [(0,) * 10**6 for _ in range(20)]],
    "arrays": lambda x: [x] * 10**6,
    "containers": lambda x: [[x] for _ in range(10**6)],
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_signal_ends_a_walk_at_once(cuda, kind):
    tree = ENDLESS[kind](cuda.array([1.0], speaks="dlpack"))

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        sent = time.perf_counter() + 0.02
        with pytest.raises(KeyboardInterrupt):
            convert(tree, "dlpack")
        assert time.perf_counter() - sent < AT_ONCE
    finally:
        signal.signal(signal.SIGALRM, before)
    assert cuda.reports == []
