"""Streams that are gone by the time the memory goes back, or whose handle another one has by then.

None of them is touched, or taken for the one before. A real driver dies of the touch (SIGSEGV); the
simulated device reports it, which fails the test.
"""

from __future__ import annotations

import gc
import logging
import weakref
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from fakes import Closing, only_cai
from moving import host_waits
from scenes import done
from tests.soak.device.foreign import external

from another_thread import in_another_thread
from cai_bridge import DriverError, adapt, from_cai, to_cai, to_dlpack
from cai_bridge.testing import SimulatedError


class ExternalStream:
    """An object around somebody else's handle, by the name that two libraries give it."""

    def __init__(self, stream: Any, **said: Any) -> None:
        self.handle = stream.handle
        vars(self).update(said)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)

    def _fails(self) -> Any:
        raise ValueError


def around(name: str, module: str = "elsewhere", **said: Any) -> Any:
    """What a library makes of a handle: a class of its name, with what it says of the stream."""
    return lambda stream: type(name, (ExternalStream,), {"__module__": module})(stream, **said)


def cupys(stream: Any, foreign: Any = lambda stream: stream) -> Any:
    """What `cupy.cuda.Stream.from_external` makes of a stream object, or of a bare one."""
    made = around("Stream", "cupy.cuda.stream", _foreign_stream_ref=foreign(stream))
    return made(stream)


bare = around("CUstream", "cuda.bindings.driver")
# How objects are known that keep no stream alive.
KEEPING_NOTHING = {
    "by its name": ExternalStream,
    "by a flag": around("Flagged", external=True),
    "by an id": lambda stream: around("Torchs", stream_id=stream.handle)(stream),
    "without an owner": around("Unowned", owner=False),
    "cuda.bindings'": bare,
    "CuPy's of an object": cupys,
    "CuPy's of a bare one": partial(cupys, foreign=bare),
    "failing to say its id": type(
        "Named", (ExternalStream,), {"stream_id": property(ExternalStream._fails)}
    ),
    "failing to say its flag": type(
        "Named", (ExternalStream,), {"external": property(ExternalStream._fails)}
    ),
}
KINDS = pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])


def producer(cuda: Any, speaks: Any, stream: Any) -> Any:
    return cuda.array([1.0] * 4, speaks=speaks, memory="pool", stream=stream, name="x")


@KINDS
@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
@pytest.mark.parametrize("how", KEEPING_NOTHING)
def test_a_consumers_object_that_keeps_nothing_alive(how, blocking, cuda):
    home, stream = cuda.stream("home"), cuda.stream("consumer", blocking=blocking)
    array, named = producer(cuda, "cai3", home), KEEPING_NOTHING[how](stream)
    views = [to_cai(array, stream=named), from_cai(array).__dlpack__(stream=named)]
    cuda.synchronize()
    stream.destroy()
    views.clear()
    gc.collect()
    cuda.synchronize()


@KINDS
@pytest.mark.parametrize("to", ["its own GPU", "another GPU", "the CPU"])
def test_a_copy_of_what_a_closed_object_names(to, blocking, cuda, caplog):
    home = Closing(cuda.stream("home", blocking=blocking))
    array = cuda.array([1.0] * 4, speaks=(), name="x")
    home.stream.fill(array, 7.0)
    view = from_cai(only_cai(array), stream=home)
    home.close()
    if to == "the CPU":
        assert np.from_dlpack(view, device="cpu").tolist() == [7.0] * 4
    else:
        reader = cuda.stream("reader", device=int(to == "another GPU"))
        device = (2, reader.device)
        copy = view.__dlpack__(stream=reader, dl_device=device, copy=True, max_version=(1, 3))
        assert done(reader.read(to_cai(copy, stream=reader))) == [7.0] * 4
    assert "the array's stream may be destroyed" in caplog.text


