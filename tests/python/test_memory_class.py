"""`examples/memory_class` on the simulated device: memory of Rust's that is lent under locks.

Skipped where it is not built: ``make extensions``. The rules are those of a memory class in C++
that exports DLPack under a context manager, and whose versioned structures travel as ``dltensor``.
"""

from __future__ import annotations

import gc

import pytest
from capsules import HandMade, capsule_of

from cai_bridge import from_cai, to_cai, to_dlpack

memory = pytest.importorskip(
    "memory_class", reason="examples/memory_class is not built: make extensions"
)

CONSUMERS = ("dlpack", "dlpack-exchange", "cai-waits", "cai-enqueues")


def values(cuda, m):
    """What is in the memory, read by a library on a stream of its own."""
    mine = cuda.stream("reader")
    with m.read() as x:
        seen = mine.read(to_cai(x, stream=mine))
        mine.synchronize()
    return seen.value


def test_memory_has_the_shape_and_type_that_it_was_made_with(cuda):
    m = memory.MemArray([2, 3], "float32")
    assert (m.shape, m.dtype) == ([2, 3], "float32")
    with m.read() as x:
        assert (x.shape, x.typestr, x.readonly) == ((2, 3), "<f4", True)
    assert values(cuda, m) == [[0.0] * 3] * 2


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_every_type_is_lent_as_what_it_is(cuda, dtype):
    with memory.MemArray([4], dtype).write() as x:
        assert str(x.dtype) == dtype


def test_an_unknown_type_is_refused_with_those_that_there_are(cuda):
    with pytest.raises(TypeError, match="dtype: got complex64; allowed: int32"):
        memory.MemArray([2], "complex64")


@pytest.mark.parametrize("kind", CONSUMERS)
def test_a_writer_writes_and_the_kernel_comes_after_it(cuda, kind):
    m, mine = memory.MemArray([4]), cuda.stream("mine")
    with cuda.current_stream(mine):
        with m.write() as x:
            lent = cuda.consumer(kind, mine).write(x, 5.0)
            lent.release()
        m.add_index()
    assert values(cuda, m) == [5.0, 6.0, 7.0, 8.0]


def test_a_reader_that_keeps_its_tensor_is_waited_for_at_the_end_of_the_block(cuda):
    m, mine = memory.MemArray([4]), cuda.stream("mine")
    with cuda.current_stream(mine):
        with m.read() as x:
            kept = cuda.consumer("dlpack", mine).read(x)
        m.add_index()
        mine.synchronize()
        assert kept.value == [0.0] * 4
        kept.release()


def test_many_may_read_and_one_may_write(cuda):
    m = memory.MemArray([4])
    with m.read(), m.read():
        with pytest.raises(RuntimeError, match="locked by readers"), m.write():
            pass
        with pytest.raises(RuntimeError, match="locked by readers"):
            m.add_index()
    with m.write():
        for again in (m.read, m.write):
            with pytest.raises(RuntimeError, match="locked by a writer"), again():
                pass
    with m.write():
        pass


def test_a_lock_ends_with_an_exception_too(cuda):
    m = memory.MemArray([4])
    with pytest.raises(KeyError), m.write():
        raise KeyError
    m.add_index()


def test_what_was_lent_is_refused_after_the_block(cuda):
    m = memory.MemArray([4])
    with m.read() as x:
        pass
    with pytest.raises(BufferError, match="released"):
        to_dlpack(x)


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_writers_capsule_is_legacy_or_versioned_as_the_consumer_asks(cuda, version):
    with memory.MemArray([4]).write() as x:
        name = "dltensor" if version is None else "dltensor_versioned"
        assert f'"{name}"' in repr(x.__dlpack__(stream=1, max_version=version))


def test_a_readers_capsule_is_never_legacy_since_that_cannot_say_so(cuda):
    with memory.MemArray([4]).read() as x:
        with pytest.raises(BufferError, match="readonly"):
            x.__dlpack__(stream=1)
        assert from_cai(x).readonly


def test_the_deleter_is_called_once_when_the_last_user_is_gone(cuda):
    called = []
    m = memory.MemArray([4], deleter=lambda: called.append(1))
    mine = cuda.stream("mine")
    with m.write() as x:
        kept = cuda.consumer("dlpack", mine).read(x)
    del m, x
    gc.collect()
    assert called == []
    kept.release()
    mine.synchronize()
    gc.collect()
    assert called == [1]


def test_values_of_another_library_are_assigned_in_order(cuda):
    m, theirs = memory.MemArray([4]), cuda.stream("theirs")
    with cuda.current_stream(theirs):
        x = cuda.array([1.0, 2.0, 3.0, 4.0], speaks="exchange", stream=theirs, memory="pool")
        m.assign(x)
        del x
    assert values(cuda, m) == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("shape", [(3, 2), (1, 3), (6,), (2, 3, 1), ()])
def test_values_of_another_shape_are_refused_and_the_memory_stays_free(cuda, shape):
    m = memory.MemArray([2, 3])
    x = cuda.array(shape=shape, fill=1.0, speaks="exchange")
    y = cuda.array(shape=(2, 3), fill=2.0, speaks="exchange")
    with pytest.raises(ValueError, match=r"shape: got \[.*\]; allowed: \[2, 3\]"):
        m.assign(x)
    m.assign(y)
    cuda.synchronize()


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
