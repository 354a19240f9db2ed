"""`convert` to RMM: a buffer over the array's memory, by a stand-in that does what RMM does.

The stand-in follows ``python/rmm/rmm/pylibrmm`` of https://github.com/rapidsai/rmm, release 26.10:
``device_buffer.pyx``, ``stream.pyx`` and ``memory_resource/_memory_resource.pyx``. A buffer takes
no memory but what its resource gives it, which is not asked where there are no bytes; it takes
streams of RMM's own type only, holds its stream and its resource, and its dict is of version 0.
"""

import gc
import sys
import types
import weakref

import pytest
from fakes import StreamObject
from scenes import done
from stand_in import library, made_on, no_libraries, producer

from cai_bridge import HostSyncWarning, adapt, convert, from_cai
from cai_bridge._libraries import _rmm
from cai_bridge.testing._region import Region

__all__ = ["library", "no_libraries", "producer"]


class Stream:
    """A stream of its own, or around an object with ``__cuda_stream__``, which it holds."""

    def __init__(self, obj):
        if isinstance(obj, Stream):
            self.handle, self.owner = obj.handle, obj.owner
            return
        version, self.handle = obj.__cuda_stream__()
        assert version == 0
        self.owner = obj

    @classmethod
    def _of(cls, handle):
        made = cls.__new__(cls)
        made.handle, made.owner = handle, None
        return made

    def __cuda_stream__(self):
        return 0, self.handle


DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM = map(Stream._of, (0, 1, 2))


class CallbackMemoryResource:
    def __init__(self, allocate_func, deallocate_func):
        self.allocate, self.deallocate = allocate_func, deallocate_func


class DeviceBuffer:
    def __init__(self, *, ptr=0, size=0, stream=DEFAULT_STREAM, mr=None):
        assert not ptr, "a pointer is copied from"
        if not isinstance(stream, Stream):
            raise TypeError("stream argument has to be a Stream")
        self.mr, self.stream = mr, stream
        self.ptr, self.size = self._allocated(size), size
        self.capacity = size

    def _allocated(self, size):
        return self.mr.allocate(size, Stream._of(self.stream.handle)) if size else 0

    def __del__(self):
        if getattr(self, "ptr", 0):
            self.mr.deallocate(self.ptr, self.size, Stream._of(self.stream.handle))

    def resize(self, size):
        if size > self.capacity:
            self.ptr, self.capacity = self._allocated(size), size
        self.size = size

    def taken_over(self):
        """Do as C++ code that moves the memory out, and frees it later by the same resource.

        It has the callables' addresses, and keeps neither them nor the resource.
        """
        freed = weakref.WeakMethod(self.mr.deallocate)
        ptr, size, handle = self.ptr, self.size, self.stream.handle
        self.ptr, self.mr = 0, None
        return lambda: freed()(ptr, size, Stream._of(handle))

    @property
    def __cuda_array_interface__(self):
        described = {"data": (self.ptr, False), "shape": (self.size,), "strides": None}
        return {**described, "typestr": "|u1", "version": 0}


DeviceBuffer.__module__ = "rmm.pylibrmm.device_buffer"


def forget():
    for name in ("types", "converter"):
        _rmm.RMM.__dict__.pop(name, None)


@pytest.fixture(autouse=True)
def rmm(monkeypatch, no_libraries):
    """The stand-in, as the module."""
    names = "rmm", "rmm.pylibrmm", "rmm.pylibrmm.stream"
    made, part, streams = map(types.ModuleType, names)
    made.DeviceBuffer, made.pylibrmm, part.stream = DeviceBuffer, part, streams
    made.mr = types.SimpleNamespace(CallbackMemoryResource=CallbackMemoryResource)
    for one in ("Stream", "DEFAULT_STREAM", "LEGACY_DEFAULT_STREAM", "PER_THREAD_DEFAULT_STREAM"):
        setattr(streams, one, globals()[one])
    for module in (made, part, streams):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    forget()
    yield made
    forget()


def items(buffer, count=4):
    """The floats that a buffer's bytes are."""
    assert buffer.size == 4 * count
    return Region(buffer.ptr, (count,), (4,), "float32", 4)


@pytest.mark.parametrize("speaks", ["exchange", "dlpack", "cai3"])
def test_a_buffer_is_the_arrays_memory_on_rmms_default_stream(cuda, producer, speaks):
    x = made_on(cuda, producer, 7.0, speaks)
    made = convert(x, "rmm")
    assert (type(made), made.ptr, made.stream) == (DeviceBuffer, x.ptr, DEFAULT_STREAM)
    seen = cuda.legacy.read(items(made))
    cuda.legacy.synchronize()
    assert seen.value == [7.0] * 4


