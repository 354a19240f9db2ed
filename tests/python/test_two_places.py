"""Where memory is and where streams are: with managed and pinned memory those are two things."""

from __future__ import annotations

from typing import Any

import pytest
import tables
from capsules import HandMade
from scenes import done

from cai_bridge import DLPackView, from_cai, to_cai


def read_on(cuda: Any, device: int, view: Any, **asks: Any) -> Any:
    """Read a view as a DLPack consumer on a stream of its own on that device."""
    mine = cuda.stream(f"reader's on {device}", device=device)
    capsule = view.__dlpack__(stream=mine, max_version=(1, 3), **asks)
    taken = to_cai(capsule, stream=-1)
    return mine.read(taken, name="the read"), taken


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


def test_whoever_produced_it_without_a_stream_may_work_where_the_memory_is(cuda: Any) -> None:
    x = cuda.array([1.0] * 4, speaks="cai2", memory="managed")
    there = cuda.stream("there", device=1)
    seen = cuda.consumer("dlpack", there).read(from_cai(x, stream=-1, device=(2, 1)))
    seen.release()
    cuda.legacy.fill(x, 2.0)
    assert done(seen) == [1.0] * 4


# --- streams of the other GPU, which nothing keeps ------------------------------------------------


def test_the_host_waits_for_the_gpu_of_the_stream_that_was_closed(cuda: Any) -> None:
    producer, consumer = cuda.stream("producer's", device=1), cuda.stream("consumer's", device=0)
    x = cuda.array([1.0] * 4, speaks="cai3", memory="managed", device=0)
    producer.fill(x, 3.0)
    view = from_cai(x, stream=producer)
    producer.destroy()
    read = cuda.consumer("dlpack", consumer).read(view)
    assert done(read) == [3.0] * 4


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


# --- ends where the host waits for one GPU, and the other one has worked, too ---------------------


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
