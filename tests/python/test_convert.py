"""`convert` of one array: the same memory, in order both ways, or a refusal."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from contract import assert_refused, each
from fakes import torch_like
from scenes import done
from stand_in import Array, StandIn, count, library, made_on, no_libraries, producer

from cai_bridge import (
    DriverError,
    Library,
    convert,
    from_cai,
    register,
    to_cai,
)

__all__ = ["library", "no_libraries", "producer"]


SPEAKS = ["exchange", "dlpack", "dlpack-legacy", "cai3", ("exchange", "cai2")]
# Those that name the stream that is to wait at the end; ``__dlpack__`` names none.
NAME = ["exchange", "cai3", ("exchange", "cai2")]


# values and order


@pytest.mark.parametrize("speaks", SPEAKS)
def test_the_array_has_what_was_written_late_and_is_no_copy(
    cuda: Any, library: StandIn, producer: Any, speaks: Any
) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    made = convert(x, "stand_in")
    assert type(made) is Array
    assert (made.view.ptr, made.stream) == (x.ptr, library.streams[0])
    assert library.asked == [0]
    seen = made.read()
    assert done(seen) == [7.0] * 4


@pytest.mark.unchecked
@pytest.mark.parametrize("speaks", SPEAKS)
def test_without_the_wait_at_the_hand_over_there_is_a_race(
    cuda: Any, library: StandIn, producer: Any, speaks: Any
) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    cuda.suppress("cuStreamWaitEvent")
    convert(x, "stand_in").read()
    cuda.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"]


@pytest.mark.parametrize("speaks", NAME)
@pytest.mark.parametrize("ends", ["released", "dropped"])
def test_the_producer_waits_for_the_consumer_at_the_end(
    cuda: Any, library: StandIn, producer: Any, speaks: Any, ends: str
) -> None:
    x = made_on(cuda, producer, 7.0, speaks)
    made = convert(x, "stand_in")
    seen = made.read()
    if ends == "released":
        made.view.release()
    else:
        del made
    producer.fill(x, 9.0, name="the producer's next write")
    assert done(seen) == [7.0] * 4


@pytest.mark.unchecked
def test_without_the_wait_at_the_end_there_is_a_race(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    made = convert(x, "stand_in")
    made.read()
    cuda.suppress("cuStreamWaitEvent")
    del made
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"]


def test_what_the_consumer_wrote_is_there_for_the_producer(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    convert(x, "stand_in").write(5.0)
    seen = producer.read(x)
    assert done(seen) == [5.0] * 4


@pytest.mark.parametrize("how", ["an object", "a handle"])
def test_a_stream_that_is_said_goes_before_the_current_one(
    cuda: Any, library: StandIn, producer: Any, how: str
) -> None:
    mine = cuda.stream("mine")
    x = made_on(cuda, producer, 7.0)
    made = convert(x, "stand_in", stream=mine if how == "an object" else mine.handle)
    if how == "an object":
        assert library.asked == []
    assert made.view.stream == mine.handle
    seen = mine.read(made.view)
    if how == "an object":
        del made
        producer.fill(x, 9.0)
    assert done(seen) == [7.0] * 4


def test_nobody_waits_on_one_stream(cuda: Any, library: StandIn, producer: Any) -> None:
    x = made_on(cuda, producer)
    cuda.clear_calls()
    convert(x, "stand_in", stream=producer)
    assert count(cuda, "cuEventRecord") == count(cuda, "cuStreamWaitEvent") == 0


def test_the_array_keeps_the_producer_alive_and_lets_go_of_it(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    gone = weakref.ref(x)
    made = convert(x, "stand_in")
    del x
    gc.collect()
    assert gone() is not None
    seen = made.read()
    assert done(seen) == [7.0] * 4
    del made
    gc.collect()
    assert gone() is None


def test_an_array_of_another_device_is_usable_on_its_devices_stream(
    cuda: Any, library: StandIn
) -> None:
    there = cuda.stream("producer", device=1)
    x = cuda.array([7.0] * 4, speaks="cai3", stream=there)
    made = convert(x, "stand_in")
    assert (set(library.asked), made.stream) == ({1}, library.streams[1])
    seen = made.read()
    assert done(seen) == [7.0] * 4


def test_a_way_back_is_ordered_by_the_stream_of_the_first_consumer(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    made = convert(x, "stand_in")
    made.write(7.0)
    back = convert(made, "cai", stream=producer)
    assert back.ptr == x.ptr
    seen = producer.read(back)
    assert done(seen) == [7.0] * 4


# an array of the library itself


def test_an_array_of_the_library_is_itself(cuda: Any, library: StandIn, producer: Any) -> None:
    made = convert(made_on(cuda, producer), "stand_in")
    cuda.clear_calls()
    assert convert(made, "stand_in") is made
    assert not cuda.calls


def test_an_array_of_the_library_is_ordered_for_a_stream_that_is_said(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    made, mine = convert(made_on(cuda, producer), "stand_in"), cuda.stream("mine")
    made.write(7.0)
    assert convert(made, "stand_in", stream=mine) is made
    seen = mine.read(made.view)
    mine.synchronize()
    assert seen.value == [7.0] * 4


def test_a_tensor_of_the_library_is_ordered_though_it_requires_a_gradient(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x, mine = made_on(cuda, producer, 7.0), cuda.stream("mine")
    tensor = torch_like(x, _grad=True, detach=lambda: x)
    library.types = (type(tensor),)
    assert convert(tensor, library, stream=mine) is tensor
    assert convert([tensor], library, stream=mine)[0] is tensor
    seen = mine.read(x)
    mine.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.unchecked
def test_without_that_order_there_is_a_race(cuda: Any, library: StandIn, producer: Any) -> None:
    made, mine = convert(made_on(cuda, producer), "stand_in"), cuda.stream("mine")
    made.write(7.0)
    assert convert(made, "stand_in") is made
    mine.read(made.view)
    mine.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"]


def test_an_array_of_the_library_is_copied_where_a_copy_is_asked_for(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer, 7.0)
    made = convert(x, "stand_in")
    copied = convert(made, "stand_in", copy=True)
    assert type(copied) is Array
    assert copied.view.ptr not in (0, x.ptr)
    seen = copied.read()
    assert done(seen) == [7.0] * 4


# arguments


def test_a_copy_is_apart_from_its_source(cuda: Any, library: StandIn, producer: Any) -> None:
    x = made_on(cuda, producer, 7.0)
    made = convert(x, "stand_in", copy=True)
    assert made.view.ptr != x.ptr
    producer.fill(x, 9.0)
    seen = made.read()
    assert done(seen) == [7.0] * 4


@each("refusals", "object", object="read-only array")
@pytest.mark.parametrize("to", ["stand_in", "tvm_ffi"])
@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
def test_read_only_memory_is_refused_for_a_library_that_writes(
    cuda: Any, library: StandIn, row: Any, to: str, speaks: str
) -> None:
    x = cuda.array([1.0] * 4, speaks=speaks, readonly=True)
    assert_refused(row, convert, x, to)
    assert x.exports == 0
    assert convert(x, to, readonly=False) is not None
    copied = convert(x, to, copy=True)
    cuda.synchronize()
    assert (copied.view.ptr if to == "stand_in" else copied.data_ptr()) != x.ptr


@each("refusals", "object", object="array, readonly=True")
@pytest.mark.parametrize("to", ["stand_in", "tvm_ffi"])
def test_a_library_that_writes_is_given_nothing_as_read_only(
    cuda: Any, library: StandIn, row: Any, to: str
) -> None:
    assert_refused(row, convert, cuda.array(shape=4), to, readonly=True)


@each("refusals", "object", object="reversed array")
def test_negative_strides_are_refused_for_a_library_that_makes_its_arrays_itself(
    cuda: Any, row: Any
) -> None:
    x = cuda.array([1.0] * 4, speaks="cai3")
    last = {**x.__cuda_array_interface__, "strides": (-4,), "data": (x.ptr + 12, False)}
    view = from_cai(last, owner=x)

    class ByTable(Library):
        name, view, arrays = "by_table", None, ("by_table:Array",)
        types = (type(cuda.array([1.0], speaks="exchange")),)

    assert_refused(row, convert, view, ByTable())
    view.release()


@pytest.mark.parametrize("to", ["cai", "dlpack"])
def test_a_view_says_that_its_memory_is_read_only(cuda: Any, to: str) -> None:
    x = cuda.array([1.0], readonly=True)
    assert convert(x, to).readonly
    assert not convert(x, to, readonly=False).readonly
    assert convert(cuda.array([1.0]), to, readonly=True).readonly


def test_a_library_that_only_reads_is_given_read_only_memory(cuda: Any, no_libraries: Any) -> None:
    class Reads(StandIn):
        writes = False

    register(Reads({0: cuda.legacy}))
    x = cuda.array([1.0], readonly=True)
    assert convert(x, "stand_in").view.readonly


def test_a_tensor_that_requires_a_gradient_is_detached_where_that_is_asked_for(cuda: Any) -> None:
    x = cuda.array([1.0])
    tensor = torch_like(cuda.array([1.0]), _grad=True, detach=lambda: x)
    with pytest.raises(BufferError, match=r"^requires_grad: got True; allowed: "):
        convert(tensor, "cai")
    assert convert(tensor, "cai", detach=True).owner is x
    assert convert([tensor], "cai", detach=True)[0].owner is x
    assert convert(x, "cai", detach=True).owner is x


def test_a_call_of_the_driver_that_fails_gives_everything_back(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    for call in ("cuEventRecord", "cuStreamWaitEvent"):
        cuda.fail(call)
        with pytest.raises(RuntimeError, match=rf"^{call}: got "):
            convert(x, "stand_in")
        assert x.exports == 0


def test_what_the_library_raises_passes_through_and_gives_the_memory_back(
    cuda: Any, library: StandIn, producer: Any
) -> None:
    x = made_on(cuda, producer)
    library.refused.add(x.ptr)
    with pytest.raises(BufferError, match=r"^strides: got odd ones"):
        convert(x, "stand_in")
    gc.collect()
    assert x.exports == 0


@pytest.mark.parametrize("x", [3, object(), np.zeros(4), None])
def test_what_is_no_array_of_a_gpu_is_refused(cuda: Any, library: StandIn, x: Any) -> None:
    with pytest.raises((TypeError, BufferError), match=r": got .+; allowed: "):
        convert(x, "stand_in")


def test_a_library_on_the_legacy_stream_may_work_on_blocking_ones_as_well(
    cuda: Any, library: StandIn
) -> None:
    """As Numba: its default stream is the legacy one, and its others are blocking."""
    mine, theirs = cuda.stream("mine", blocking=True), cuda.stream("theirs", blocking=True)
    library.streams[0] = cuda.legacy
    x = made_on(cuda, mine, 7.0, "cai3")
    made = convert(x, "stand_in")
    seen = theirs.read(made.view, name="the read")
    view = made.view
    del made, view
    mine.fill(x, 9.0)
    assert done(seen) == [7.0] * 4
    assert not cuda.reports


@pytest.mark.parametrize("wrong", ["a capture", "read-only"])
def test_a_capsule_that_is_refused_is_as_it_was(cuda: Any, library: StandIn, wrong: str) -> None:
    stream = cuda.stream("captured", blocking=True)
    x = cuda.array([1.0] * 4, speaks="dlpack", readonly=wrong == "read-only")
    capsule = x.__dlpack__(stream=1, max_version=(1, 3))
    if wrong == "a capture":
        with cuda.capture(stream, "relaxed"), pytest.raises(DriverError, match="graph capture"):
            convert(capsule, "stand_in", stream=stream)
    else:
        with pytest.raises(BufferError, match="readonly"):
            convert(capsule, "stand_in")
    seen = cuda.consumer("cai-waits", cuda.legacy).read(to_cai(capsule))
    assert done(seen) == [1.0] * 4


@pytest.mark.parametrize("tree", [False, True])
def test_a_stream_object_is_asked_once(cuda: Any, library: StandIn, tree: bool) -> None:
    mine, asked, x = cuda.stream("mine"), [], cuda.array([1.0])

    class Asked:
        def __cuda_stream__(self) -> tuple[int, int]:
            asked.append(self)
            return (0, mine.handle)

    stream = Asked()
    convert([None], "stand_in")
    made = convert([x, x] if tree else x, "stand_in", stream=stream)
    assert asked == [stream]
    del made
