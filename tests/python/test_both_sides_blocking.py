"""The legacy default stream stands for blocking streams on both sides, as Numba's and CuPy's are.

A blocking stream follows what is queued on the legacy one, and nothing that this one would follow.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from stand_in import StandIn

from cai_bridge import adapt, convert


class NumbaLike(StandIn):
    """As Numba: its default stream is the legacy one, and each kernel may name a blocking one."""

    _streams_by_call = True


@pytest.fixture
def numba(cuda: Any) -> StandIn:
    return NumbaLike({0: cuda.legacy})


def by_convert(x: Any, numba: StandIn, work: Any) -> Any:
    return work(convert(x, numba))


def by_adapt(x: Any, numba: StandIn, work: Any) -> Any:
    return adapt(work, to=numba)(x)


def by_adapt_to_cai(x: Any, numba: StandIn, work: Any) -> Any:
    """The function reads the dict, and says no stream."""

    def read(view: Any) -> Any:
        assert view.__cuda_array_interface__["stream"] == 1
        return work(Made(view))

    return adapt(read)(x)


def by_adapt_and_kept(x: Any, numba: StandIn, work: Any) -> Any:
    """The same where the function keeps the view, which ends later."""
    kept: list[Any] = []

    def read(view: Any) -> Any:
        kept.append(view)
        assert view.__cuda_array_interface__["stream"] == 1
        return work(Made(view))

    result = adapt(read)(x)
    # No end of the view's own comes between: the next call begins before it.
    weakref.finalize(x, kept.clear)
    return result


class Made:
    def __init__(self, view: Any) -> None:
        self.view = view


BY = [by_convert, by_adapt, by_adapt_to_cai, by_adapt_and_kept]


def used_on_two_streams(cuda: Any, numba: StandIn, by: Any, speaks: Any) -> tuple[Any, Any]:
    """Write an array on one stream of Numba's, and read it on another.

    Its library, on the legacy stream, queues nothing in between that these two would follow.
    """
    one, other = cuda.stream("one", blocking=True), cuda.stream("other", blocking=True)
    x = cuda.array([1.0] * 4, speaks=speaks, stream=cuda.legacy, name="x")
    by(x, numba, lambda made: one.fill(made.view, 2.0, name="the write") and None)
    gc.collect()
    return x, by(x, numba, lambda made: other.read(made.view, name="the read"))


@pytest.mark.parametrize("speaks", ["exchange", "cai3", "dlpack"])
@pytest.mark.parametrize("by", BY)
def test_a_stream_of_the_consumers_follows_another_one_that_had_the_array_before(
    by: Any, speaks: str, numba: StandIn, cuda: Any
) -> None:
    _held, seen = used_on_two_streams(cuda, numba, by, speaks)
    cuda.synchronize()
    assert (seen.value, cuda.reports) == ([2.0] * 4, [])
