"""A `DLPackView` on another device: copies there, and memory by another of its names."""

import gc
import weakref

import capsules
import numpy as np
import pytest
from copies import COPIES, NEWEST, copied, made
from fakes import only_cai
from scenes import done

from cai_bridge import from_cai, to_cai

# --- on another GPU -------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("stream", [None, 1, 2, "there"])
@pytest.mark.parametrize("theirs", ["legacy", "p"])
def test_a_copy_goes_to_another_gpu_on_a_stream_of_it(theirs, stream, copy, cuda):
    p = cuda.stream("p") if theirs == "p" else cuda.default_stream(0)
    there = cuda.stream("there", device=1)
    given = there if stream == "there" else stream
    works_on = {"there": there, 2: cuda.default_stream(1, per_thread=True)}.get(
        stream, cuda.default_stream(1)
    )
    x = cuda.array([0.0] * 4, speaks="cai", stream=p)
    p.fill(x, 7.0)
    view = from_cai(x)
    cuda.clear_calls()
    capsule = view.__dlpack__(stream=given, dl_device=(2, 1), copy=copy, max_version=NEWEST)
    assert made(cuda) == [
        ("cuMemAllocAsync", works_on.handle),
        ("cuEventRecord", p.handle),
        ("cuStreamWaitEvent", works_on.handle),
        ("cuMemcpyPeerAsync", works_on.handle),
        ("cuEventRecord", works_on.handle),
        ("cuStreamWaitEvent", p.handle),
    ]
    assert capsules.read(capsule).device == (2, 1)
    taken = to_cai(capsule, stream=-1)
    read = works_on.read(taken)
    p.fill(x, 8.0)
    assert cuda.current_device == 0
    assert done(read) == [7.0] * 4


def test_a_stream_of_the_wrong_gpu_waits_for_a_copy_that_is_made_on_the_right_one(cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([7.0], speaks="cai", stream=p)
    copy, seen = copied(from_cai(x), stream=c, dl_device=(2, 1))
    assert seen.device == (2, 1)
    assert from_cai(only_cai(cuda.array(shape=1), data=(seen.ptr, False))).device == (2, 1)
    read = c.read(copy)
    assert done(read) == [7.0]


def test_rows_go_to_another_gpu_by_one_call(cuda):
    x = cuda.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], speaks="cai")
    view = from_cai(only_cai(x, shape=(2, 2), strides=(12, 4)))
    cuda.clear_calls()
    copy, _ = copied(view, dl_device=(2, 1))
    assert [name for name, _ in made(cuda) if name in COPIES] == ["cuMemcpy3DPeerAsync"]
    cuda.synchronize()
    assert cuda.read(copy) == [[1.0, 2.0], [4.0, 5.0]]


# --- the same memory by another name --------------------------------------------------------------


@pytest.mark.parametrize("memory", ["pinned", "managed"])
@pytest.mark.parametrize("copy", [None, False])
@pytest.mark.parametrize("device", [0, 1])
def test_pinned_and_managed_memory_is_handed_out_as_a_gpus_own(device, copy, memory, cuda):
    p, c = cuda.stream("p"), cuda.stream("c", device=device)
    x = cuda.array([0.0], speaks="cai", memory=memory, stream=p)
    p.fill(x, 7.0)
    view = from_cai(x)
    capsule = view.__dlpack__(stream=c, dl_device=(2, device), copy=copy, max_version=NEWEST)
    seen = capsules.read(capsule)
    assert (seen.device, seen.ptr, seen.flags) == ((2, device), x.ptr, 0)
    assert view.device == (3 if memory == "pinned" else 13, 0)
    read = c.read(x)
    assert done(read) == [7.0]
    assert view.owner is x


@pytest.mark.parametrize("theirs", ["legacy", "p", None])
@pytest.mark.parametrize("mine", [1, 2, "c"])
@pytest.mark.parametrize("device", [0, 1])
def test_memory_that_another_gpu_used_is_let_go_in_order(device, mine, theirs, cuda):
    p = cuda.stream("p") if theirs == "p" else cuda.legacy
    stream = cuda.stream("c", device=device) if mine == "c" else mine
    works_on = stream if mine == "c" else cuda.default_stream(device, per_thread=mine == 2)
    x = cuda.array([7.0], memory="managed", speaks=())
    owner = only_cai(x, shape=(1,), stream=theirs and p.handle)
    ended = []
    # The producer uses its memory again, on its own stream.
    weakref.finalize(owner, lambda: ended.append(p.launch(writes=[x], name="next")))
    taken = capsules.take(from_cai(owner).__dlpack__(stream=stream, dl_device=(2, device)))
    works_on.launch(reads=[x], name="late")
    del owner
    taken.delete()
    cuda.synchronize()
    from_cai(only_cai(cuda.array(shape=4))).__dlpack__()
    assert len(ended) == 1, "looked after at the next call at the latest"
    cuda.synchronize()


@pytest.mark.parametrize("memory", ["pinned", "managed"])
def test_memory_that_the_cpu_reaches_is_shared_with_it_where_a_copy_is_ruled_out(memory, cuda):
    p = cuda.stream("p")
    x = cuda.array([0.0] * 2, speaks="cai", memory=memory, stream=p)
    p.fill(x, 7.0)
    shared = np.from_dlpack(from_cai(x), device="cpu", copy=False)
    assert (shared.ctypes.data, shared.tolist()) == (x.ptr, [7.0, 7.0])
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is not None
    del shared
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("memory", ["pinned", "managed"])
@pytest.mark.parametrize("max_version", [None, NEWEST])
def test_memory_that_is_shared_with_the_cpu_keeps_its_flag(max_version, memory, cuda):
    view = from_cai(cuda.array([1.0], speaks="cai", memory=memory, readonly=max_version == NEWEST))
    seen = capsules.read(view.__dlpack__(dl_device=(1, 0), copy=False, max_version=max_version))
    assert (seen.device, seen.ptr) == ((1, 0), view.ptr)
    assert seen.flags == (None if max_version is None else capsules.READ_ONLY)
