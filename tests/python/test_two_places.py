"""Where memory is and where streams are: with managed and pinned memory those are two things."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import tables
from capsules import HandMade
from scenes import done

from cai_bridge import DLPackView, HostSyncWarning, from_cai, to_cai
from soak.device.foreign import ByHand

ORDER = ("cuEventRecord", "cuStreamWaitEvent")


def read_on(cuda: Any, device: int, view: Any, **asks: Any) -> Any:
    """Read a view as a DLPack consumer on a stream of its own on that device."""
    mine = cuda.stream(f"reader's on {device}", device=device)
    capsule = view.__dlpack__(stream=mine, max_version=(1, 3), **asks)
    taken = to_cai(capsule, stream=-1)
    return mine.read(taken, name="the read"), taken


@pytest.mark.parametrize("by", ["object", "view", "version 2"])
@pytest.mark.parametrize("memory", ["managed", "pinned"])
@pytest.mark.parametrize("kind", ["default", "per-thread", "own"])
def test_memory_handed_out_as_another_gpus_waits_for_its_producers_own_stream(
    by: str, memory: str, kind: str, cuda: Any
) -> None:
    home = (
        cuda.stream("home")
        if kind == "own"
        else cuda.default_stream(0, per_thread=kind == "per-thread")
    )
    x = cuda.array(
        [0.0] * 4, speaks="cai2" if by == "version 2" else "cai3", memory=memory, stream=home
    )
    home.fill(x, 7.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HostSyncWarning)
        view = from_cai(to_cai(x) if by == "view" else x, device=(2, 1))
    seen, _ = read_on(cuda, 1, view)
    assert done(seen) == [7.0] * 4


@pytest.mark.unchecked
@pytest.mark.parametrize("call", ORDER)
def test_without_that_wait_the_read_is_a_race(call: str, cuda: Any) -> None:
    x = cuda.array([0.0] * 4, speaks="cai3", memory="managed", stream=cuda.legacy)
    cuda.legacy.fill(x, 7.0)
    view = from_cai(x, device=(2, 1))
    cuda.suppress(call)
    seen, _ = read_on(cuda, 1, view)
    cuda.synchronize()
    assert seen.value != [7.0] * 4
    assert {report.kind for report in cuda.reports} == {"race"}


def test_what_was_borrowed_for_another_gpu_goes_back_after_that_ones_default_stream(
    cuda: Any,
) -> None:
    x = cuda.array([0.0] * 4, speaks="cai3", memory="managed", stream=cuda.legacy)
    view = from_cai(x, device=(2, 1))
    seen = cuda.consumer("dlpack-borrowed", cuda.default_stream(1)).read(view)
    view.release()
    cuda.legacy.fill(x, 7.0)
    assert done(seen) == [0.0] * 4


@pytest.mark.parametrize("memory", ["managed", "pinned"])
def test_a_tensor_that_our_table_takes_over_is_where_the_driver_says(
    memory: str, cuda: Any
) -> None:
    x = cuda.array([0.0] * 4, speaks=(), memory=memory, device=1)
    cuda.default_stream(1).fill(x, 7.0)
    kind = {"managed": 13, "pinned": 3}[memory]
    view = tables.to_object(DLPackView, HandMade(x.ptr, device=(kind, 0), owner=x))
    seen, taken = read_on(cuda, 1, view)
    assert done(seen) == [7.0] * 4
    del taken


@pytest.mark.parametrize("memory", ["managed", "pinned"])
@pytest.mark.parametrize("current", [0, 1])
def test_a_producer_of_memory_of_no_gpu_is_asked_on_the_callers(
    memory: str, current: int, cuda: Any
) -> None:
    x, asked = cuda.array([1.0] * 4, speaks="dlpack", memory=memory, device=1), []
    kind = type(x)
    made = type("Producer", (kind,), {})
    made.__dlpack__ = lambda self, **asks: (
        asked.append(cuda.current_device) or kind.__dlpack__(self, **asks)
    )
    x.__class__ = made
    cuda.set_device(current)
    to_cai(x)
    cuda.set_device(0)
    assert asked == [current]


@pytest.mark.parametrize("memory", ["managed", "pinned"])
@pytest.mark.parametrize("left_out", [None, *ORDER])
@pytest.mark.parametrize("kind", ["default", "own"])
@pytest.mark.unchecked
def test_after_a_move_the_producers_next_write_comes_after_the_consumers_read(
    memory: str, left_out: str | None, kind: str, cuda: Any
) -> None:
    home = cuda.stream("home") if kind == "own" else cuda.legacy
    x = cuda.array([1.0] * 4, speaks="cai3", memory=memory, stream=home)
    view = from_cai(x)
    cuda.synchronize()
    seen, taken = read_on(cuda, 1, view, dl_device=(2, 1))
    view.release()
    if left_out:
        cuda.suppress(left_out)
    taken.release()
    home.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert (seen.value == [1.0] * 4) == (left_out is None)
    assert bool(cuda.reports) == (left_out is not None)


def test_a_stream_of_the_device_that_it_is_handed_out_as_is_the_right_one(cuda: Any) -> None:
    x = cuda.array([1.0] * 4, speaks="cai3", memory="managed", stream=cuda.legacy)
    view = from_cai(x, device=(2, 1))
    view.__dlpack__(stream=cuda.stream(device=1))
    with pytest.raises(ValueError, match="of device 0 for an array on device 1"):
        view.__dlpack__(stream=cuda.stream(device=0))
    cuda.synchronize()


def test_whoever_was_not_named_may_work_where_the_memory_was_handed_out(cuda: Any) -> None:
    home = cuda.stream("home")
    x = cuda.array([1.0] * 4, speaks="cai3", memory="managed", stream=home)
    view = to_cai(from_cai(to_cai(x), device=(2, 1)))
    there = cuda.default_stream(1)
    there.wait(home.record())
    assert view.__cuda_array_interface__["stream"] == home.handle
    seen = there.read(view)
    view.release()
    seen.release()
    home.fill(x, 2.0)
    cuda.synchronize()
    assert not cuda.reports


@pytest.mark.parametrize("how", ["release", "drop"])
def test_a_consumer_that_was_named_works_where_it_was_named(cuda: Any, how: str) -> None:
    mine, home = cuda.stream("mine"), cuda.stream("home")
    x = cuda.array([1.0] * 4, speaks="exchange", memory="managed", stream=home)
    # Nobody keeps a bare handle's stream: at the end the host waits for its GPU, not for the other.
    with cuda.current_stream(home):
        named = to_cai(x, stream=mine.handle)
    seen = mine.read(named)
    elsewhere = from_cai(named, device=(2, 1))
    if how == "release":
        elsewhere.release()
    del elsewhere
    # The view that it is of is still there, and has not ended.
    cuda.stream("the producer's next").fill(x, 2.0)
    cuda.synchronize()
    assert (seen.value, named.size) == ([1.0] * 4, 4)
    assert not cuda.reports


# --- streams of the other GPU, which nothing keeps ------------------------------------------------


@pytest.mark.parametrize("memory", ["managed", "pinned"])
@pytest.mark.parametrize("blocking", [False, True])
def test_the_end_waits_for_the_gpu_of_the_consumers_stream(
    cuda: Any, memory: str, blocking: bool
) -> None:
    producer = cuda.stream("producer's", device=0)
    consumer = cuda.stream("consumer's", device=1, blocking=blocking)
    x = cuda.array([1.0] * 4, speaks="cai3", stream=producer, memory=memory)
    view = to_cai(x, stream=consumer.handle)
    read = consumer.read(view)
    view.release()
    producer.fill(x, 2.0)
    assert done(read) == [1.0] * 4


def test_the_end_of_a_copy_waits_for_the_gpu_of_the_consumers_stream(cuda: Any) -> None:
    producer, consumer = cuda.stream("producer's"), cuda.stream("consumer's")
    x = cuda.array([1.0] * 4, speaks="cai3", stream=producer)
    capsule = from_cai(x).__dlpack__(stream=consumer.handle, dl_device=(2, 1), max_version=(1, 0))
    tensor = ByHand(capsule)
    read = tensor.read(consumer, "the read")
    read.release()
    tensor.delete(None)
    cuda.synchronize()


def test_the_host_waits_for_the_gpu_of_the_stream_that_was_closed(cuda: Any) -> None:
    producer, consumer = cuda.stream("producer's", device=1), cuda.stream("consumer's", device=0)
    x = cuda.array([1.0] * 4, speaks="cai3", memory="managed", device=0)
    producer.fill(x, 3.0)
    view = from_cai(x, stream=producer)
    producer.destroy()
    read = cuda.consumer("dlpack", consumer).read(view)
    assert done(read) == [3.0] * 4


def test_a_stream_that_went_with_its_gpus_context_is_not_touched(cuda: Any) -> None:
    producer, consumer = cuda.stream("producer's", device=0), cuda.stream("consumer's", device=1)
    x = cuda.array([1.0] * 4, speaks="cai3", stream=producer, memory="managed")
    view = to_cai(x, stream=consumer)
    cuda.synchronize()
    cuda.reset_device(1)
    view.release()


@pytest.mark.parametrize("kind", ["legacy", "per-thread"])
@pytest.mark.parametrize("door", ["to_cai", "from_cai", "own view", "__dlpack__", "release"])
def test_the_default_stream_of_another_gpu_is_refused(door, kind, cuda):
    number = 1 if kind == "legacy" else 2
    here, there = (cuda.default_stream(device, per_thread=number == 2) for device in (0, 1))
    array = cuda.array([1.0] * 4, speaks="cai3", device=0, name="x")

    def call(stream):
        if door == "to_cai":
            to_cai(array, stream=stream)
        elif door == "from_cai":
            from_cai(array, stream=stream)
        elif door == "own view":
            from_cai(to_cai(array), stream=stream)
        elif door == "__dlpack__":
            from_cai(array).__dlpack__(stream=stream)
        else:
            to_cai(array, stream=here).release(stream)

    call(here)
    call(number)
    with pytest.raises(ValueError, match=r"of device 1 for an array on device 0"):
        call(there)


@pytest.mark.parametrize("kind", [1, 2])
def test_the_default_stream_of_another_gpu_works_on_managed_memory(kind, cuda):
    home, there = cuda.stream("home", device=0), cuda.default_stream(1, per_thread=kind == 2)
    array = cuda.array([1.0] * 4, speaks="cai3", memory="managed", stream=home, name="x")
    view = to_cai(array, stream=there)
    cuda.set_device(1)
    seen = there.read(view)
    view.release()
    cuda.set_device(0)
    home.fill(array, 2.0)
    assert done(seen) == [1.0] * 4


@pytest.mark.parametrize("kind", [1, 2])
def test_a_copy_for_the_default_stream_of_another_gpu(kind, cuda):
    home, there = cuda.stream("home", device=0), cuda.default_stream(1, per_thread=kind == 2)
    array = cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x")
    view = from_cai(array)
    copied = view.__dlpack__(stream=there, dl_device=(2, 1), max_version=(1, 3))
    copy = to_cai(copied, stream=there)
    seen = there.read(copy)
    home.fill(array, 2.0)
    assert done(seen) == [1.0] * 4


# --- ends where the host waits for one GPU, and the other one has worked, too ---------------------


@pytest.mark.parametrize("left", [0, 1])
def test_a_stream_of_the_other_gpu_is_waited_for_besides_one_that_nothing_keeps(cuda, left):
    home = cuda.stream("home")
    streams = [cuda.stream(f"on {device}", device=device) for device in (0, 1)]
    array = cuda.array([1.0] * 4, speaks="cai3", memory="managed", stream=home, name="x")
    view = to_cai(array, stream=streams[left].handle)
    other = streams[1 - left]
    other.wait(home.record())
    seen = streams[left].read(view), other.read(view)
    view.release(other)
    home.fill(array, 2.0)
    cuda.synchronize()
    assert [read.value for read in seen] == [[1.0] * 4] * 2


def test_what_was_lent_for_one_gpu_is_waited_for_where_the_other_ones_stream_is_gone(cuda):
    array = cuda.array([1.0] * 4, speaks="dlpack", memory="pinned", name="x")
    named = cuda.stream("named", device=1)
    view = from_cai(to_cai(array, stream=named), stream=cuda.default_stream(0, per_thread=True))
    seen = cuda.consumer("dlpack-borrowed", cuda.default_stream(0)).read(view)
    named.destroy()
    seen.release()
    view.release()
    del view, array
    assert done(seen) == [1.0] * 4


def test_the_host_waits_for_the_gpu_of_a_handle_that_nothing_keeps(cuda):
    far = cuda.stream("far", device=1)
    array = cuda.array([1.0] * 4, speaks="cai3", memory="managed", name="x")
    view = to_cai(array, stream=far.handle)
    far.launch(lambda: array.assign(2.0), writes=[view], name="the consumer's write")
    seen = cuda.consumer("dlpack", cuda.stream("reader")).read(from_cai(view))
    assert done(seen) == [2.0] * 4


# --- work that is pending on a stream of the other GPU, as a caller says --------------------------


@pytest.mark.parametrize("reader", ["dict", "capsule"])
@pytest.mark.parametrize("source", ["array", "view"])
@pytest.mark.parametrize("blocking", [False, True], ids=["non-blocking", "blocking"])
def test_a_handle_of_the_other_gpu_is_replaced_by_the_legacy_stream_of_the_memorys(
    reader, source, blocking, cuda
):
    far = cuda.stream("far", device=1, blocking=blocking)
    array = cuda.array([1.0] * 4, speaks="cai3", memory="managed", name="x")
    # Made before the work, which the array's own dict would name.
    said = to_cai(array) if source == "view" else array
    far.fill(array, 2.0)
    view = from_cai(said, stream=far.handle)
    assert view.stream == 1
    consumer = cuda.consumer("cai-waits" if reader == "dict" else "dlpack", cuda.stream("reader"))
    seen = consumer.read(to_cai(view) if reader == "dict" else view)
    assert done(seen) == [2.0] * 4
