"""Objects that Python has ended or a pool took back: which of them vouches for its stream."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from stream_objects import ended, producer

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
