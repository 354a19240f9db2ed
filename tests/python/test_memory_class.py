"""`examples/memory_class` on the simulated device: memory of Rust's that is lent under locks.

Skipped where it is not built: ``make extensions``. The rules are those of a memory class in C++
that exports DLPack under a context manager, and whose versioned structures travel as ``dltensor``.
"""

import gc
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from capsules import HandMade, capsule_of
from fakes import DLPackPair

from cai_bridge import to_cai, to_dlpack

memory = pytest.importorskip(
    "memory_class", reason="examples/memory_class is not built: make extensions"
)

CPU, CUDA = 1, 2  # DLPack's device types
TYPES = ("int32", "int64", "float32", "float64")
SHAPES = ([5], [2, 3], [2, 3, 4], [2, 1, 3, 2])
every_type = pytest.mark.parametrize("dtype", TYPES)
every_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture
def m(cuda):
    return memory.MemArray([4])


@pytest.fixture
def mine(cuda):
    """A stream of the test's, which follows no other."""
    return cuda.stream("mine", blocking=False)


def wanted_of(shape, dtype):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def on_host(m):
    with m.get_dlpack(CPU) as x:
        return np.from_dlpack(x).copy()


def values(cuda, m):
    """What is in the memory, read by a library on a stream of its own."""
    reader = cuda.stream("reader")
    with m.read() as x:
        seen = reader.read(to_cai(x, stream=reader))
        reader.synchronize()
    return seen.value


def address_of(m, stream):
    """The memory by its address alone, as a kernel of a user's takes it: in whatever order."""
    with m.read() as lent, to_cai(lent, stream=stream) as x:
        return SimpleNamespace(
            ptr=x.ptr, shape=x.shape, strides=x.strides, itemsize=x.itemsize, typestr=x.typestr
        )


@pytest.mark.parametrize("kind", ["dlpack", "dlpack-exchange", "cai-waits", "cai-enqueues"])
def test_a_writer_writes_and_the_kernel_comes_after_it(cuda, m, mine, kind):
    with cuda.current_stream(mine):
        with m.write() as x:
            cuda.consumer(kind, mine).write(x, 5.0).release()
        m.add_index()
    assert values(cuda, m) == [5.0, 6.0, 7.0, 8.0]


def test_a_reader_that_keeps_its_tensor_is_waited_for_at_the_end_of_the_block(cuda, m, mine):
    with cuda.current_stream(mine):
        with m.read() as x:
            kept = cuda.consumer("dlpack", mine).read(x)
        m.add_index()
        mine.synchronize()
        assert kept.value == [0.0] * 4
        kept.release()


def test_many_may_read_and_one_may_write(m):
    with m.read(), m.read():
        with pytest.raises(RuntimeError, match="locked by readers"), m.write():
            pass
        with pytest.raises(RuntimeError, match="locked by readers"):
            m.add_index()
    with m.write():
        for again in (m.read, m.write):
            with pytest.raises(RuntimeError, match="locked by a writer"), again():
                pass
    with pytest.raises(KeyError), m.write():
        raise KeyError
    m.add_index()


def test_what_was_lent_is_refused_after_the_block(m):
    with m.read() as x:
        pass
    with pytest.raises(BufferError, match="released"):
        to_dlpack(x)


def test_the_deleter_is_called_once_when_the_last_user_is_gone(cuda, mine):
    called = []
    m = memory.MemArray([4], deleter=lambda: called.append(1))
    with m.write() as x:
        kept = cuda.consumer("dlpack", mine).read(x)
    del m, x
    gc.collect()
    assert called == []
    kept.release()
    mine.synchronize()
    gc.collect()
    assert called == [1]


def test_values_of_another_library_are_assigned_in_order(cuda, m):
    theirs = cuda.stream("theirs")
    with cuda.current_stream(theirs):
        x = cuda.array([1.0, 2.0, 3.0, 4.0], speaks="exchange", stream=theirs, memory="pool")
        m.assign(x)
        del x
    assert values(cuda, m) == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("shape", [(3, 2), (1, 3), (6,), (2, 3, 1), ()])
