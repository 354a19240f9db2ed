"""Copies that a `DLPackView` makes, here or elsewhere, and memory by another of its names."""

import ctypes
import gc
import weakref

import capsules
import numpy as np
import pytest
from capsules import IS_COPIED, HandMade
from copies import COPIES, NEWEST, copied, made
from fakes import only_cai
from scenes import done

from cai_bridge import DriverError, convert, from_cai, to_cai

EACH_DEVICE = pytest.mark.parametrize("device", [(2, 0), (2, 1), (1, 0)])
REACHED = pytest.mark.parametrize("memory", ["pinned", "managed"])


@pytest.mark.parametrize("stream", [None, 1, 2, "c", "object"])
@pytest.mark.parametrize("pending", [False, True])
def test_a_copy_is_made_on_the_consumers_stream_after_the_producers(stream, pending, cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([[1.0, 2.0], [3.0, 4.0]], speaks="cai", stream=p if pending else None)
    if pending:
        p.fill(x, 7.0)
    works_on = {None: cuda.legacy, 1: cuda.legacy, 2: cuda.per_thread}.get(stream, c)
    given = {"c": c.handle, "object": c}.get(stream, stream)
    view = from_cai(x)
    cuda.clear_calls()
    capsule = view.__dlpack__(stream=given, copy=True, max_version=NEWEST)
    order = [("cuEventRecord", p.handle), ("cuStreamWaitEvent", works_on.handle)]
    wanted = [("cuMemAllocAsync", works_on.handle), *(order if pending else [])]
    wanted.append(("cuMemcpyAsync", works_on.handle))
    assert made(cuda)[: len(wanted)] == wanted
    assert cuda.pending == (3 if pending else 1), "the host does not wait"
    seen = capsules.read(capsule)
    assert (seen.version, seen.flags, seen.device) == ((1, 3), IS_COPIED, (2, 0))
    assert (seen.shape, seen.strides, seen.byte_offset) == ((2, 2), (2, 1), 0)
    assert seen.ptr not in (0, x.ptr)
    assert seen.ptr % 256 == 0
    read = works_on.read(to_cai(capsule, stream=-1))
    assert done(read) == ([[7.0, 7.0]] * 2 if pending else [[1.0, 2.0], [3.0, 4.0]])


def test_with_minus_one_the_copy_is_made_on_the_producers_stream(cuda):
    p = cuda.stream("p")
    pending, idle = cuda.array([1.0], speaks="cai", stream=p), cuda.array([2.0], speaks="cai")
    for x, works_on in ((pending, p), (idle, cuda.legacy)):
        view = from_cai(x)
        cuda.clear_calls()
        copy, _ = copied(view, stream=-1)
        # Where the producer's stream is not known, a mark says when its memory may go. Nobody keeps
        # the other for the copy's sake: the legacy default stream stands in for it at its end.
        legacy = [("cuEventRecord", p.handle), ("cuStreamWaitEvent", 1)]
        assert made(cuda) == [
            ("cuMemAllocAsync", works_on.handle),
            ("cuMemcpyAsync", works_on.handle),
            *([("cuEventRecord", 1)] if x is idle else legacy),
        ]
        assert done(works_on.read(copy)) == x.tolist()
        del copy


@pytest.mark.parametrize("max_version", [None, NEWEST])
def test_a_copy_of_read_only_memory_may_be_written_and_go_into_a_legacy_capsule(max_version, cuda):
    x = cuda.array([1.0, 2.0], speaks="cai", readonly=True)
    capsule = from_cai(x).__dlpack__(copy=True, max_version=max_version)
    assert capsules.read(capsule).flags == (None if max_version is None else IS_COPIED)
    copy = to_cai(capsule)
    assert not copy.readonly
    cuda.legacy.fill(copy, 9.0)
    cuda.synchronize()
    assert (x.tolist(), cuda.read(copy)) == ([1.0, 2.0], [9.0, 9.0])


def test_a_copy_of_nothing_needs_no_memory(cuda):
    view = from_cai(cuda.array(shape=(3, 0), speaks="cai"))
    cuda.clear_calls()
    for wishes in ({}, {"dl_device": (2, 1)}, {"dl_device": (1, 0)}):
        seen = capsules.read(view.__dlpack__(copy=True, max_version=NEWEST, **wishes))
        assert (seen.ptr, seen.shape, seen.flags) == (0, (3, 0), IS_COPIED)
    assert made(cuda) == []


def part_of(x, host, part, **entries):
    """The exporter of a part of `x`, as NumPy's `part` is one of `host`."""
    offset = part.__array_interface__["data"][0] - host.__array_interface__["data"][0]
    entries = {"shape": part.shape, "strides": part.strides, **entries}
    return only_cai(x, data=(x.ptr + offset, False), typestr=host.dtype.str, **entries)


def assert_copied(cuda, view, device, wanted):
    """A copy of a view there has these values; its calls are given back."""
    cuda.clear_calls()
    capsule = view.__dlpack__(copy=True, dl_device=device, max_version=NEWEST)
    calls = [name for name, _ in made(cuda) if name in COPIES]
    seen = capsules.read(capsule)
    assert (seen.device, seen.shape, seen.ptr % 256) == (device, wanted.shape, 0)
    if device == (1, 0):
        memory = (ctypes.c_char * wanted.nbytes).from_address(seen.ptr)
        assert np.frombuffer(memory, wanted.dtype).tolist() == wanted.reshape(-1).tolist()
    else:
        copy = to_cai(capsule, stream=-1)
        cuda.synchronize()
        assert cuda.read(copy) == wanted.tolist()
    return calls


LAYOUTS = {
    "C-contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(2, 0, 1),
    "Fortran": lambda x: x.transpose(2, 1, 0),
    "rows with gaps": lambda x: x[:, :, :3],
    "planes with gaps": lambda x: x[:, :2, 1:],
    "steps": lambda x: x[::2, :, ::2],
    "reversed": lambda x: x[::-1, ::-1, ::-1],
    "reversed rows": lambda x: x[:, :, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[0, 0], (2, 3, 4)),
    "one column": lambda x: x[:, :, 1:2],
    "one": lambda x: x[1:2, 1:2, 1:2],
    "0-d": lambda x: x[1, 2, 3, ...],
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x.reshape(-1), 5),
}


