"""A library that keeps every promise of a producer, and what makes odd copies of it.

It lives on the simulated device that is in place, and is written with nothing of the bridge: memory
of the device, streams, and DLPack's structures by hand. Faults are planted in `small_library`; here
are two that programs import by name.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from typing import Any

import tables

from cai_bridge.conformance import ProducerAdapter, check_producer
from cai_bridge.testing import SimulatedCuda
from cai_bridge.testing._kit.dlpack_abi import DLTensor, ManagedTensor
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import DTYPES, compact_strides

BORROW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(DLTensor))
CODES = {"bool": 6, "complex64": 5, "float16": 2, "float32": 2, "int8": 0, "uint32": 1}


class _Work(threading.local):
    def __init__(self):
        self.streams = []


_work = _Work()


def device():
    """The simulated device that is in place."""
    cuda = SimulatedCuda.current()
    assert cuda is not None
    return cuda


def current_stream():
    """The stream that the library works on, in this thread."""
    return _work.streams[-1] if _work.streams else device().legacy


@contextlib.contextmanager
def working_on(stream):
    """Make a stream the library's current one."""
    _work.streams.append(stream)
    try:
        yield stream
    finally:
        _work.streams.pop()


class Memory:
    """Bytes of the device, and the streams that work on them is queued on."""

    def __init__(self, nbytes):
        self.bytes = device().alloc(nbytes) if nbytes else None
        self.ptr = self.bytes.ptr if nbytes else 0
        self._streams = []
        self.thread, self.own_work = threading.get_ident(), None

    @property
    def streams(self):
        """Those that work is queued on, by streams that this thread knows."""
        self.settle()
        return self._streams

    @streams.setter
    def streams(self, streams):
        self._streams = streams

    def settle(self):
        """In another thread, 2 is another stream: one of ours stands for that of before."""
        if self.thread != threading.get_ident() and self.own_work is not None:
            own = device().stream()
            own.wait(self.own_work)
            self._streams = [own if one.handle == 2 else one for one in self._streams]
            self.own_work = None
        self.thread = threading.get_ident()

    def used_on(self, stream):
        self.settle()
        if stream.handle == 2:
            self.own_work = stream.record()
        self._streams = [one for one in self._streams if one.handle != stream.handle] + [stream]

    def order_before(self, stream):
        for one in self.streams:
            if one.handle != stream.handle:
                stream.wait(one.record())