NAMED = {
    "by the exchange API": lambda x, home: to_cai(x),
    "declared": lambda x, home: to_cai(from_cai(only_cai(x), stream=home.handle)),
    "declared for a view": lambda x, home: to_cai(
        from_cai(to_cai(only_cai(x)), stream=home.handle)
    ),
    "by a bare dict": lambda x, home: to_cai(
        from_cai(dict(x.__cuda_array_interface__), owner=only_cai(x))
    ),
}


@KINDS
@pytest.mark.parametrize("way", NAMED)
def test_a_dict_names_no_stream_that_nothing_keeps_alive(way, blocking, cuda):
    home, consumer = cuda.stream("home", blocking=blocking), cuda.stream("consumer")
    array = producer(cuda, "exchange" if way == "by the exchange API" else "cai3", home)
    with cuda.current_stream(external(home)):
        view = NAMED[way](array, home)
    home.destroy()
    seen = cuda.consumer("cai-waits", consumer).read(view)
    view.release()
    assert view.stream == 1
    assert done(seen) == [1.0] * 4


def test_for_a_bare_handle_that_nobody_keeps_the_host_waits_and_says_how_to_avoid_it(cuda, caplog):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = producer(cuda, "cai3", home)
    for _ in range(3):
        view = to_cai(array, stream=consumer.handle)
        seen = consumer.read(view)
        cuda.clear_calls()
        del view
        home.fill(array, 1.0)
        assert host_waits(cuda) == 1
        assert done(seen) == [1.0] * 4
    (record,) = [one for one in caplog.records if getattr(one, "order", "") == "impossible"]
    assert (record.levelname, record.consumer) == ("WARNING", consumer.handle)
    assert record.line.startswith(__file__)
    assert "release(stream)" in record.getMessage()
    # The way out, while the handle is good: release is told, and uses it in the call itself.
    caplog.clear()
    view = to_cai(array, stream=consumer.handle)
    seen = consumer.read(view)
    view.release(consumer.handle)
    home.fill(array, 2.0)
    assert done(seen) == [1.0] * 4
    assert caplog.records == []


def test_a_line_that_was_not_warned_of_is_warned_of_later(cuda, caplog, traced):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = producer(cuda, "cai3", home)
    found = []
    for level, told in ((logging.ERROR, False), (logging.ERROR, True), (logging.WARNING, True)):
        caplog.set_level(level, logger="cai_bridge")
        with traced() if told else nullcontext():
            view = to_cai(array, stream=consumer.handle)
            consumer.read(view)
            view.release()
        found.append([one.levelname for one in caplog.records if hasattr(one, "line")])
    assert found == [[], [], ["WARNING"]]


class Pooled:
    """An object that its pool takes back in `__del__`, which Python calls once in its life."""

    pool: ClassVar[list[Any]] = []

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.inner.__cuda_array_interface__

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.inner.handle)

    def __del__(self) -> None:
        self.pool.append(self)


@pytest.mark.parametrize("which", ["producer", "consumer's stream"])
def test_an_object_from_a_pool_vouches_for_its_stream(which, cuda):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = producer(cuda, "cai3", home)
    Pooled(array if which == "producer" else consumer)
    pooled = Pooled.pool.pop()
    x, stream = (pooled, consumer) if which == "producer" else (array, pooled)
    view = to_cai(x, stream=stream)
    seen = consumer.read(view)
    view.release()
    assert host_waits(cuda) == 0
    home.fill(array, 2.0)
    assert done(seen) == [1.0] * 4


# Handles that the driver gives to another stream at once. Of each stream it has a number, which no
# other stream has (`cuStreamGetId`).


def again(cuda: Any, stream: Any) -> Any:
    """Destroy a stream; the next one is given its handle."""
    stream.destroy()
    return cuda.stream("another", handle_of=stream)


