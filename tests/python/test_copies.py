"""Copies that a `DLPackView` makes: on its own GPU, on another one, and in the host's memory."""

import gc
import threading

import capsules
import numpy as np
import pytest
from capsules import IS_COPIED, HandMade
from fakes import only_cai
from found import kinds

from cai_bridge import from_cai, to_cai

NEWEST = (1, 3)
COPIES = {
    "cuMemcpyAsync",
    "cuMemcpyDtoHAsync",
    "cuMemcpyPeerAsync",
    "cuMemcpy2DAsync",
    "cuMemcpy3DAsync",
    "cuMemcpy3DPeerAsync",
}
CALLS = {*COPIES, "cuMemAllocAsync", "cuMemFreeAsync", "cuMemFree", "cuCtxSynchronize"}
CALLS |= {"cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize"}


def made(cuda):
    """The calls that queue something or wait, with their streams."""
    return [(call.call, call.stream) for call in cuda.calls if call.call in CALLS]


def copied(view, **wishes):
    """A copy as a consumer takes it in, and what its structure said."""
    capsule = view.__dlpack__(max_version=NEWEST, copy=True, **wishes)
    seen = capsules.read(capsule)
    return to_cai(capsule, stream=-1), seen


def values(shape):
    return np.arange(1.0, 1.0 + np.prod(shape), dtype=np.float32).reshape(shape)


# --- on the array's own GPU -----------------------------------------------------------------------


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
    calls = made(cuda)
    first = p.handle if pending else None
    order = [("cuEventRecord", first), ("cuStreamWaitEvent", works_on.handle)] if pending else []
    assert calls[: 2 + len(order)] == [
        ("cuMemAllocAsync", works_on.handle),
        *order,
        ("cuMemcpyAsync", works_on.handle),
    ]
    assert cuda.pending == (3 if pending else 1), "the host does not wait"
    seen = capsules.read(capsule)
    assert (seen.version, seen.flags, seen.device) == ((1, 3), IS_COPIED, (2, 0))
    assert (seen.shape, seen.strides, seen.byte_offset) == ((2, 2), (2, 1), 0)
    assert seen.ptr not in (0, x.ptr)
    assert seen.ptr % 256 == 0
    read = works_on.read(to_cai(capsule, stream=-1))
    cuda.synchronize()
    assert read.value == ([[7.0, 7.0]] * 2 if pending else [[1.0, 2.0], [3.0, 4.0]])


def test_with_minus_one_the_copy_is_made_on_the_producers_stream(cuda):
    p = cuda.stream("p")
    pending, idle = cuda.array([1.0], speaks="cai", stream=p), cuda.array([2.0], speaks="cai")
    for x, works_on in ((pending, p), (idle, cuda.legacy)):
        view = from_cai(x)
        cuda.clear_calls()
        copy, _ = copied(view, stream=-1)
        assert made(cuda) == [
            ("cuMemAllocAsync", works_on.handle),
            ("cuMemcpyAsync", works_on.handle),
        ]
        read = works_on.read(copy)
        cuda.synchronize()
        assert read.value == x.tolist()
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


LAYOUTS = {
    "C-contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(2, 0, 1),
    "Fortran": np.asfortranarray,
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


@pytest.mark.parametrize("device", [(2, 0), (2, 1), (1, 0)])
@pytest.mark.parametrize("dtype", ["int8", "float32", "complex128"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_is_copied_right(layout, dtype, device, cuda):
    host = np.arange(24).astype(dtype).reshape(2, 3, 4)
    base = cuda.array(host.reshape(-1).tolist(), dtype=dtype, speaks=())
    part = LAYOUTS[layout](host)
    if layout == "Fortran":
        base.assign(host.reshape(-1, order="F").tolist())
        offset = 0
    else:
        offset = part.__array_interface__["data"][0] - host.__array_interface__["data"][0]
    strides, typestr = part.strides, host.dtype.str
    data = (base.ptr + offset, False)
    x = only_cai(base, data=data, shape=part.shape, strides=strides, typestr=typestr)
    capsule = from_cai(x).__dlpack__(copy=True, dl_device=device, max_version=NEWEST)
    if device == (1, 0):
        seen = capsules.read(capsule)
        bytes_of = (np.ctypeslib.ctypes.c_char * part.nbytes).from_address(seen.ptr)
        assert np.frombuffer(bytes_of, dtype).tolist() == part.reshape(-1).tolist()
        assert seen.ptr % 256 == 0
        return
    copy = to_cai(capsule, stream=-1)
    assert (copy.shape, copy.device) == (part.shape, device)
    cuda.synchronize()
    assert cuda.read(copy) == part.tolist()


@pytest.mark.parametrize(
    ("part", "call", "count"),
    [
        (np.s_[:], "cuMemcpyAsync", 1),
        (np.s_[1], "cuMemcpyAsync", 1),
        (np.s_[:, 1:3, :], "cuMemcpy2DAsync", 1),
        (np.s_[:, :, 0:3], "cuMemcpy2DAsync", 1),
        (np.s_[:, 1:3, 1:4], "cuMemcpy3DAsync", 1),
        (np.s_[:, ::-1], "cuMemcpy2DAsync", 4),
    ],
)
def test_one_call_makes_a_copy_where_the_layout_allows(part, call, count, cuda):
    host = values((3, 4, 5))
    x = cuda.array(host.tolist(), speaks=())
    chosen = host[part]
    offset = chosen.__array_interface__["data"][0] - host.__array_interface__["data"][0]
    data = (x.ptr + offset, False)
    view = from_cai(only_cai(x, data=data, shape=chosen.shape, strides=chosen.strides))
    cuda.clear_calls()
    copy, _ = copied(view)
    assert [name for name, _ in made(cuda) if name in COPIES] == [call] * count
    cuda.synchronize()
    assert cuda.read(copy) == chosen.tolist()


def test_lanes_are_copied_as_lanes(cuda):
    x = cuda.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], speaks=())
    tensor = HandMade(x.ptr, shape=(2,), strides=(2,), lanes=2)
    copy, seen = copied(from_cai(to_cai(tensor.capsule())))
    assert (seen.dtype, seen.shape, seen.strides) == ((2, 32, 2), (2,), (1,))
    cuda.synchronize()
    assert cuda.read(copy) == [[1.0, 2.0], [5.0, 6.0]]


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
    cuda.synchronize()
    assert read.value == [7.0] * 4


def test_a_stream_of_the_wrong_gpu_waits_for_a_copy_that_is_made_on_the_right_one(cuda):
    p, c = cuda.stream("p"), cuda.stream("c")
    x = cuda.array([7.0], speaks="cai", stream=p)
    copy, seen = copied(from_cai(x), stream=c, dl_device=(2, 1))
    assert seen.device == (2, 1)
    read = c.read(copy)
    cuda.synchronize()
    assert read.value == [7.0]


def test_rows_go_to_another_gpu_by_one_call(cuda):
    x = cuda.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], speaks="cai")
    view = from_cai(only_cai(x, shape=(2, 2), strides=(12, 4)))
    cuda.clear_calls()
    copy, _ = copied(view, dl_device=(2, 1))
    assert [name for name, _ in made(cuda) if name in COPIES] == ["cuMemcpy3DPeerAsync"]
    cuda.synchronize()
    assert cuda.read(copy) == [[1.0, 2.0], [4.0, 5.0]]


