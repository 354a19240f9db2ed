"""Whoever reads a view's dict or address on a stream that nobody named, and what waits for it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from scenes import done

from cai_bridge import convert, from_cai, to_cai, to_dlpack
from soak.device.foreign import external

FOUR = [1.0] * 4


def host_waits(cuda: Any) -> int:
    return sum(call.call == "cuModuleUnload" for call in cuda.calls)


def producer(cuda: Any, **how: Any) -> tuple[Any, Any]:
    stream = cuda.stream("producer's")
    return cuda.array(FOUR, speaks="cai3", stream=stream, name="x", **how), stream


# --- a stream that nothing keeps ------------------------------------------------------------------


def test_a_reader_on_a_stream_of_somebody_elses_is_waited_for_by_the_host(
    cuda: Any, caplog: pytest.LogCaptureFixture
) -> None:
    x, stream = producer(cuda)
    own = cuda.stream("reader's")
    view = to_cai(x)
    with caplog.at_level(logging.WARNING, "cai_bridge"):
        read = cuda.consumer("cai-waits", external(own)).read(view)
        read.release()
        cuda.clear_calls()
        view.release()
    assert host_waits(cuda) == 1
    assert "cannot wait for the consumer's stream" in caplog.text
    stream.fill(x, 2.0)
    assert done(read) == FOUR


def test_no_host_waits_while_the_reader_still_works_there(cuda: Any) -> None:
    x, stream = producer(cuda)
    own = cuda.stream("reader's")
    view = to_cai(x)
    read = cuda.consumer("cai-waits", external(own)).read(view)
    read.release()
    cuda.clear_calls()
    with cuda.current_stream(external(own)):
        view.release()
    assert host_waits(cuda) == 0
    stream.fill(x, 2.0)
    assert done(read) == FOUR


# --- an address -----------------------------------------------------------------------------------


@pytest.mark.parametrize("take", [from_cai, to_dlpack, to_cai])
@pytest.mark.parametrize("until", ["read", "end"])
def test_work_with_the_address_on_the_current_stream_is_waited_for(
    cuda: Any, take: Any, until: str
) -> None:
    x, stream = producer(cuda)
    own = cuda.stream("reader's")
    view = take(x)
    with cuda.current_stream(own):
        own.wait(stream.record())
        assert view.ptr == x.ptr
        read = own.read(view, name="work with the address")
        if until == "end":
            view.release()
    view.release()
    stream.fill(x, 2.0)
    assert done(read) == FOUR


def test_a_view_whose_address_nobody_read_orders_nothing_at_its_end(cuda: Any) -> None:
    x, _ = producer(cuda)
    view = from_cai(x)
    cuda.clear_calls()
    view.release()
    assert not {call.call for call in cuda.calls} & {"cuEventRecord", "cuModuleUnload"}
    cuda.synchronize()


# --- captures -------------------------------------------------------------------------------------


def test_a_library_that_ignores_dicts_waits_in_its_graph(cuda: Any) -> None:
    x, _ = producer(cuda)
    own = cuda.stream("reader's")
    view = to_cai(x)
    with cuda.capture(own) as graph:
        read = cuda.consumer("cai-trusting", own).read(view)
    graph.launch(own)
    assert done(read) == FOUR


def test_a_library_that_ignores_dicts_waits_within_one_capture(cuda: Any) -> None:
    x, stream = producer(cuda)
    own = cuda.stream("reader's")
    with cuda.capture(stream) as graph:
        own.wait(stream.record())
        stream.fill(x, 3.0)
        read = cuda.consumer("cai-trusting", own).read(to_cai(x))
        stream.wait(own.record())
    graph.launch(stream)
    assert done(read) == [3.0] * 4


def test_a_library_outside_a_capture_is_not_drawn_into_it(cuda: Any) -> None:
    x, stream = producer(cuda)
    own = cuda.stream("reader's")
    with cuda.capture(stream), cuda.current_stream(own):
        view = to_cai(x)
        assert view.__cuda_array_interface__["stream"] == stream.handle
    own.record()
    cuda.synchronize()


def test_the_host_waits_while_the_producers_stream_is_captured(cuda: Any) -> None:
    x, stream = producer(cuda)
    own = cuda.stream("consumer's")
    view = to_cai(x, stream=own.handle)
    read = own.read(view)
    with cuda.capture(stream) as graph:
        cuda.clear_calls()
        view.release()
        assert (host_waits(cuda), read.value) == (1, FOUR)
        stream.fill(x, 3.0)
    graph.launch(stream)
    cuda.synchronize()


def test_a_tree_that_is_taken_apart_reads_nothing_of_a_view(cuda: Any) -> None:
    x, _ = producer(cuda)
    view = from_cai(x)
    convert([view], "cai", stream=-1)
    cuda.clear_calls()
    # As a reader would, one on the legacy stream would bar this end.
    with cuda.capture(cuda.stream("captured", blocking=True)):
        view.release()
    assert not {call.call for call in cuda.calls} & {"cuEventRecord", "cuModuleUnload"}
    cuda.synchronize()
