"""The arrays of `small_library` by methods of their own, and what makes odd copies of them.

They keep every promise of a producer. Faults are planted in the text of `small_library`; here are
two that programs import by name.
"""

from __future__ import annotations

import ctypes
import math

import small_library
import tables
from small_library import CODES, compact
from small_library import cuda as device
from small_library import current as current_stream
from small_library import use as working_on

from cai_bridge.conformance import ProducerAdapter, check_producer
from cai_bridge.testing._kit.dlpack_abi import ManagedTensor
from cai_bridge.testing._values import DTYPES

__all__ = ["current_stream", "device", "working_on"]

PROTOCOLS = ("__cuda_array_interface__", "__dlpack_device__", "__dlpack__")
OWN = (*PROTOCOLS, "copy", "transpose", "broadcast_to", "__dict__", "__weakref__")
Plain = type("Plain", (), {k: of for k, of in vars(small_library.Array).items() if k not in OWN})


class Memory(small_library.Memory):
    """Tracks its work by streams: an order comes after what others queued behind it, too."""

    def order_before(self, stream):
        self.settle()
        for handle, (one, _) in self.work.items():
            if handle != stream.handle:
                stream.wait(one.record())


class Array(Plain):
    """An array, by itself without a protocol."""

    @classmethod
    def empty(cls, shape, dtype):
        itemsize = DTYPES[dtype].itemsize
        memory = Memory(math.prod(shape) * itemsize)
        return cls(memory, memory.ptr, shape, compact(shape, itemsize), dtype)

    # What CAI says.

    def interface(self):
        typestr = DTYPES[self.name].typestr
        return {
            "shape": self.shape,
            "typestr": typestr,
            "data": (self.ptr if self.size else 0, self.readonly),
            "version": 3,
            "strides": None if self.contiguous else self.strides,
            "descr": [("", typestr)],
            "stream": self.ready_stream(),
        }

    def ready_stream(self):
        return self.memory.ready_stream()

    # What DLPack says.

    def device(self):
        return (2, self.memory.device)

    def capsule(self, stream, max_version, dl_device, copy):
        if stream == 0:
            raise ValueError("stream: got 0; allowed: None, -1, 1, 2 or a handle")
        if dl_device not in (None, self.device()):
            raise BufferError(f"dl_device: got {dl_device}; allowed: {self.device()}")
        if copy:
            raise BufferError("copy: got True; allowed: None or False")
        versioned = max_version is not None and max_version >= (1, 0)
        tensor = self.managed("versioned" if versioned else "legacy")
        if stream != -1:
            self.memory.order_before(device().stream_of(1 if stream is None else stream))
        return tensor.capsule()

    def managed(self, form="versioned", **fields):
        if self.readonly and form == "legacy":
            raise BufferError("max_version: got None; allowed: 1.0 or later for read-only memory")
        flags = {} if form == "legacy" else {"flags": int(self.readonly)}
        said = {
            "form": form,
            "shape": self.shape,
            "strides": [stride // self.itemsize for stride in self.strides],
            "dtype": (CODES[self.name.rstrip("0123456789")], 8 * self.itemsize, 1),
            "device": (2, self.memory.device),
            "owner": self.owner(),
        }
        return ManagedTensor(self.ptr if self.size else 0, **{**said, **flags, **fields})

    def owner(self):
        """What a managed tensor keeps."""
        return self

    # The exchange API, whose functions are those of `small_library`.

    def exchanged(self):
        self.memory.order_before(current_stream())
        return self.managed()

    def lent(self):
        return self.managed()


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


NO_ALLOCATOR = tables._ALLOCATE(lambda *_: -1)
DOORS = {"cai": Cai, "dlpack": DLPack}
EVERY = ("cai", "dlpack", "exchange")


def speaking(name, doors=EVERY, table=None, **methods):
    """A type of arrays with these doors, with some of its methods replaced, and its own table."""
    kind = type(name, (*(DOORS[one] for one in doors if one in DOORS), Array), methods)
    if "exchange" not in doors:
        return kind
    made = small_library.table_for(kind)
    made.managed_tensor_allocator = ctypes.cast(NO_ALLOCATOR, ctypes.c_void_p).value
    for field, value in (table or {}).items():
        setattr(made, field, value)
    small_library.speakers[kind] = tables.speaker(made, kind)
    return small_library.speakers[kind]


class Library(ProducerAdapter):
    """The library as it is to be."""

    name = "reference"
    array = speaking("Reference")
    dtypes = ("float32", "bool", "int8", "uint32", "float16", "complex64")

    def make(self, shape, dtype):
        return self.array.empty(shape, dtype)

    def readonly(self, array):
        return array.frozen()

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
    array = Array.empty.__func__(cls, shape, dtype)
    array.itself = array
    return array


# What it leaves out, and `small_library` has.
WITHOUT = {"cai-lazy", "cai-pending-read", "dlpack-host-copy", "dlpack-lazy", "dlpack-pending-read"}
WITHOUT |= {"dlpack-host-copy-on-two", "exchange-lazy", "exchange-pending-read"}
WITHOUT |= {"exchange-allocator"}
WITHOUT |= {"exchange-errors"}  # advice: no function in Python fails with an exception set


def saying(**entries):
    """The dict with some entries replaced, by functions of the array and the entry."""

    def interface(self):
        said = Array.interface(self)
        return {**said, **{name: change(self, said[name]) for name, change in entries.items()}}

    return interface


def is_columns(array):
    """Whether it is every second column of an array of two dimensions."""
    return len(array.shape) == 2 and array.strides[1] == 2 * array.itemsize


def pending(array):
    """The handles of the streams that work on the array is queued on."""
    return [*array.memory.work]


def legacy(self, stream, max_version, dl_device, copy):
    return Array.capsule(self, stream, None, dl_device, copy)


class ListedShape(Library):
    """Its dicts have the shape as a list."""

    array = speaking("ListedShape", interface=saying(shape=lambda _, shape: list(shape)))


class OnlyLegacy(Library):
    """Its capsules have no version."""

    array = speaking("OnlyLegacy", capsule=legacy)