def test_values_of_another_shape_are_refused_and_change_nothing(cuda, shape):
    m = memory.MemArray([2, 3])
    theirs, fits = (cuda.array(shape=s, fill=1.0, speaks="exchange") for s in (shape, (2, 3)))
    host = np.ones(shape, "float32")
    for take, given in ((m.assign, theirs), (m.assign, host), (m.read_numpy_array, host)):
        with pytest.raises(ValueError, match=r"shape: got \[.*\]; allowed: \[2, 3\]"):
            take(given)
    assert m.on_device
    assert values(cuda, m) == [[0.0] * 3] * 2
    m.assign(fits)
    cuda.synchronize()


@every_type
@every_shape
def test_every_type_and_shape_is_assigned_from_the_gpu_and_from_the_host(cuda, dtype, shape):
    wanted = wanted_of(shape, dtype)
    m = memory.MemArray(shape, dtype)
    assert (m.shape, m.dtype) == (shape, dtype)
    with m.read() as x:
        assert (x.shape, x.typestr, x.readonly) == (tuple(shape), wanted.dtype.str, True)
    assert not np.any(values(cuda, m))
    x = cuda.array(wanted, speaks="exchange")
    m.assign(x)
    assert m.on_device
    assert values(cuda, m) == wanted.tolist()
    del x
    m.assign(wanted[::-1] + 1)
    assert not m.on_device
    assert values(cuda, m) == (wanted[::-1] + 1).tolist()


@every_type
def test_values_in_another_order_are_assigned_by_their_indices(cuda, dtype):
    wanted = wanted_of((2, 3, 4), dtype)
    x = cuda.array(wanted, speaks="exchange", strides="F")
    m = memory.MemArray([2, 3, 4], dtype)
    m.assign(x)
    assert values(cuda, m) == wanted.tolist()
    del x


def test_four_dimensions_in_another_order_are_refused(cuda):
    m = memory.MemArray([2, 1, 3, 2])
    x = cuda.array(np.ones((2, 1, 3, 2), "float32"), speaks="exchange", strides="F")
    with pytest.raises(BufferError, match="contiguous"):
        m.assign(x)
    m[0, 0, 0, 0] = 1.0


def test_another_type_is_refused(cuda):
    with pytest.raises(TypeError, match="dtype: got complex64; allowed: int32"):
        memory.MemArray([2], "complex64")
    m = memory.MemArray([2], "int32")
    with pytest.raises(TypeError, match="dtype: got float32; allowed: int32"):
        m.assign(cuda.array([1.0, 2.0], speaks="exchange"))
    m.assign([3, 4])
    assert values(cuda, m) == [3, 4]


@every_type
@every_shape
def test_memory_goes_to_the_host_and_numpy_reads_it_without_a_copy(cuda, dtype, shape):
    wanted = wanted_of(shape, dtype)
    m = memory.MemArray(shape, dtype)
    m.read_numpy_array(np.asfortranarray(wanted))
    m.move_memory(CUDA)
    m.move_memory(CUDA)
    assert m.on_device
    with m.get_dlpack(CPU) as x:
        seen = np.from_dlpack(x)
        assert (seen.shape, seen.dtype) == (tuple(shape), wanted.dtype)
        assert np.shares_memory(seen, x)
        assert seen.tolist() == wanted.tolist()
    assert not m.on_device
    with m.get_dlpack() as x:
        assert np.shares_memory(seen, x)
        x[...] = wanted + 1
    assert values(cuda, m) == (wanted + 1).tolist()
    assert m.on_device


@every_type
def test_the_kernel_moves_what_is_on_the_host_to_the_gpu_and_adds_to_each_type(cuda, dtype):
    m = memory.MemArray([70_000], dtype)
    start = np.full(70_000, np.iinfo(dtype).max - 9 if dtype.startswith("int") else 1.5, dtype)
    m.assign(start)
    m.add_index()
    assert m.on_device
    assert np.array_equal(on_host(m), start + np.arange(70_000, dtype=dtype))


def test_a_copy_to_the_host_comes_after_the_work_of_its_stream(cuda, m, mine):
    mine.fill(address_of(m, mine), 6.0)
    m.move_memory(CPU, stream=mine)
    assert [m[i] for i in range(4)] == [6.0] * 4


def test_work_of_the_stream_comes_after_a_copy_to_the_gpu(cuda, m, mine):
    address = address_of(m, mine)
    m.read_numpy_array([7.0] * 4)
    m.move_memory(CUDA, stream=mine, async_copy=True)
    seen = mine.read(address)
    mine.synchronize()
    assert seen.value == [7.0] * 4


