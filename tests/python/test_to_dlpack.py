"""`to_dlpack`: the DLPack view of an array that speaks either protocol."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import StreamObject, only_cai
from stand_in import made_on, producer

from cai_bridge import (
    DLPackView,
    to_dlpack,
)

__all__ = ["producer"]


# Those that name the stream that is to wait at the end; ``__dlpack__`` names none.
NAME = ["exchange", "cai3", ("exchange", "cai2")]


@pytest.mark.parametrize("speaks", NAME)
def test_to_dlpack_takes_either_protocol_in_order(cuda: Any, producer: Any, speaks: Any) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer, 7.0, speaks)
    view = to_dlpack(x, stream=mine)
    assert (type(view), view.ptr, view.stream, view.owner) == (DLPackView, x.ptr, mine.handle, x)
    seen = mine.read(view)
    view.release()
    producer.fill(x, 9.0)
    cuda.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
def test_to_dlpacks_view_is_ordered_for_whoever_asks(cuda: Any, producer: Any, speaks: Any) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    consumer = cuda.consumer("dlpack", cuda.stream("mine"))
    seen = consumer.read(to_dlpack(x))
    cuda.synchronize()
    assert seen.value == [7.0] * 4


def test_to_dlpack_minds_read_only_memory(cuda: Any) -> None:
    x = cuda.array([1.0], readonly=True)
    assert to_dlpack(x).readonly
    assert not to_dlpack(x, readonly=False).readonly
    assert to_dlpack(only_cai(cuda.array(shape=4)), readonly=True).readonly


def test_to_dlpack_refuses_a_stream_that_is_none(cuda: Any) -> None:
    with pytest.raises(ValueError, match=r"^stream: got .+; allowed: "):
        to_dlpack(cuda.array([1.0]), stream=0)
    with pytest.raises((TypeError, ValueError), match=r": got .+; allowed: "):
        to_dlpack(cuda.array([1.0]), stream=StreamObject((0,)))