@pytest.mark.unchecked
@pytest.mark.parametrize("waits", [True, False])
def test_a_buffer_keeps_the_array_and_gives_it_back_in_order(cuda, producer, waits):
    x, mine = made_on(cuda, producer, 7.0), cuda.stream("mine")
    exports, gone = x.exports, weakref.ref(mine)
    made = convert(x, "rmm", stream=mine)
    assert x.exports > exports
    assert made.stream.owner is mine
    seen = mine.read(items(made))
    handle = mine.handle
    del mine
    gc.collect()
    assert gone() is not None, "nobody keeps the stream"
    assert made.stream.handle == handle
    if not waits:
        cuda.suppress("cuStreamWaitEvent")
    del made
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert (seen.value, x.exports) == ([7.0] * 4, exports) or not waits
    assert [report.kind for report in cuda.reports] == ([] if waits else ["race"])


STREAMS = {
    "a handle": lambda mine: mine.handle,
    "its own": Stream,
    "an object": lambda mine: StreamObject((0, mine.handle)),
    "legacy": 1,
    "per thread": 2,
    "-1": -1,
}


@pytest.mark.parametrize("how", STREAMS)
def test_a_stream_that_is_said_is_the_buffers(cuda, producer, how):
    mine, said = cuda.stream("mine"), STREAMS[how]
    said = said if isinstance(said, int) else said(mine)
    made = convert(made_on(cuda, producer), "rmm", stream=said)
    handles = {"legacy": 1, "per thread": 2, "-1": 0}
    assert made.stream.handle == handles.get(how, mine.handle)
    assert (made.stream is said) == (how == "its own")
    # What an object vouches for has to be there at the end.
    del made
    cuda.synchronize()


def test_a_buffer_over_others_memory_does_not_grow(cuda, producer):
    x = made_on(cuda, producer, 7.0)
    made = convert(x, "rmm", stream=producer)
    for size in (17, 64):
        with pytest.raises(MemoryError, match="16 bytes of another library's"):
            made.resize(size)
    made.resize(1)
    made.resize(16)
    seen = producer.read(items(made))
    assert done(seen) == [7.0] * 4


def test_a_buffer_that_is_taken_over_gives_the_memory_back_when_it_is_freed(cuda, producer):
    x = made_on(cuda, producer, 7.0)
    exports = x.exports
    made = convert(x, "rmm", stream=producer)
    free = made.taken_over()
    del made
    gc.collect()
    assert x.exports > exports
    free()
    gc.collect()
    assert x.exports == exports


def test_arrays_with_gaps_are_refused_and_copied_where_that_is_asked_for(cuda):
    x = cuda.array([[1.0, 2.0], [3.0, 4.0]], strides="F")
    with pytest.raises(BufferError, match=r"^strides: got \(4, 8\); allowed: C-contiguous arrays"):
        convert(x, "rmm")
    gc.collect()
    assert x.exports == 0
    made = convert(x, "rmm", copy=True)
    seen = cuda.legacy.read(items(made))
    assert done(seen) == [1.0, 2.0, 3.0, 4.0]


def test_a_pointer_that_rmm_would_not_give_out_is_refused(cuda):
    x = cuda.array([1.0, 2.0, 3.0, 4.0], speaks="cai3")
    said = {**x.__cuda_array_interface__, "shape": (3,), "data": (x.ptr + 4, False), "stream": 1}
    view = from_cai(said, owner=x)
    with pytest.raises(BufferError, match=r"^pointer: got 0x\w+; allowed: multiples of 256"):
        convert(view, "rmm")
    made = convert(view, "rmm", copy=True)
    seen = cuda.legacy.read(items(made, 3))
    assert done(seen) == [2.0, 3.0, 4.0]


def test_an_array_of_nothing_is_a_buffer_of_nothing(cuda):
    x = cuda.array(shape=(0, 3))
    made = convert(x, "rmm")
    assert (made.size, made.ptr, x.exports) == (0, 0, 0)


def test_what_rmm_raises_passes_through_and_gives_the_memory_back(cuda, monkeypatch):
    x = cuda.array([1.0])

    def fails(self, **arguments):
        self.ptr = 0
        arguments["mr"].allocate(4, None)
        raise RuntimeError("no device")

    monkeypatch.setattr(DeviceBuffer, "__init__", fails)
    gc.disable()
    try:
        with pytest.raises(RuntimeError, match="no device"):
            convert(x, "rmm")
        assert x.exports == 0
    finally:
        gc.enable()


def test_read_only_memory_is_refused(cuda):
    x = cuda.array([1.0], readonly=True)
    with pytest.raises(BufferError, match=r"^readonly: got read-only memory"):
        convert(x, "rmm")
    assert convert(x, "rmm", readonly=False).ptr == x.ptr


def test_rmms_buffers_are_found_by_their_type_and_go_to_others(cuda, library, rmm):
    x = cuda.array([1.0] * 4, speaks="cai3")
    made = convert(x, rmm.DeviceBuffer)
    assert convert(made, rmm) is made
    # A dict of version 0 says nothing of streams.
    with pytest.warns(HostSyncWarning):
        there = convert(made, "stand_in")
    assert (there.view.ptr, there.view.shape) == (x.ptr, (16,))
    function = adapt(lambda given: given, to="stand_in")
    assert type(function(made)) is DeviceBuffer
    del there
    gc.collect()
    cuda.synchronize()
