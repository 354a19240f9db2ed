"""Garbage cycles that lead to a view and to its stream: no destroyed stream is used."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from cai_bridge import from_cai, to_cai, to_dlpack
from cai_bridge.testing import SimulatedError


class Finalized:
    """Destroys its stream by `weakref.finalize`, as Numba's streams do."""

    def __init__(self, stream: Any) -> None:
        self.handle = stream.handle
        weakref.finalize(self, stream.destroy)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class Around:
    """Has an object which destroys the stream with its own end."""

    def __init__(self, stream: Any) -> None:
        self.inner = Inner(stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.inner.handle)


class Inner:
    def __init__(self, stream: Any) -> None:
        self.handle, self.destroy = stream.handle, stream.destroy

    def __del__(self) -> None:
        self.destroy()


class Deleted(Inner):
    """Destroys its stream in its own `__del__`."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class Cycle:
    """Leads to itself, and to whatever else it has. What is made first is taken apart first."""

    def __init__(self) -> None:
        self.me = self


def to_cai_read(x: Any, stream: Any) -> Any:
    view = to_cai(x, stream=stream)
    _ = view.__cuda_array_interface__
    return view


VIEWS = {
    "to_cai": lambda x, stream: to_cai(x, stream=stream),
    "to_cai, read": to_cai_read,
    "from_cai": lambda x, stream: from_cai(x, stream=stream),
    "to_dlpack": lambda x, stream: to_dlpack(x, stream=stream),
    "a view of a view": lambda x, stream: to_dlpack(to_cai(x, stream=stream)),
}
OWNERS = [Finalized, Around, Deleted]


@pytest.mark.parametrize("first", ["view", "stream"])
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("owner", OWNERS)
def test_a_stream_that_is_garbage_is_not_used(owner: Any, make: Any, first: str, cuda: Any) -> None:
    speaks = "cai3" if make is VIEWS["from_cai"] else "exchange"
    x = cuda.array([1.0] * 4, speaks=speaks)
    raw = cuda.stream("s")
    cycle = Cycle()
    stream = owner(raw)
    view = make(x, stream)
    if first == "view":
        cycle.view, cycle.stream = view, stream
    else:
        cycle.stream, cycle.view = stream, view
    del stream, view, cycle
    gc.collect()
    assert cuda.reports == []
    with pytest.raises(SimulatedError, match="destroyed before"):
        raw.destroy()


class Node:
    """Part of a cycle."""


class Plain:
    """A class that owns memory by an attribute, without a finalizer."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.memory.__cuda_array_interface__  # type: ignore[no-any-return]


@pytest.mark.parametrize("owner", [Plain, None], ids=["plain", "itself"])
@pytest.mark.parametrize("speaks", ["cai3", "cai2"])
@pytest.mark.parametrize("owner_first", [True, False])
@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
def test_memory_that_is_garbage_itself_goes_back_after_the_consumers_work(
    owner: Any, speaks: str, owner_first: bool, cuda: Any
) -> None:
    producer, consumer = cuda.stream("producer's"), cuda.stream("consumer's")

    def make() -> Any:
        memory = cuda.array([0.0] * 4, speaks=speaks, stream=producer, memory="pool", name="x")
        return owner(memory) if owner else memory

    x = make() if owner_first else None
    node: Any = Node()
    node.me = node
    node.view = to_cai(make() if x is None else x, stream=consumer)
    del x
    consumer.fill(node.view, 4.0)
    del node
    gc.collect()
    again = cuda.array([1.0] * 4, speaks="cai3", stream=producer, memory="pool", name="y")
    read = producer.read(again)
    cuda.synchronize()
    assert read.value == [1.0] * 4
