"""A small GPU library that takes others' arrays in, and is right, as its author would write it.

`tests/data/planted.toml` plants faults here and `tests/data/unusual.toml` makes it unusual: each
row replaces a few words of this text.
"""

from __future__ import annotations

import contextlib
import math

from cai_bridge.conformance import ConsumerAdapter
from cai_bridge.testing import SimulatedCuda
from cai_bridge.testing._kit.dlpack_abi import read_capsule, take
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import DTYPES

BY_TYPESTR = {
    "<f4": "float32", "<f8": "float64", "<f2": "float16", "<c8": "complex64", "<i4": "int32",
    "<i8": "int64", "|u1": "uint8", "|b1": "bool",
}  # fmt: skip
BY_CODE = {
    (2, 32): "float32", (2, 64): "float64", (2, 16): "float16", (5, 64): "complex64",
    (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (6, 8): "bool",
}  # fmt: skip


def cuda():
    return SimulatedCuda.current()


_current = []


def current():
    """The stream that the library works on."""
    return _current[-1] if _current else cuda().legacy


@contextlib.contextmanager
def use(stream):
    _current.append(stream)
    try:
        yield stream
    finally:
        _current.pop()


def compact(shape, itemsize):
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def order(first, then):
    if first.handle != then.handle:
        then.wait(first.record())


class Foreign:
    """Somebody else's memory, taken on a stream of ours, and the streams of our work on it."""

    def __init__(self, held, ready):
        self.held, self.ready, self.upon, self.users = held, ready, current(), []

    def reached(self, stream):
        """Make a stream wait for what the producer's stream has queued."""
        if self.ready is not None:
            order(self.ready, stream)

    def use(self, stream):
        """Another stream than the one that it was taken on waits for that."""
        order(self.upon, stream)

    def used(self, stream):
        """The producer's stream waits for our work; one that has no name waits for the end."""
        if self.ready is not None:
            order(stream, self.ready)
        self.users.append(stream)

    def __del__(self):
        for stream in self.users if self.ready is None else ():
            stream.synchronize()
        if self.ready is None:
            self.held.delete()


class Array:
    def __init__(self, memory, ptr, shape, strides, dtype, readonly):
        self.memory, self.ptr, self.shape, self.strides = memory, ptr, shape, strides
        self.name, self.readonly = dtype, readonly

    @property
    def region(self):
        return Region(self.ptr, self.shape, self.strides, self.name, DTYPES[self.name].itemsize)

    def copy(self):
        self.memory.use(current())
        pending = current().read(self.region)
        self.memory.used(current())
        return Copy(pending, current())

    def fill(self, value):
        if self.readonly:
            raise ValueError("the array is read-only")
        self.memory.use(current())
        current().fill(self.region, value)
        self.memory.used(current())


class Copy:
    def __init__(self, pending, stream):
        self.pending, self.stream = pending, stream

    def tolist(self):
        self.stream.synchronize()
        return self.pending.value


def from_cai(x):
    said = x.__cuda_array_interface__
    if said["version"] > 3:
        raise ValueError(f"version {said['version']} is not known")
    if said.get("mask") is not None:
        raise ValueError("masks are not supported")
    stream = said.get("stream")
    if stream == 0:
        raise ValueError("stream 0 is ambiguous")
    if said["typestr"] not in BY_TYPESTR:
        raise TypeError(f"typestr {said['typestr']} is not supported")
    dtype = BY_TYPESTR[said["typestr"]]
    shape, (ptr, readonly) = said["shape"], said["data"]
    strides = said.get("strides") or compact(shape, DTYPES[dtype].itemsize)
    memory = Foreign(x, cuda().stream_of(stream) if stream is not None else cuda().legacy)
    if stream is not None:
        memory.reached(current())
    return Array(memory, ptr, shape, strides, dtype, readonly)


def from_dlpack(x):
    if x.__dlpack_device__()[0] != 2:
        raise BufferError("only CUDA memory is supported")
    stream = current().handle
    try:
        capsule = x.__dlpack__(stream=stream, max_version=(1, 3))
    except TypeError:
        capsule = x.__dlpack__(stream=stream)
    fields = read_capsule(capsule)
    if fields.device[0] != 2:
        raise BufferError("only CUDA memory is supported")
    code, bits, lanes = fields.dtype
    if (code, bits) not in BY_CODE or lanes != 1:
        raise BufferError(f"dtype {fields.dtype} is not supported")
    dtype = BY_CODE[code, bits]
    shape, itemsize = fields.shape or (), DTYPES[dtype].itemsize
    strides = compact(shape, itemsize)
    if fields.strides is not None:
        strides = tuple(step * itemsize for step in fields.strides)
    ptr = fields.data + fields.byte_offset
    memory = Foreign(take(capsule), None)
    return Array(memory, ptr, shape, strides, dtype, bool(fields.readonly))


class Consumer(ConsumerAdapter):
    name = "small"
    dtypes = tuple(BY_TYPESTR.values())

    def take(self, x):
        return from_cai(x) if hasattr(type(x), "__cuda_array_interface__") else from_dlpack(x)

    def stream(self):
        return cuda().stream()

    def on(self, stream):
        return use(stream)

    def fill(self, array, value):
        array.fill(value)