def test_another_stream_of_a_handle_is_not_the_producers(cuda):
    named, mine = Closing(cuda.stream("the producer's")), cuda.stream("mine")
    x = cuda.array([0.0] * 4, speaks=(), name="x")
    named.stream.fill(x, 7.0, name="the write")
    view = from_cai(only_cai(x), stream=named)
    named.stream = again(cuda, named.stream)
    assert done(mine.read(to_cai(view, stream=mine))) == [7.0] * 4


@pytest.mark.parametrize("named", ["handle", "object"])
def test_a_captured_stream_with_the_consumers_handle_is_not_the_consumer(named, cuda):
    """Its number cannot be asked, so the host waits."""
    home, stream = cuda.stream("home"), cuda.stream("the consumer's")
    x, closing = producer(cuda, "cai3", home), Closing(stream)
    view = to_cai(x, stream=stream.handle if named == "handle" else closing)
    seen = stream.read(view)
    closing.close()
    other = again(cuda, stream)
    cuda.clear_calls()
    with cuda.capture(other) as graph, cuda.current_stream(other):
        del view
        assert host_waits(cuda) == 1
    home.fill(x, 9.0)
    assert done(seen) == [1.0] * 4
    graph.launch(other)


@pytest.mark.parametrize("named", ["handle", "object"])
@pytest.mark.parametrize("between", [False, True])
def test_uses_of_two_streams_with_one_handle_are_two(named, between, cuda):
    """Of a call's array, at the end of the call, in whatever order they are noted there."""
    home = cuda.stream("home")
    x = producer(cuda, "cai3", home)
    seen, kept = list[Any](), list[Any]()

    def function(array: Any) -> None:
        # What is released meanwhile leaves its place to the last.
        first = to_cai(array, stream=-1) if between else None
        stream = cuda.stream("first")
        for _ in range(2):
            said = Closing(stream)
            view = to_cai(array, stream=stream.handle if named == "handle" else said)
            seen.append(stream.read(view, name="a read"))
            kept.extend([view, said, stream])
            if len(seen) == 1:
                said.close()
                stream = again(cuda, stream)
        if first is not None:
            first.release()

    adapt(function, to="cai")(x)
    home.fill(x, 9.0, name="the producer's next write")
    assert [done(one) for one in seen] == [[1.0] * 4] * 2
    kept.clear()


@pytest.mark.parametrize("also", ["cuStreamGetId", "cuCtxGetId"])
def test_an_end_that_cannot_ask_knows_the_libraries_streams_when_it_is_tried_again(also, cuda):
    home, other = cuda.stream("home"), cuda.stream("a library's")
    x = producer(cuda, "cai3", home)
    view = to_cai(x)
    assert view.__cuda_array_interface__["stream"] == home.handle
    other.wait(home.record())
    seen = other.read(view, name="the read")
    with cuda.current_stream(other):
        for nth in range(1, 9):
            cuda.fail(also, nth)
        cuda.fail("cuEventRecord", 1)
        with pytest.raises(DriverError):
            view.release()
        cuda.clear_faults()
    in_another_thread(view.release)
    home.fill(x, 9.0, name="the producer's next write")
    assert done(seen) == [1.0] * 4


class Node:
    """Part of a cycle, with what it leads to. What is made first is taken apart first."""

    def __init__(self) -> None:
        self.me = self


class Deleted(ExternalStream):
    """Destroys its stream in its own `__del__`."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream, destroy=stream.destroy)

    def __del__(self) -> None:
        self.destroy()


def finalized(stream: Any) -> Any:
    """Destroys its stream by `weakref.finalize`, as Numba's streams do."""
    made = around("Finalized")(stream)
    weakref.finalize(made, stream.destroy)
    return made


def having_one(stream: Any) -> Any:
    """Has an object which destroys the stream with its own end."""
    return around("Around", inner=Deleted(stream))(stream)


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
@pytest.mark.parametrize("owner", [finalized, having_one, Deleted])
def test_a_stream_that_is_garbage_is_not_used(owner, make, first, cuda):
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
    owner, speaks, owner_first, cuda
):
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