@EACH_DEVICE
@pytest.mark.parametrize("dtype", ["int8", "float32", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_is_copied_right(layout, dtype, device, cuda):
    host = np.arange(24).astype(dtype).reshape(2, 3, 4)
    x, part = cuda.array(host.tolist(), dtype=dtype, speaks=()), LAYOUTS[layout](host)
    assert_copied(cuda, from_cai(part_of(x, host, part)), device, part)


@pytest.mark.parametrize(
    ("part", "calls", "device"),
    [
        (np.s_[:], ["cuMemcpyAsync"], (2, 0)),
        (np.s_[1], ["cuMemcpyAsync"], (2, 0)),
        (np.s_[:, 1:3, :], ["cuMemcpy2DAsync"], (2, 0)),
        (np.s_[:, :, 0:3], ["cuMemcpy2DAsync"], (2, 0)),
        (np.s_[:, 1:3, 1:4], ["cuMemcpy3DAsync"], (2, 0)),
        (np.s_[:, ::-1], ["cuMemcpy2DAsync"] * 4, (2, 0)),
        (np.s_[1, :, 0:3], ["cuMemcpy3DPeerAsync"], (2, 1)),
    ],
)
def test_one_call_makes_a_copy_where_the_layout_allows(part, calls, device, cuda):
    host = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    x = cuda.array(host.tolist(), speaks=())
    view = from_cai(part_of(x, host, host[part]))
    assert assert_copied(cuda, view, device, host[part]) == calls


@EACH_DEVICE
@pytest.mark.parametrize(
    ("part", "shape"),
    [
        (np.s_[0, 0, 2:], (1 << 10,)),
        (np.s_[0], (1 << 10, 3)),
        (np.s_[0, 0, :, None], (3, 1 << 10)),
        (np.s_[:, :, :, None], (2, 30, 3, 20)),
    ],
)
def test_a_broadcast_axis_is_copied_by_doubling(part, shape, device, cuda):
    """So a copy of many equal items does not hold the host for a call each."""
    host = np.arange(6, dtype=np.int32).reshape(2, 1, 3)
    x, wide = (
        cuda.array(host.tolist(), dtype="int32", speaks=()),
        np.broadcast_to(host[part], shape),
    )
    view = from_cai(part_of(x, host, wide), stream=cuda.stream("p"))
    assert 1 <= len(assert_copied(cuda, view, device, wide)) <= 11


@pytest.mark.parametrize("extent", [2**62, 2**62 + 5, 2**63 - 1])
def test_a_copy_of_more_items_than_any_memory_has_is_refused(extent, cuda):
    x = cuda.array([1], dtype="uint8", speaks=())
    x = only_cai(x, shape=(extent,), strides=(0,), typestr="|u1")
    said = rf"^memory: got {extent} bytes asked for \(cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY"
    with pytest.raises(DriverError, match=said):
        convert(x, "cai", copy=True)
    on_host = np.lib.stride_tricks.as_strided(np.zeros(1, "u1"), shape=(extent,), strides=(0,))
    with pytest.raises(BufferError, match=rf"copy: got {extent} bytes; allowed: a copy that fits"):
        convert(on_host, "cai", copy=True)


def test_lanes_are_copied_as_lanes(cuda):
    x = cuda.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], speaks=())
    tensor = HandMade(x.ptr, shape=(2,), strides=(2,), lanes=2)
    copy, seen = copied(from_cai(to_cai(tensor.capsule())))
    assert (seen.dtype, seen.shape, seen.strides) == ((2, 32, 2), (2,), (1,))
    cuda.synchronize()
    assert cuda.read(copy) == [[1.0, 2.0], [5.0, 6.0]]


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("stream", [None, 1, 2, "there"])
@pytest.mark.parametrize("theirs", ["legacy", "p"])
def test_a_copy_goes_to_another_gpu_on_a_stream_of_it(theirs, stream, copy, cuda):
    p = cuda.stream("p") if theirs == "p" else cuda.default_stream(0)
    there = cuda.stream("there", device=1)
    works_on = there if stream == "there" else cuda.default_stream(1, per_thread=stream == 2)
    x = cuda.array([0.0] * 4, speaks="cai", stream=p)
    p.fill(x, 7.0)
    view = from_cai(x)
    cuda.clear_calls()
    given = there if stream == "there" else stream
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
    assert done(c.read(copy)) == [7.0]


