"""Device, pinned and managed memory through every door and back, with work pending on it.

With managed and pinned memory, where it is and where streams are is two things.
"""

from __future__ import annotations

from typing import Any

import capsules
import pytest
import tables
from capsules import HandMade
from fakes import DLPackPair, only_cai
from scenes import done

from cai_bridge import DLPackView, DriverError, convert, from_cai, to_cai

CODES = {"device": 2, "pinned": 3, "managed": 13}
MEMORY = pytest.mark.parametrize("memory", CODES)


def tensor_of(x: Any, **fields: Any) -> HandMade:
    return HandMade(x.ptr, shape=x.shape, **{"device": x.device, "owner": x, **fields})


# How DLPack's producers hand `x` out.
DLPACK = {
    "exchange table": lambda x: tables.speaker(
        tables.table(lambda _: tensor_of(x), work_on=x.stream.handle)
    )(),
    "method": lambda x: DLPackPair(lambda **_: tensor_of(x).capsule(), device=x.device),
    "versioned capsule": lambda x: tensor_of(x).capsule(),
    "view": lambda x: from_cai(only_cai(x, shape=x.shape, stream=x.stream.handle)),
}


@pytest.mark.parametrize("producer", DLPACK)
@MEMORY
def test_dlpack_memory_of_any_kind_goes_to_cai_and_back(memory, producer, cuda):
    # What a method or a capsule hands out is ready on the legacy stream by its own promise.
    p = cuda.stream("p") if producer in ("exchange table", "view") else cuda.legacy
    c, device = cuda.stream("c"), (CODES[memory], 0)
    x = cuda.array([0.0] * 4, memory=memory, speaks=())
    p.fill(x, 7.0)
    made = DLPACK[producer](x)
    if producer == "method":
        c.wait(p.record())
    view = to_cai(made, stream=c)
    assert (view.device, view.ptr, view.stream) == (device, x.ptr, c.handle)
    back = from_cai(view)
    assert back.__dlpack_device__() == device
    managed, lent = tables.managed(back), tables.borrowed(back)
    said = [capsules.read(back.__dlpack__(stream=c, max_version=(1, 3))), managed.fields, lent]
    assert [(one.device, one.ptr, one.flags) for one in said[:2]] == [(device, x.ptr, 0)] * 2
    assert (lent.device, lent.ptr) == (device, x.ptr)
    managed.delete()
    assert done(c.read(view)) == [7.0] * 4


@pytest.mark.parametrize("device", [None, 0, (2, 0), 1, (2, 1), "own"])
@pytest.mark.parametrize("owner", [0, 1])
@MEMORY
def test_device_names_memory_that_it_reaches(memory, owner, device, cuda):
    p = cuda.stream("p", device=owner)
    x = cuda.array([0.0] * 4, memory=memory, device=owner, speaks="cai")
    p.fill(x, 7.0)
    own = (CODES[memory], owner if memory == "device" else 0)
    asked = own if device == "own" else device
    told = own if asked is None else (2, asked) if isinstance(asked, int) else asked
    if memory == "device" and told != own:
        with pytest.raises(ValueError, match=r"^device: got "):
            from_cai(x, device=asked)
        cuda.synchronize()
        return
    view = from_cai(x, device=asked)
    assert (view.device, view.ptr) == (told, x.ptr)
    c = cuda.stream("c", device=told[1] if told[0] == 2 else owner)
    read = cuda.consumer("dlpack", c).read(view)
    back = to_cai(view, stream=c)
    assert (back.device, back.ptr) == (told, x.ptr)
    assert (done(c.read(back)), read.value) == ([7.0] * 4, [7.0] * 4)


@pytest.mark.parametrize("memory", ["managed", "pinned"])
def test_a_tensor_that_our_table_takes_over_is_where_the_driver_says(memory, cuda):
    x, mine = cuda.array([0.0] * 4, speaks=(), memory=memory, device=1), cuda.stream(device=1)
    cuda.default_stream(1).fill(x, 7.0)
    view = tables.to_object(DLPackView, tensor_of(x, device=(CODES[memory], 0)))
    taken = to_cai(view.__dlpack__(stream=mine, max_version=(1, 3)), stream=-1)
    assert done(mine.read(taken, name="the read")) == [7.0] * 4


