"""Trees whose parts are in several places, deep ones and wide ones: each part costs once."""

from __future__ import annotations

import signal
import time
from collections import UserList, namedtuple
from typing import Any

import pytest
from fakes import only_cai
from stand_in import library, no_libraries, producer

from cai_bridge import DLPackView, adapt, convert

__all__ = ["library", "no_libraries", "producer"]

Pair = namedtuple("Pair", "first second")
PAIRS = {
    "tuples": lambda x: (x, x),
    "lists": lambda x: [x, x],
    "dicts": lambda x: {"first": x, "second": x},
    "named tuples": lambda x: Pair(x, x),
    "a tuple in a list": lambda x: [(x,), x],
    "user lists": lambda x: UserList([x, x]),
}
DEEP = 60


def pairs(kind: str, inner: Any) -> Any:
    """A tree of two to the 60 ways to `inner`."""
    for _ in range(DEEP):
        inner = PAIRS[kind](inner)
    return inner


def first(tree: Any) -> Any:
    while not isinstance(tree, DLPackView):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree


@pytest.mark.parametrize("kind", PAIRS)
def test_a_container_in_several_places_is_taken_apart_once(cuda: Any, kind: str) -> None:
    x = cuda.array([1.0], speaks="dlpack")
    made = convert(pairs(kind, [x]), "dlpack")
    assert first(made).ptr == x.ptr
    assert x.exports == 1, "each way to it was gone"


def test_what_is_one_container_is_one_afterwards(cuda: Any) -> None:
    shared = [cuda.array([1.0], speaks="dlpack")]
    made = convert({"a": shared, "b": (1, shared), "c": [{"d": shared}]}, "dlpack")
    assert made["a"] is made["b"][1] is made["c"][0]["d"]
    assert made["a"] is not shared


def test_what_is_one_container_of_two_arguments_is_one_for_the_call(cuda: Any) -> None:
    shared = [cuda.array([1.0], speaks="dlpack")]

    def same(x: Any, y: Any) -> bool:
        return x is y

    assert adapt(same, to="dlpack")(shared, shared)


@pytest.mark.parametrize("kind", PAIRS)
def test_one_without_arrays_stays_what_it_is(cuda: Any, kind: str) -> None:
    tree = pairs(kind, [1])
    x = cuda.array([1.0], speaks="dlpack")
    assert convert([tree, x, tree], "dlpack")[0] is tree


def test_a_container_that_is_refused_is_named_where_it_was_met_first(cuda: Any) -> None:
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
def test_a_signal_ends_a_walk_at_once(cuda: Any, kind: str) -> None:
    tree = ENDLESS[kind](cuda.array([1.0], speaks="dlpack"))

    def interrupt(*_: object) -> None:
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
