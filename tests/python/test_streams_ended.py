"""Objects that Python has ended or a pool took back: which of them vouches for its stream."""

from __future__ import annotations

import gc
import weakref
from typing import Any, ClassVar

import pytest
from stream_objects import KINDS, ended, producer

from cai_bridge import from_cai, to_cai


class Pooled:
    """An object that its pool takes back in `__del__`, which Python calls once in its life."""

    pool: ClassVar[list[Any]] = []

    def __del__(self) -> None:
        self.pool.append(self)

    @classmethod
    def again(cls, *given: Any) -> Any:
        """One that was in the pool."""
        cls(*given)
        return cls.pool.pop()


class PooledBuffer(Pooled):
    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


class PooledStream(Pooled):
    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.stream.handle)


@pytest.mark.parametrize("which", ["producer", "consumer's stream"])
def test_an_object_from_a_pool_vouches_for_its_stream(which, cuda):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = producer(cuda, "cai3", home)
    if which == "producer":
        view = from_cai(PooledBuffer.again(array))
        seen = cuda.consumer("dlpack", consumer).read(view)
        seen.release()
    else:
        view = to_cai(array, stream=PooledStream.again(consumer))
        seen = consumer.read(view)
    view.release()
    assert "cuModuleUnload" not in {call.call for call in cuda.calls}
    home.fill(array, 2.0)
    ended(cuda)
    assert seen.value == [1.0] * 4


def test_an_object_from_a_pool_that_the_garbage_collector_ends_is_not_asked(cuda):
    class Cycle:
        pass

    home, cycle = cuda.stream("home"), Cycle()
    array, stream = producer(cuda, "cai3", home), PooledStream.again(cuda.stream("consumer"))
    held = stream.stream
    weakref.finalize(stream, held.destroy)
    cycle.self, cycle.stream, cycle.view = cycle, stream, to_cai(array, stream=stream)
    cuda.synchronize()
    del stream, cycle
    gc.collect()
    assert held._destroyed
    cuda.synchronize()


class Finalized:
    """A stream object that destroys its stream in `__del__`, and still tells its handle then."""

    def __init__(self, cuda: Any, *, blocking: bool) -> None:
        self.session = cuda._session
        self.handle = self.session.create_stream(0, blocking)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)

    def __del__(self) -> None:
        self.session.destroy_stream(self.handle)


@KINDS
@pytest.mark.parametrize("door", ["dict", "capsule"])
def test_an_object_that_the_garbage_collector_has_ended_is_not_asked(door, blocking, cuda):
    class Cycle:
        pass

    home, cycle = cuda.stream("home"), Cycle()
    array = producer(cuda, "cai3", home)
    stream = Finalized(cuda, blocking=blocking)
    cycle.self = cycle
    if door == "dict":
        cycle.view = to_cai(array, stream=stream)
    else:
        cycle.view = from_cai(array).__dlpack__(stream=stream)
    cycle.stream = stream
    cuda.synchronize()
    del stream, cycle
    gc.collect()
    cuda.synchronize()


@KINDS
def test_an_exporter_that_is_garbage_as_well_vouches_for_nothing(blocking, cuda):
    class Exporter:
        """Keeps the stream alive that its dict names, as the specification says."""

        def __init__(self, array: Any, stream: Any) -> None:
            self.array, self.stream = array, stream

        @property
        def __cuda_array_interface__(self) -> Any:
            return dict(self.array.__cuda_array_interface__, stream=self.stream.handle)

    array = cuda.array([1.0] * 4, speaks="cai3", name="x")
    consumer = cuda.stream("consumer")
    exporter = Exporter(array, Finalized(cuda, blocking=blocking))
    exporter.view = to_cai(exporter, stream=consumer)
    seen = consumer.read(exporter.view)
    del exporter
    gc.collect()
    cuda.synchronize()
    assert seen.value == [1.0] * 4
