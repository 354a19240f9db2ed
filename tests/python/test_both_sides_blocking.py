"""The legacy default stream stands for blocking streams on both sides, as Numba's and CuPy's are.

A blocking stream follows what is queued on the legacy one, and nothing that this one would follow.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from fakes import only_cai
from stand_in import StandIn

from cai_bridge import adapt, convert, from_cai, to_cai

tvm_ffi = pytest.importorskip("tvm_ffi")


class Named:
    """A producer who is known by its dict and a bare handle alone."""

    @staticmethod
    def by_dict(x: Any, stream: Any) -> Any:
        return from_cai(x.__cuda_array_interface__, owner=x)

    @staticmethod
    def by_handle(x: Any, stream: Any) -> Any:
        return from_cai(x, stream=stream.handle)

    @staticmethod
    def by_itself(x: Any, stream: Any) -> Any:
        return x


class NumbaLike(StandIn):
    """As Numba: its default stream is the legacy one, and each kernel may name a blocking one."""

    _streams_by_call = True


@pytest.fixture
def numba(cuda: Any) -> StandIn:
    return NumbaLike({0: cuda.legacy})


@pytest.mark.parametrize("named", [Named.by_dict, Named.by_handle, Named.by_itself])
def test_the_producers_next_write_follows_a_read_on_the_consumers_blocking_stream(
    named: Any, numba: StandIn, cuda: Any
) -> None:
    theirs, mine = cuda.stream("theirs", blocking=True), cuda.stream("mine", blocking=True)
    x = cuda.array([0.0] * 4, speaks="cai3", stream=theirs)
    theirs.fill(x, 1.0)
    made = convert(named(x, theirs), numba)
    seen = mine.read(made.view)
    del made
    gc.collect()
    theirs.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert (seen.value, cuda.reports) == ([1.0] * 4, [])


def by_tvm_ffi(view: Any) -> Any:
    return tvm_ffi.from_dlpack(view)


def by_a_capsule(view: Any) -> Any:
    return view.__dlpack__(stream=1)


def by_a_dict(view: Any) -> Any:
    return only_cai(to_cai(view, stream=1))


@pytest.mark.parametrize("passed_on", [by_tvm_ffi, by_a_capsule, by_a_dict])
@pytest.mark.parametrize("kind", ["blocking", "per-thread"])
def test_what_is_ready_on_the_legacy_stream_is_so_for_whom_it_is_passed_on_to(
    passed_on: Any, kind: str, numba: StandIn, cuda: Any
) -> None:
    theirs = cuda.stream("theirs", blocking=True) if kind == "blocking" else cuda.per_thread
    mine = cuda.stream("mine", blocking=True)
    x = cuda.array([0.0] * 4, speaks="cai3", stream=theirs)
    theirs.fill(x, 1.0)
    made = convert(passed_on(from_cai(x)), numba)
    seen = mine.read(made.view)
    cuda.synchronize()
    assert (seen.value, cuda.reports) == ([1.0] * 4, [])


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


@pytest.mark.unchecked
@pytest.mark.parametrize("by", BY)
def test_the_event_at_the_end_is_needed_for_that(by: Any, numba: StandIn, cuda: Any) -> None:
    # To record it is enough: blocking streams follow what is queued on the legacy one.
    cuda.suppress("cuEventRecord")
    _held = used_on_two_streams(cuda, numba, by, "exchange")
    cuda.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"]


@pytest.mark.parametrize("captured", ["the consumer's stream", "another one"])
@pytest.mark.parametrize("by", BY)
def test_beside_a_capture_of_a_blocking_stream_that_event_is_left_out(
    by: Any, captured: str, numba: StandIn, cuda: Any
) -> None:
    """Nothing may be queued on the legacy stream then. Capture and program go on."""
    one, other = cuda.stream("one", blocking=True), cuda.stream("other", blocking=True)
    x = cuda.array([1.0] * 4, speaks="exchange", stream=cuda.legacy, name="x")
    cuda.synchronize()
    with cuda.capture(one) as graph:
        on = one if captured == "the consumer's stream" else other
        by(x, numba, lambda made: on.fill(made.view, 2.0, name="the write") and None)
        gc.collect()
    if captured == "the consumer's stream":
        graph.launch(one)
    cuda.synchronize()
    assert cuda.read(x) == [2.0] * 4


def test_a_consumer_that_names_the_legacy_stream_itself_needs_no_event(
    numba: StandIn, cuda: Any
) -> None:
    x = cuda.array([1.0] * 4, speaks="exchange", stream=cuda.legacy, name="x")
    cuda.clear_calls()
    convert(x, numba, stream=cuda.legacy).view.release()
    assert "cuEventRecord" not in [call.call for call in cuda.calls]
    cuda.synchronize()