class Array:
    """An array, by itself without a protocol."""

    def __init__(self, memory, region):
        self._memory = memory
        self._region = region

    @classmethod
    def made(cls, shape, dtype):
        strides = compact_strides(shape, DTYPES[dtype].itemsize)
        region = Region(0, shape, strides, dtype, DTYPES[dtype].itemsize)
        memory = Memory(region.size * region.itemsize)
        return cls(memory, cls.at(region, ptr=memory.ptr))

    @staticmethod
    def at(region, **changes):
        """A region with some of its fields replaced."""
        fields = {name: getattr(region, name) for name in Region.__dataclass_fields__}
        return Region(**{**fields, **changes})

    def __getitem__(self, index):
        region, ptr, shape, strides = self._region, self._region.ptr, [], []
        index = index if isinstance(index, tuple) else (index,)
        for one, extent, stride in zip(index, region.shape, region.strides, strict=True):
            start, stop, step = one.indices(extent)
            ptr += start * stride
            shape.append(len(range(start, stop, step)))
            strides.append(stride * step)
        changed = self.at(region, ptr=ptr, shape=tuple(shape), strides=tuple(strides))
        return type(self)(self._memory, changed)

    def readonly(self):
        """A view of it that nobody may write."""
        return type(self)(self._memory, self.at(self._region, readonly=True))

    def fill(self, value):
        """Queue a write of one value, on the current stream."""
        stream = current_stream()
        stream.fill(self._region, value)
        self._memory.used_on(stream)

    def tolist(self):
        """The values, read by the host once everything is done."""
        device().synchronize()
        return device().read(self._region)

    # What CAI says.

    def interface(self):
        region = self._region
        return {
            "shape": region.shape,
            "typestr": DTYPES[region.dtype].typestr,
            "data": (region.ptr if region.size else 0, region.readonly),
            "version": 3,
            "strides": None if self.contiguous else region.strides,
            "descr": [("", DTYPES[region.dtype].typestr)],
            "stream": self.ready_stream(),
        }

    @property
    def contiguous(self):
        region = self._region
        return region.strides == compact_strides(region.shape, region.itemsize)

    def ready_stream(self):
        """A stream that everything pending is ordered before; the memory holds it."""
        if not self._memory.streams:
            return None
        last = self._memory.streams[-1]
        self._memory.order_before(last)
        return last.handle

    # What DLPack says.

    def device(self):
        return self._region.device

    def capsule(self, stream, max_version, dl_device, copy, **fields):
        self.check_wishes(stream, dl_device, copy)
        versioned = max_version is not None and max_version >= (1, 0)
        tensor = self.managed("versioned" if versioned else "legacy", **fields)
        self.order_for(stream)
        return tensor.capsule()

    def check_wishes(self, stream, dl_device, copy):
        if stream == 0:
            raise ValueError("stream: got 0; allowed: None, -1, 1, 2 or a handle")
        if dl_device not in (None, self._region.device):
            raise BufferError(f"dl_device: got {dl_device}; allowed: {self._region.device}")
        if copy:
            raise BufferError("copy: got True; allowed: None or False")

    def order_for(self, stream):
        if stream != -1:
            self._memory.order_before(device().stream_of(1 if stream is None else stream))

    def managed(self, form="versioned", **fields):
        region = self._region
        if region.readonly and form == "legacy":
            raise BufferError("max_version: got None; allowed: 1.0 or later for read-only memory")
        flags = {} if form == "legacy" else {"flags": int(region.readonly)}
        return ManagedTensor(
            **{
                "ptr": region.ptr if region.size else 0,
                "form": form,
                "shape": region.shape,
                "strides": [stride // region.itemsize for stride in region.strides],
                "dtype": (CODES[region.dtype], 8 * region.itemsize, 1),
                "device": region.device,
                "owner": self.owner(),
                **flags,
                **fields,
            }
        )

    def owner(self):
        """What a managed tensor keeps."""
        return self

    # The exchange API, by the functions of the table below.

    def exchanged(self):
        return self.managed()

    def lent(self):
        return self.managed()

    @classmethod
    def work_stream(cls):
        return current_stream().handle

    def settle(self):
        """The exchange API does not order: what is pending has to be on the current stream."""
        self._memory.order_before(current_stream())


class Cai:
    """The door of CAI."""

    @property
    def __cuda_array_interface__(self):
        return self.interface()


class DLPack:
    """The door of the array API standard."""

    def __dlpack_device__(self):
        return self.device()

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.capsule(stream, max_version, dl_device, copy)


def table_for(kind, **replaced):
    """The exchange API of an array type, by ctypes."""

    @BORROW
    def borrow(x, out):
        array = ctypes.cast(x, ctypes.py_object).value
        tensor = array.lent()
        _lent[id(array)] = tensor
        tensor._owner = None  # what is lent keeps nothing
        weakref.finalize(array, _lent.pop, id(array), None)
        ctypes.memmove(out, ctypes.addressof(tensor.struct.dl_tensor), ctypes.sizeof(DLTensor))
        return 0

    @tables._STREAM
    def stream(kind_of_device, ordinal, out):
        out[0] = kind.work_stream()
        return 0

    @tables._FROM_OBJECT
    def from_object(x, out):
        array = ctypes.cast(x, ctypes.py_object).value
        array.settle()
        out[0] = array.exchanged().hand_out()
        return 0

    unused = tables._ALLOCATE(lambda *_: -1), tables._TO_OBJECT(lambda *_: -1)
    entries = {
        "allocate": unused[0],
        "from_object": from_object,
        "to_object": unused[1],
        "borrow": borrow,
        "stream": stream,
    }
    addresses = {name: ctypes.cast(one, ctypes.c_void_p).value for name, one in entries.items()}
    version = replaced.pop("version", (1, 3))
    tables._forever.append(entries)
    return tables.table(version=version, **{**addresses, **replaced})


_lent: dict[int, Any] = {}


DOORS = {"cai": Cai, "dlpack": DLPack}
EVERY = ("cai", "dlpack", "exchange")


def speaking(name, doors=EVERY, table=None, **methods):
    """A type of arrays with these doors, with some of its methods replaced, and its own table."""
    kind = type(name, (*(DOORS[one] for one in doors if one in DOORS), Array), methods)
    if "exchange" in doors:
        return tables.speaker(table_for(kind, **(table or {})), kind)
    return kind


class Library(ProducerAdapter):
    """The library as it is to be."""

    name = "reference"
    array = speaking("Reference")
    dtypes = ("float32", "bool", "int8", "uint32", "float16", "complex64")

    def make(self, shape, dtype):
        return self.array.made(shape, dtype)

    def readonly(self, array):
        return array.readonly()

    def stream(self):
        return device().stream()

    def on(self, stream):
        return working_on(stream)


def judged(lab, only, doors=EVERY, kind=None, **methods):
    """What one requirement comes to for a library with some of its arrays' methods replaced."""
    array = kind or speaking("Odd", doors, **methods)
    return check_producer(type("Odd", (Library,), {"array": array}), lab=lab, only=only)[only]


@classmethod
def in_a_circle(cls, shape, dtype):
    """Make an array that only the garbage collector frees, whoever has its tensor."""
    array = Array.made.__func__(cls, shape, dtype)
    array.itself = array
    return array


# What it leaves out, and `small_library` has.
WITHOUT = {"cai-lazy", "cai-pending-read", "dlpack-host-copy", "dlpack-lazy", "dlpack-pending-read"}
WITHOUT |= {"dlpack-host-copy-on-two"}
WITHOUT |= {"exchange-lazy", "exchange-pending-read", "exchange-to-object", "exchange-allocator"}
WITHOUT |= {"exchange-errors"}  # advice: no function in Python fails with an exception set


def saying(**entries):
    """The dict with some entries replaced, by functions of the array and the entry."""

    def interface(self):
        said = Array.interface(self)
        return {**said, **{name: change(self, said[name]) for name, change in entries.items()}}

    return interface


def exporting(**fields):
    """Capsules with some fields replaced, by functions of the array."""

    def capsule(self, *asked):
        return Array.capsule(self, *asked, **{name: of(self) for name, of in fields.items()})

    return capsule


def is_columns(array):
    """Whether it is every second column of an array of two dimensions."""
    return len(array._region.shape) == 2 and array._region.strides[1] == 2 * array._region.itemsize


def pending(array):
    """The handles of the streams that work on the array is queued on."""
    return [stream.handle for stream in array._memory.streams]


def legacy(self, stream, max_version, dl_device, copy):
    return Array.capsule(self, stream, None, dl_device, copy)


class ListedShape(Library):
    """Its dicts have the shape as a list."""

    array = speaking("ListedShape", interface=saying(shape=lambda _, shape: list(shape)))


class OnlyLegacy(Library):
    """Its capsules have no version."""

    array = speaking("OnlyLegacy", capsule=legacy)
