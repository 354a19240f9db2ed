"""Garbage cycles that lead to a view and to its stream: no destroyed stream is used."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from scenes import done

from cai_bridge import from_cai, to_cai, to_dlpack
from cai_bridge.testing import SimulatedError


class Node:
    """Part of a cycle, with what it leads to. What is made first is taken apart first."""

    def __init__(self) -> None:
        self.me = self


class Stream:
    def __init__(self, stream: Any) -> None:
        self.handle, self.destroy = stream.handle, stream.destroy

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class Finalized(Stream):
    """Destroys its stream by `weakref.finalize`, as Numba's streams do."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        weakref.finalize(self, stream.destroy)


class Deleted(Stream):
    """Destroys its stream in its own `__del__`."""

    def __del__(self) -> None:
        self.destroy()


class Around(Stream):
    """Has an object which destroys the stream with its own end."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.inner = Deleted(stream)


def read(x: Any, stream: Any) -> Any:
    view = to_cai(x, stream=stream)
    _ = view.__cuda_array_interface__
    return view


VIEWS = {
    "to_cai": to_cai,
    "to_cai, read": read,
    "from_cai": from_cai,
    "to_dlpack": to_dlpack,
    "a view of a view": lambda x, stream: to_dlpack(to_cai(x, stream=stream)),
}


@pytest.mark.parametrize("first", ["view", "stream"])
@pytest.mark.parametrize("make", VIEWS)
@pytest.mark.parametrize("owner", [Finalized, Around, Deleted])
def test_a_stream_that_is_garbage_is_not_used(owner: Any, make: str, first: str, cuda: Any) -> None:
    x = cuda.array([1.0] * 4, speaks="cai3" if make == "from_cai" else "exchange")
    raw, cycle = cuda.stream("s"), Node()
    stream = owner(raw)
    view = VIEWS[make](x, stream=stream)
    vars(cycle).update({first: None, "view": view, "stream": stream})
    del stream, view, cycle
    gc.collect()
    assert cuda.reports == []
    with pytest.raises(SimulatedError, match="destroyed before"):
        raw.destroy()


class Plain:
    """A class that owns memory by an attribute, without a finalizer."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.memory.__cuda_array_interface__


@pytest.mark.parametrize("owner", [Plain, lambda memory: memory], ids=["plain", "itself"])
@pytest.mark.parametrize("speaks", ["cai3", "cai2"])
@pytest.mark.parametrize("owner_first", [True, False])
@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
def test_memory_that_is_garbage_itself_goes_back_after_the_consumers_work(
    owner: Any, speaks: str, owner_first: bool, cuda: Any
) -> None:
    producer, consumer = cuda.stream("producer's"), cuda.stream("consumer's")
    made: list[Any] = [None if owner_first else Node()]
    x = owner(cuda.array([0.0] * 4, speaks=speaks, stream=producer, memory="pool", name="x"))
    node: Any = made.pop() or Node()
    node.view = to_cai(x, stream=consumer)
    consumer.fill(node.view, 4.0)
    del x, node
    gc.collect()
    again = cuda.array([1.0] * 4, speaks="cai3", stream=producer, memory="pool", name="y")
    assert done(producer.read(again)) == [1.0] * 4
