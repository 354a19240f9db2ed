"""Copies that a `DLPackView` makes on its own GPU, and of any layout."""

import capsules
import numpy as np
import pytest
from capsules import IS_COPIED, HandMade
from copies import COPIES, NEWEST, copied, made
from fakes import only_cai

from cai_bridge import DriverError, convert, from_cai, to_cai


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
        # Where the producer's stream is not known, a mark says when its memory may go. Nobody keeps
        # the other for the copy's sake: the legacy default stream stands in for it at its end.
        legacy = [("cuEventRecord", p.handle), ("cuStreamWaitEvent", 1)]
        mark = [("cuEventRecord", 1)] if x is idle else legacy
        assert made(cuda) == [
            ("cuMemAllocAsync", works_on.handle),
            ("cuMemcpyAsync", works_on.handle),
            *mark,
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


@pytest.mark.parametrize("device", [(2, 0), (2, 1), (1, 0)])
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
    x, chosen = cuda.array(host.reshape(-1).tolist(), dtype="int32", speaks=()), host[part]
    wide = np.broadcast_to(chosen, shape)
    offset = chosen.__array_interface__["data"][0] - host.__array_interface__["data"][0]
    data = (x.ptr + offset, False)
    dict_of = {"data": data, "shape": shape, "strides": wide.strides, "typestr": "<i4"}
    view = from_cai(only_cai(x, **dict_of), stream=cuda.stream("p"))
    cuda.clear_calls()
    capsule = view.__dlpack__(copy=True, dl_device=device, max_version=NEWEST)
    calls = [name for name, _ in made(cuda) if name in COPIES]
    assert 1 <= len(calls) <= 11
    if device == (1, 0):
        seen = capsules.read(capsule)
        bytes_of = (np.ctypeslib.ctypes.c_char * wide.nbytes).from_address(seen.ptr)
        assert np.array_equal(np.frombuffer(bytes_of, "int32").reshape(shape), wide)
        return
    copy = to_cai(capsule, stream=-1)
    cuda.synchronize()
    assert np.array_equal(cuda.read(copy), wide)


@pytest.mark.parametrize("extent", [2**62, 2**62 + 5, 2**63 - 1])
def test_a_copy_of_more_items_than_any_memory_has_is_refused(extent, cuda):
    x = cuda.array([1], dtype="uint8", speaks=())
    x = only_cai(x, shape=(extent,), strides=(0,), typestr="|u1")
    said = rf"^memory: got {extent} bytes asked for \(cuMemAllocAsync: CUDA_ERROR_OUT_OF_MEMORY"
    with pytest.raises(DriverError, match=said):
        convert(x, "cai", copy=True)
    item = np.zeros(1, "u1")
    on_host = np.lib.stride_tricks.as_strided(item, shape=(extent,), strides=(0,))
    with pytest.raises(BufferError, match=rf"copy: got {extent} bytes; allowed: a copy that fits"):
        convert(on_host, "cai", copy=True)


def test_lanes_are_copied_as_lanes(cuda):
    x = cuda.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], speaks=())
    tensor = HandMade(x.ptr, shape=(2,), strides=(2,), lanes=2)
    copy, seen = copied(from_cai(to_cai(tensor.capsule())))
    assert (seen.dtype, seen.shape, seen.strides) == ((2, 32, 2), (2,), (1,))
    cuda.synchronize()
    assert cuda.read(copy) == [[1.0, 2.0], [5.0, 6.0]]


@pytest.mark.parametrize("memory", ["pinned", "managed"])
def test_a_copy_of_memory_that_the_cpu_reaches_is_where_its_reader_is(memory, cuda):
    """Readers on the CPU name no stream (NumPy); those on a GPU do (CuPy, JAX)."""
    p = cuda.stream("p", blocking=False)
    for device in (0, 1):
        x = cuda.array([1.0] * 4, memory=memory, speaks="cai", stream=p, device=device)
        p.fill(x, 7.0)
        view = from_cai(x)
        copy = np.from_dlpack(view, copy=True)
        assert copy.tolist() == [7.0] * 4
        again, seen = copied(view, stream=1)
        assert seen.device == (2, device)
        assert again.ptr != x.ptr
        cuda.synchronize()
        assert cuda.read(again) == [7.0] * 4
        assert view.__dlpack__(max_version=NEWEST) is not None