class Frame:
    """A stranger's array of GPU 1, which has its `__dlpack_device__` from the bridge."""

    def __init__(self, ptr=0, items=0, stream=None):
        self.entries = {"shape": (items,), "typestr": "<f4", "data": (ptr, False), "version": 3}
        self.entries["stream"] = stream

    @property
    def __cuda_array_interface__(self):
        return self.entries

    def __dlpack_device__(self):
        return from_cai(self).__dlpack_device__()


@pytest.mark.parametrize("by", ["device=", "its pointer", "stream=", "nothing"])
def test_an_array_without_items_is_where_something_says_it_is(by, cuda):
    x, s = cuda.array([1.0], device=1), cuda.stream(device=1)
    wishes = {"device=": {"device": 1}, "stream=": {"stream": s}}.get(by, {})
    empty = Frame(x.ptr if by == "its pointer" else 0)
    assert from_cai(empty, **wishes).device == (2, by != "nothing")
    made = convert([Frame(x.ptr, 1, stream=1), Frame()], "dlpack", stream=s)
    assert [view.device for view in made] == [(2, 1), (2, 1)]
    cuda.set_device(1)
    assert from_cai(Frame()).device == (2, 1)


@pytest.mark.unchecked
def test_a_stream_that_is_none_is_refused_for_an_array_without_items_too(cuda):
    for call in (from_cai, lambda x, stream: convert(x, "cai", stream=stream)):
        with pytest.raises(DriverError, match=r"^stream: got the stream 0x3039, which is no"):
            call(Frame(), stream=0x3039)


@pytest.mark.parametrize("kind", ["legacy", "per-thread"])
def test_the_default_stream_of_another_gpu_is_refused(kind, cuda):
    number = 1 if kind == "legacy" else 2
    here, there = (cuda.default_stream(device, per_thread=number == 2) for device in (0, 1))
    array = cuda.array([1.0] * 4, speaks="cai3", device=0, name="x")
    calls = [
        lambda stream: to_cai(array, stream=stream),
        lambda stream: from_cai(array, stream=stream),
        lambda stream: from_cai(to_cai(array), stream=stream),
        lambda stream: from_cai(array).__dlpack__(stream=stream),
        lambda stream: to_cai(array, stream=here).release(stream),
    ]
    for call in calls:
        call(here)
        call(number)
        with pytest.raises(ValueError, match=r"of device 1 for an array on device 0"):
            call(there)


def test_whoever_was_not_named_may_work_where_the_memory_was_handed_out(cuda):
    home, there = cuda.stream("home"), cuda.default_stream(1)
    x = cuda.array([1.0] * 4, speaks="cai3", memory="managed", stream=home)
    view = to_cai(from_cai(to_cai(x), device=(2, 1)))
    there.wait(home.record())
    assert view.__cuda_array_interface__["stream"] == home.handle
    seen = there.read(view)
    view.release()
    home.fill(x, 2.0)
    assert done(seen) == [1.0] * 4


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


def test_the_host_waits_for_the_gpu_of_the_stream_that_was_closed(cuda):
    producer, consumer = cuda.stream("producer's", device=1), cuda.stream("consumer's", device=0)
    x = cuda.array([1.0] * 4, speaks="cai3", memory="managed", device=0)
    producer.fill(x, 3.0)
    view = from_cai(x, stream=producer)
    producer.destroy()
    read = cuda.consumer("dlpack", consumer).read(view)
    assert done(read) == [3.0] * 4


def test_whoever_produced_it_without_a_stream_may_work_where_the_memory_is(cuda):
    x = cuda.array([1.0] * 4, speaks="cai2", memory="managed")
    there = cuda.stream("there", device=1)
    seen = cuda.consumer("dlpack", there).read(from_cai(x, stream=-1, device=(2, 1)))
    seen.release()
    cuda.legacy.fill(x, 2.0)
    assert done(seen) == [1.0] * 4
