"""The legacy default stream stands for blocking streams on both sides, as Numba's and CuPy's are.

A blocking stream follows what is queued on the legacy one, and nothing that this one would follow.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from scenes import done
from stand_in import StandIn

from cai_bridge import adapt, convert


class NumbaLike(StandIn):
    """As Numba: its default stream is the legacy one, and each kernel may name a blocking one."""

    _streams_by_call = True


def by_adapt_to_cai(x: Any, numba: StandIn, work: Any, kept: list[Any] | None = None) -> Any:
    """The function reads the dict, and says no stream; it may keep the view, which ends later."""

    def read(view: Any) -> Any:
        if kept is not None:
            kept.append(view)
        assert view.__cuda_array_interface__["stream"] == 1
        return work(view)

    return adapt(read)(x)


def by_adapt_and_kept(x: Any, numba: StandIn, work: Any) -> Any:
    kept: list[Any] = []
    result = by_adapt_to_cai(x, numba, work, kept)
    # No end of the view's own comes between: the next call begins before it.
    weakref.finalize(x, kept.clear)
    return result


BY = {
    "convert": lambda x, numba, work: work(convert(x, numba).view),
    "adapt": lambda x, numba, work: adapt(lambda made: work(made.view), to=numba)(x),
    "adapt to the dict": by_adapt_to_cai,
    "adapt, and kept": by_adapt_and_kept,
}


@pytest.mark.parametrize("speaks", ["exchange", "cai3", "dlpack"])
@pytest.mark.parametrize("by", BY)
def test_a_stream_of_the_consumers_follows_another_one_that_had_the_array_before(
    by: str, speaks: str, cuda: Any
) -> None:
    """Its library, on the legacy stream, queues nothing in between that these two would follow."""
    numba = NumbaLike({0: cuda.legacy})
    one, other = cuda.stream("one", blocking=True), cuda.stream("other", blocking=True)
    x = cuda.array([1.0] * 4, speaks=speaks, stream=cuda.legacy, name="x")
    BY[by](x, numba, lambda view: one.fill(view, 2.0, name="the write") and None)
    gc.collect()
    seen = BY[by](x, numba, lambda view: other.read(view, name="the read"))
    assert done(seen) == [2.0] * 4