def test_a_copy_in_the_background_is_waited_for_by_whoever_is_next(cuda, m, mine):
    with m.write() as x:
        cuda.consumer("dlpack", mine).write(x, 5.0).release()
    m.move_memory(CPU, async_copy=True)
    assert on_host(m).tolist() == [5.0] * 4


def test_memory_that_is_dropped_during_a_copy_in_the_background_is_freed(cuda):
    called = threading.Event()
    m = memory.MemArray([4], deleter=called.set)
    m.move_memory(CPU, async_copy=True)
    del m
    assert called.wait(10)


def only_dlpack(array):
    """A host array that speaks nothing but DLPack."""
    return DLPackPair(array.__dlpack__, device=(CPU, 0))


@pytest.mark.parametrize("kind", [list, only_dlpack, np.asfortranarray])
def test_whatever_numpy_takes_is_read(cuda, kind):
    wanted = np.arange(6).reshape(2, 3)
    m = memory.MemArray([2, 3])
    m.assign(kind(wanted))
    with m.get_dlpack() as x:
        assert np.array_equal(np.from_dlpack(x), wanted)


@pytest.mark.parametrize("device_type", [0, 3, 4, -1])
def test_another_device_type_is_refused_with_those_that_there_are(m, device_type):
    for call in (m.move_memory, m.get_dlpack):
        with pytest.raises(ValueError, match=rf"device_type: got {device_type}; allowed: 1"):
            call(device_type)


def test_memory_that_is_lent_stays_where_it_is(m):
    with m.read():
        for call in (lambda: m.move_memory(CPU), m.get_dlpack(CPU).__enter__):
            with pytest.raises(RuntimeError, match="locked by readers"):
                call()
    with m.get_dlpack(CPU):
        for call in (lambda: m.move_memory(CUDA), m.read().__enter__, lambda: m[0]):
            with pytest.raises(RuntimeError, match="locked by a writer"):
                call()
    m.move_memory(CUDA)
    assert m.on_device


@pytest.mark.parametrize("at", [CPU, CUDA])
@every_type
def test_elements_are_read_and_written_where_they_are(cuda, at, dtype):
    m = memory.MemArray([2, 3], dtype)
    m.move_memory(at)
    indexer = m.get_indexer()
    for place in range(indexer.size):
        m[indexer.get_indices(place)] = place + 1
    assert [m[i, j] for i in range(2) for j in range(3)] == [1, 2, 3, 4, 5, 6]
    assert type(m[0, 0]) is (float if dtype.startswith("float") else int)
    assert m.on_device == (at == CUDA)


@pytest.mark.parametrize("indices", [(2, 0), (0, 3), (-1, 0), (0,), (0, 0, 0), 0, ()])
def test_indices_outside_are_refused(cuda, indices):
    m = memory.MemArray([2, 3])
    for call in (lambda: m[indices], lambda: m.__setitem__(indices, 1.0)):
        with pytest.raises(IndexError, match=r"index: got \[.*\]; allowed: .* \[2, 3\]"):
            call()


@every_shape
def test_the_indexer_goes_both_ways(cuda, shape):
    indexer = memory.MemArray(shape).get_indexer()
    assert (indexer.shape, indexer.size) == (shape, np.prod(shape))
    for place, indices in enumerate(np.ndindex(*shape)):
        assert indexer(indices) == place
        assert tuple(indexer.get_indices(place)) == indices
    for place in (-1, indexer.size):
        with pytest.raises(IndexError, match=f"index: got {place}; allowed: 0 to"):
            indexer.get_indices(place)


@pytest.mark.parametrize("form", ["versioned", "1.0", "1.1"])
@pytest.mark.parametrize("take", ["to_dlpack", "to_cai", "assign"])
def test_a_versioned_structure_in_a_capsule_of_the_legacy_name_is_refused_not_misread(
    cuda, form, take
):
    x = cuda.array([1.0] * 4, speaks="dlpack")
    tensor = HandMade(x.ptr, form=form)
    capsule = capsule_of(tensor.address, "dltensor")
    call = {"to_dlpack": to_dlpack, "to_cai": to_cai, "assign": memory.MemArray([4]).assign}[take]
    with pytest.raises(ValueError, match=r"versioned structure \(1\.\d\) in a capsule named"):
        call(capsule)
    assert '"dltensor"' in repr(capsule)  # not consumed
    assert not tensor.deleted