# --- in the host's memory -------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["device", "pinned", "managed"])
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("pending", [False, True])
def test_numpy_takes_a_copy_by_asking_for_the_cpu(pending, copy, memory, cuda):
    p, busy = cuda.stream("p"), cuda.stream("busy")
    x = cuda.array([[1.0, 2.0]] * 2, speaks="cai", memory=memory, strides="F")
    if pending:
        p.fill(x, 7.0)
    busy.launch(name="long")
    view = from_cai(x)
    array = np.from_dlpack(view, device="cpu", copy=copy)
    assert array.tolist() == ([[7.0, 7.0]] * 2 if pending else [[1.0, 2.0]] * 2)
    assert cuda.pending == 1, "only the producer's stream is waited for"
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert array.ctypes.data % 256 == 0
    array[:] = 3.0
    assert x.tolist() != array.tolist()
    del view
    gc.collect()
    assert array.tolist() == [[3.0, 3.0]] * 2


@pytest.mark.parametrize("max_version", [None, NEWEST])
def test_a_capsule_for_the_cpu_says_so(max_version, cuda):
    view = from_cai(cuda.array([1.0], speaks="cai", readonly=True))
    seen = capsules.read(view.__dlpack__(dl_device=(1, 0), max_version=max_version))
    assert (seen.device, seen.flags) == ((1, 0), None if max_version is None else IS_COPIED)


def test_the_interpreter_lock_is_free_while_the_host_waits(cuda):
    p, others = cuda.stream("p"), []
    x = cuda.array([1.0], speaks="cai", stream=p)

    # Work that needs the lock on another thread: it would never end if the waiting thread held it.
    def run():
        thread = threading.Thread(target=others.append, args=(1,))
        thread.start()
        thread.join(timeout=20)

    p.launch(run, name="callback")
    assert np.from_dlpack(from_cai(x), device="cpu").tolist() == [1.0]
    assert others == [1]


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
    cuda.synchronize()
    assert read.value == [7.0]
    assert view.owner is x


@pytest.mark.parametrize("memory", ["pinned", "managed"])
@pytest.mark.parametrize("device", [0, 1])
def test_pinned_and_managed_memory_is_copied_to_a_gpu(device, memory, cuda):
    p, c = cuda.stream("p"), cuda.stream("c", device=device)
    x = cuda.array([0.0], speaks="cai", memory=memory, stream=p)
    p.fill(x, 7.0)
    copy, seen = copied(from_cai(x), stream=c, dl_device=(2, device))
    assert (seen.device, seen.ptr == x.ptr) == ((2, device), False)
    read = c.read(copy)
    cuda.synchronize()
    assert read.value == [7.0]


@pytest.mark.parametrize(("memory", "kind"), [("pinned", 3), ("managed", 13)])
def test_an_arrays_own_kind_of_memory_is_no_other_device(memory, kind, cuda):
    view = from_cai(cuda.array([1.0], memory=memory, speaks="cai"))
    for copy in (None, False):
        seen = capsules.read(view.__dlpack__(dl_device=(kind, 0), copy=copy))
        assert (seen.device, seen.ptr) == ((kind, 0), view.ptr)
    with pytest.raises(BufferError, match=r"^dl_device: got \(\d+, 0\) for an array on"):
        view.__dlpack__(dl_device=(16 - kind, 0))


def test_a_copy_in_a_capsule_is_taken_for_what_it_is(cuda):
    stream = cuda.stream()
    view = from_cai(cuda.array([1.0], speaks="cai"))
    capsule = view.__dlpack__(stream=stream, copy=True, max_version=NEWEST)
    again = from_cai(to_cai(capsule, stream=-1))
    assert capsules.read(again.__dlpack__(max_version=NEWEST)).flags == 0
    read = stream.read(again)
    cuda.synchronize()
    assert read.value == [1.0]
    assert kinds(cuda) == []