@REACHED
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
    assert done(c.read(x)) == [7.0]
    assert view.owner is x


@REACHED
def test_a_copy_of_memory_that_the_cpu_reaches_is_where_its_reader_is(memory, cuda):
    """Readers on the CPU name no stream (NumPy); those on a GPU do (CuPy, JAX)."""
    p = cuda.stream("p", blocking=False)
    for device in (0, 1):
        x = cuda.array([1.0] * 4, memory=memory, speaks="cai", stream=p, device=device)
        p.fill(x, 7.0)
        view = from_cai(x)
        assert np.from_dlpack(view, copy=True).tolist() == [7.0] * 4
        again, seen = copied(view, stream=1)
        assert seen.device == (2, device)
        assert again.ptr != x.ptr
        cuda.synchronize()
        assert cuda.read(again) == [7.0] * 4
        assert view.__dlpack__(max_version=NEWEST) is not None


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


@REACHED
@pytest.mark.parametrize("max_version", [None, NEWEST])
def test_memory_that_the_cpu_reaches_is_shared_with_it_where_a_copy_is_ruled_out(
    max_version, memory, cuda
):
    p, readonly = cuda.stream("p"), max_version == NEWEST
    memory = cuda.array([0.0] * 2, speaks=(), memory=memory, stream=p)
    p.fill(memory, 7.0)
    x = only_cai(memory, shape=(2,), data=(memory.ptr, readonly), stream=p.handle)
    view = from_cai(x)
    seen = capsules.read(view.__dlpack__(dl_device=(1, 0), copy=False, max_version=max_version))
    assert (seen.device, seen.ptr) == ((1, 0), memory.ptr)
    assert seen.flags == (capsules.READ_ONLY if readonly else None)
    shared = np.from_dlpack(view, device="cpu", copy=False)
    assert (shared.ctypes.data, shared.tolist()) == (memory.ptr, [7.0, 7.0])
    gone = weakref.ref(x)
    del x, view
    gc.collect()
    assert gone() is not None
    del shared
    gc.collect()
    assert gone() is None
