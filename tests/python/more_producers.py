"""Further producers that break a requirement, each another way than the one of `broken_producers`.

They are written from the specifications: what a library's author may get wrong of a sentence there.
`ALSO` has them by the requirement and what they do; here a producer may break others, too.
"""

from __future__ import annotations

import ctypes
import threading
import types

from broken_producers import (
    behind,
    exporting,
    is_backwards,
    is_columns,
    kept,
    on_current,
    pending,
    saying,
    versioned_with,
)
from producers import CODES, EVERY, Array, Library, current_stream, device, speaking

ALSO: dict[tuple[str, str], type[Library]] = {}


def also(requirement, what, doors=EVERY, table=None, **methods):
    """Define a copy of the library that breaks a requirement in another way."""
    kind = speaking("Another", doors, table, **methods)
    ALSO[requirement, what] = type("Another", (Library,), {"array": kind, "name": what})


def without(*names):
    def interface(self):
        said = Array.interface(self)
        return {name: said[name] for name in said if name not in names}

    return interface


CAI, DLPACK, EXCHANGE = ("cai",), ("dlpack",), ("exchange",)


class Index:
    """What can be used for an integer, and is none."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def reads_others(self):
    """What the library itself reads is not what others are told of."""
    return [[value + 1 for value in row] for row in Array.tolist(self)]


# --- CAI ------------------------------------------------------------------------------------------

also("cai-entries", "it has no typestr", CAI, interface=without("typestr"))
also(
    "cai-entries",
    "it is a mapping that is no dict",
    CAI,
    interface=lambda self: types.MappingProxyType(Array.interface(self)),
)
also(
    "cai-shape",
    "the extents are those of the transpose",
    CAI,
    interface=saying(shape=lambda _, shape: shape[::-1]),
)
also(
    "cai-shape",
    "an array without dimensions has one",
    CAI,
    interface=saying(shape=lambda _, shape: shape or (1,)),
)
also(
    "cai-shape",
    "the extents are no integers",
    CAI,
    interface=saying(shape=lambda _, shape: tuple(map(Index, shape))),
)
also(
    "cai-shape",
    "the extents are floats",
    CAI,
    interface=saying(shape=lambda _, shape: tuple(map(float, shape))),
)
also("cai-typestr", "it is bytes", CAI, interface=saying(typestr=lambda _, t: t.encode()))
also("cai-typestr", "it has no byte order", CAI, interface=saying(typestr=lambda _, t: t[1:]))
also(
    "cai-typestr",
    "int8 is said to be unsigned",
    CAI,
    interface=saying(typestr=lambda a, t: "|u1" if a._region.dtype == "int8" else t),
)
also(
    "cai-data",
    "the pointer is no integer",
    CAI,
    interface=saying(data=lambda _, data: (ctypes.c_void_p(data[0]), data[1])),
)
also(
    "cai-data",
    "the flag is a number",
    CAI,
    interface=saying(data=lambda _, data: (data[0], int(data[1]))),
)
also("cai-data", "there is no flag", CAI, interface=saying(data=lambda _, data: data[:1]))
also(
    "cai-pointer",
    "it is counted from the pool's first byte",
    CAI,
    interface=saying(data=lambda _, data: (64, data[1])),
)
_host = ctypes.create_string_buffer(64)
also(
    "cai-pointer",
    "it is one of the host",
    CAI,
    interface=saying(data=lambda _, data: (ctypes.addressof(_host), data[1])),
)
also(
    "cai-zero-size",
    "the pointer is 1, for none",
    CAI,
    interface=saying(data=lambda _, data: (data[0] or 1, data[1])),
)
also(
    "cai-zero-size",
    "the shape is that of no dimensions",
    CAI,
    interface=saying(shape=lambda _, shape: () if 0 in shape else shape),
)
also(
    "cai-strides",
    "they are left out always",
    CAI,
    interface=saying(strides=lambda *_: None),
)
also(
    "cai-strides",
    "there is one for the rows only",
    CAI,
    interface=saying(strides=lambda _, strides: strides and strides[:1]),
)
also(
    "cai-strides",
    "they are no integers",
    CAI,
    interface=saying(strides=lambda _, strides: strides and tuple(map(float, strides))),
)
also(
    "cai-values",
    "strides count items",
    CAI,
    interface=saying(strides=lambda _, strides: strides and tuple(s // 4 for s in strides)),
)
also("cai-values", "the library reads others", CAI, tolist=reads_others)
also(
    "cai-values",
    "the strides are those of the array behind it",
    CAI,
    interface=saying(strides=lambda _, strides: strides and (16, 4)),
)
also(
    "cai-offset",
    "it is added twice",
    CAI,
    interface=saying(data=lambda a, data: (data[0] + behind(a), data[1])),
)
also(
    "cai-offset",
    "it counts items",
    CAI,
    interface=saying(data=lambda a, data: (data[0] - behind(a) + behind(a) // 4, data[1])),
)
also(
    "cai-reversed",
    "the pointer is the lowest address",
    CAI,
    interface=saying(data=lambda a, data: (a._memory.ptr, data[1])),
)


def from_the_first(self):
    said = Array.interface(self)
    if not is_backwards(self):
        return said
    return {**said, "data": (self._memory.ptr, False), "strides": None}


also("cai-reversed", "the array itself is exported", CAI, interface=from_the_first)
also("cai-version", "it is 2", CAI, interface=saying(version=lambda *_: 2))
also("cai-version", "it is text", CAI, interface=saying(version=lambda *_: "3"))
also("cai-mask", "it is False", interface=lambda self: {**Array.interface(self), "mask": False})
also("cai-mask", "it is a pointer", interface=lambda self: {**Array.interface(self), "mask": 4096})
also("cai-descr", "it is a tuple", interface=saying(descr=lambda _, descr: tuple(descr)))
also("cai-descr", "it is None", interface=saying(descr=lambda *_: None))
also("cai-descr", "its fields are lists", interface=saying(descr=lambda *_: [["", "<f4"]]))
also(
    "cai-descr",
    "its fields have a shape more than typestr",
    interface=saying(descr=lambda *_: [("", "<f4", (2,))]),
)
also(
    "cai-readonly",
    "it is the other way round",
    interface=saying(data=lambda _, d: (d[0], not d[1])),
)
also("cai-readonly", "it is 1", interface=saying(data=lambda _, d: (d[0], int(d[1]))))
also("cai-stream", "it is -1 for none", CAI, ready_stream=lambda self: -1)
also("cai-stream", "it is the stream's object", CAI, ready_stream=lambda self: device().legacy)
also("cai-stream", "it is a tuple of version and handle", CAI, ready_stream=lambda self: (0, 1))


def any_other_stream(self):
    kept.append(device().stream())
    return kept[-1].handle


also("cai-pending", "none is named", CAI, ready_stream=lambda self: None)
also("cai-pending", "1 is named, and waits for nothing", CAI, ready_stream=lambda self: 1)
also("cai-pending", "a stream without the work is named", CAI, ready_stream=any_other_stream)
also(
    "cai-pending-elsewhere",
    "none is named where the work is elsewhere",
    CAI,
    ready_stream=lambda self: Array.ready_stream(self) if on_current(self) else None,
)
also(
    "cai-pending-elsewhere",
    "1 is named where the work is elsewhere",
    CAI,
    ready_stream=lambda self: Array.ready_stream(self) if on_current(self) else 1,
)
also(
    "cai-pending-on-two",
    "the first is named",
    CAI,
    ready_stream=lambda self: pending(self)[0] if pending(self) else None,
)
also(
    "cai-pending-on-two",
    "the current one is named",
    CAI,
    ready_stream=lambda self: current_stream().handle if pending(self) else None,
)


def a_half_where_the_array_is(self):
    data, flag = Array.interface(self)["data"]
    first = data == self._memory.ptr or len(self._region.shape) != 1
    return {**Array.interface(self), "data": (data if first else self._memory.ptr, flag)}


also(
    "cai-pending-on-two",
    "a half begins where the array does",
    CAI,
    interface=a_half_where_the_array_is,
)


def a_stream_of_the_moment(self):
    if not pending(self):
        return None
    stream = device().stream("of the moment")
    self._memory.order_before(stream)
    return stream.handle


def fill_on_a_stream_that_is_destroyed(self, value):
    Array.fill(self, value)
    self._memory.streams = [device().stream_of(one.handle) for one in self._memory.streams]


also("cai-stream-lifetime", "it is made for the dict", CAI, ready_stream=a_stream_of_the_moment)
also("cai-stream-lifetime", "only its handle is kept", CAI, fill=fill_on_a_stream_that_is_destroyed)


def interface_with_its_owner(self):
    return {**Array.interface(self), "owner": self}


def interface_in_a_circle(self):
    self.__dict__["last"] = self.interface_again
    return Array.interface(self)


also("cai-lifetime", "the dict holds it", CAI, interface=interface_with_its_owner)
also(
    "cai-lifetime",
    "it holds itself afterwards, until a collection",
    CAI,
    interface=interface_in_a_circle,
    interface_again=lambda self: None,
)

# --- DLPack ---------------------------------------------------------------------------------------


def capsule_with(**fixed):
    """Capsules made as if something else had been asked for."""

    def capsule(self, stream, max_version, dl_device, copy):
        asked = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return Array.capsule(self, **{**asked, **fixed})

    return capsule


def refusing(what, **forbidden):
    """Capsules, but not for some wishes: functions of them."""

    def capsule(self, stream, max_version, dl_device, copy):
        asked = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        for name, wrong in forbidden.items():
            if wrong(asked[name]):
                raise what(f"{name}: got {asked[name]!r}")
        return Array.capsule(self, **asked)

    return capsule


also("dlpack-device", "it has three parts", DLPACK, device=lambda self: (2, 0, 0))
also("dlpack-device", "its parts have names", DLPACK, device=lambda self: ("cuda", 0))
also("dlpack-device", "it is the type alone", DLPACK, device=lambda self: 2)
also("dlpack-device", "it wants a stream", DLPACK, __dlpack_device__=lambda self, stream: (2, 0))
also("dlpack-same-device", "it is the CPU", DLPACK, device=lambda self: (1, 0))
also("dlpack-same-device", "it is managed memory", DLPACK, device=lambda self: (13, 0))


def stream_only(self, stream=None):
    return self.capsule(stream, None, None, None)


def no_device(self, *, stream=None, max_version=None, copy=None):
    return self.capsule(stream, max_version, None, copy)


def positions(self, stream=None, max_version=None, device=None, copied=None, /):
    return self.capsule(stream, max_version, device, copied)


also("dlpack-keywords", "it takes a stream only", DLPACK, __dlpack__=stream_only)
also("dlpack-keywords", "it takes no dl_device", DLPACK, __dlpack__=no_device)
also("dlpack-keywords", "it takes them by position", DLPACK, __dlpack__=positions)
also(
    "dlpack-legacy",
    "it is refused",
    DLPACK,
    capsule=refusing(BufferError, max_version=lambda newest: newest is None),
)
also(
    "dlpack-legacy",
    "it is called as the versioned one",
    DLPACK,
    capsule=capsule_with(max_version=(1, 3)),
)


def versioned_if(wanted):
    def capsule(self, stream, max_version, dl_device, copy):
        newest = (1, 0) if max_version and wanted(max_version) else None
        return Array.capsule(self, stream, newest, dl_device, copy)

    return capsule


also("dlpack-versioned", "only for 1.0 itself", DLPACK, capsule=versioned_if(lambda v: v == (1, 0)))
also("dlpack-versioned", "only from 2.0 on", DLPACK, capsule=versioned_if(lambda v: v >= (2, 0)))


def of_version(major, minor):
    def capsule(self, stream, max_version, dl_device, copy):
        tensor = self.managed(f"{major}.{minor}" if max_version else "legacy")
        return tensor.capsule()

    return capsule


also("dlpack-version", "it is 2.0", DLPACK, capsule=of_version(2, 0))
also("dlpack-version", "it is 0.8", DLPACK, capsule=of_version(0, 8))
also("dlpack-flags", "one that there is not", DLPACK, capsule=versioned_with(flags=lambda _: 8))
also("dlpack-flags", "padded types", DLPACK, capsule=versioned_with(flags=lambda _: 4))


def writable(self):
    return type(self)(self._memory, self.at(self._region, readonly=False))


def legacy_without_the_flag(self, stream, max_version, dl_device, copy):
    return writable(self).managed("legacy").capsule()


def the_flag_of_a_copy(self, stream, max_version, dl_device, copy):
    return writable(self).managed("versioned", flags=2 * self._region.readonly).capsule()


also("dlpack-readonly", "a legacy tensor", DLPACK, capsule=legacy_without_the_flag)
also("dlpack-readonly", "the flag of a copy", DLPACK, capsule=the_flag_of_a_copy)
also(
    "dlpack-dtype",
    "bits counts bytes",
    DLPACK,
    capsule=exporting(dtype=lambda a: (CODES[a._region.dtype], a._region.itemsize, 1)),
)
also(
    "dlpack-dtype",
    "bool is an unsigned integer",
    DLPACK,
    capsule=exporting(
        dtype=lambda a: (
            1 if a._region.dtype == "bool" else CODES[a._region.dtype],
            8 * a._region.itemsize,
            1,
        )
    ),
)
also(
    "dlpack-dtype",
    "complex is two floats",
    DLPACK,
    capsule=exporting(
        dtype=lambda a: (
            (2, 32, 2)
            if a._region.dtype == "complex64"
            else (CODES[a._region.dtype], 8 * a._region.itemsize, 1)
        )
    ),
)
also(
    "dlpack-shape",
    "it is that of the transpose",
    DLPACK,
    capsule=exporting(shape=lambda a: a._region.shape[::-1]),
)
also(
    "dlpack-shape",
    "it is flat",
    DLPACK,
    capsule=exporting(shape=lambda a: (a._region.size,), strides=lambda _: [1]),
)
also("dlpack-shape", "ndim is negative", DLPACK, capsule=exporting(ndim=lambda a: -1))
also(
    "dlpack-strides",
    "they count bytes",
    DLPACK,
    capsule=exporting(strides=lambda a: a._region.strides),
)
also(
    "dlpack-strides",
    "they begin with the last dimension",
    DLPACK,
    capsule=exporting(strides=lambda a: [step // 4 for step in a._region.strides[::-1]]),
)
also(
    "dlpack-zero-size",
    "the pointer is 1, for none",
    DLPACK,
    capsule=exporting(ptr=lambda a: a._region.ptr or 1),
)
also(
    "dlpack-zero-size",
    "the shape is that of nothing",
    DLPACK,
    capsule=exporting(shape=lambda a: (0,), strides=lambda _: [1]),
)
also(
    "dlpack-values",
    "strides count bytes of slices",
    DLPACK,
    capsule=exporting(
        strides=lambda a: [s // (1 if is_columns(a) else 4) for s in a._region.strides]
    ),
)
also("dlpack-values", "the library reads others", DLPACK, tolist=reads_others)
also(
    "dlpack-values",
    "a slice has the strides of an array of its shape",
    DLPACK,
    capsule=exporting(strides=lambda a: [2, 1] if is_columns(a) else [4, 1]),
)
also(
    "dlpack-offset",
    "it is in data and in byte_offset",
    DLPACK,
    capsule=exporting(byte_offset=behind),
)
also(
    "dlpack-offset",
    "byte_offset counts items",
    DLPACK,
    capsule=exporting(
        ptr=lambda a: a._region.ptr - behind(a), byte_offset=lambda a: behind(a) // 4
    ),
)
also(
    "dlpack-reversed",
    "data is the lowest address",
    DLPACK,
    capsule=exporting(ptr=lambda a: a._memory.ptr),
)
also(
    "dlpack-reversed",
    "the array itself is exported",
    DLPACK,
    capsule=exporting(
        ptr=lambda a: a._memory.ptr, strides=lambda a: [abs(s) // 4 for s in a._region.strides]
    ),
)


def copied(values, flags=2, honest=True):
    """Copies that hold something."""

    def capsule(self, stream, max_version, dl_device, copy):
        if not (copy if honest else copy is False):
            return Array.capsule(self, stream, max_version, dl_device, None)
        made = type(self).made(self._region.shape, self._region.dtype)
        if values is not None:
            device()._session.store(made._region.ptr, bytes([values]) * 4 * made._region.size)
        return made.managed("versioned", flags=flags).capsule()

    return capsule


also("dlpack-copy", "the copy holds nothing of the array", DLPACK, capsule=copied(0))
also("dlpack-copy", "copy=False is a copy", DLPACK, capsule=copied(0, 0, honest=False))
also(
    "dlpack-copy",
    "copy=True is refused by a ValueError",
    DLPACK,
    capsule=refusing(ValueError, copy=bool),
)


def served_as(replaced, only_for=None):
    """Tensors that say another device than theirs, where one is asked for."""

    def capsule(self, stream, max_version, dl_device, copy):
        said = self._region.device
        if dl_device is not None and only_for in (None, tuple(dl_device)):
            said = replaced(tuple(dl_device))
        elif dl_device not in (None, self._region.device):
            raise BufferError("dl_device")
        return self.managed("versioned", device=said).capsule()

    return capsule


also(
    "dlpack-dl-device",
    "the host is served with memory of CUDA",
    DLPACK,
    capsule=served_as(lambda _: (2, 0), (1, 0)),
)
also(
    "dlpack-dl-device",
    "memory of CUDA is called the host's",
    DLPACK,
    capsule=served_as(lambda wanted: wanted, (1, 0)),
)
also(
    "dlpack-dl-device",
    "another device is refused by a ValueError",
    DLPACK,
    capsule=refusing(ValueError, dl_device=lambda wanted: wanted not in (None, (2, 0))),
)
also(
    "dlpack-dl-device",
    "its own device is refused",
    DLPACK,
    capsule=refusing(BufferError, dl_device=lambda wanted: wanted is not None),
)
also(
    "dlpack-dl-device",
    "its own device is served with another",
    DLPACK,
    capsule=served_as(lambda _: (2, 1), (2, 0)),
)
_host_tensors = []


def host_memory_of_something_else(self, stream, max_version, dl_device, copy):
    if dl_device != (1, 0):
        return Array.capsule(self, stream, max_version, dl_device, copy)
    _host_tensors.append(ctypes.create_string_buffer(4 * self._region.size))
    at = ctypes.addressof(_host_tensors[-1])
    return self.managed("versioned", ptr=at, device=(1, 0), flags=2).capsule()


also(
    "dlpack-dl-device",
    "the host's memory holds other values",
    DLPACK,
    capsule=host_memory_of_something_else,
)


def the_other_way_round(self, stream):
    wanted = device().stream_of(1 if stream is None else stream)
    for one in self._memory.streams:
        one.wait(wanted.record())


def host_waits(self, stream):
    for one in self._memory.streams if stream != -1 else ():
        one.synchronize()


def before_the_current_one(self, stream):
    self._memory.order_before(current_stream())


also("dlpack-pending", "its own stream waits", DLPACK, order_for=the_other_way_round)
also("dlpack-pending", "the host waits", DLPACK, order_for=host_waits)
also("dlpack-pending", "its current stream waits", DLPACK, order_for=before_the_current_one)


def after_the_current_one(self, stream):
    if stream != -1:
        device().stream_of(stream or 1).wait(current_stream().record())


also(
    "dlpack-pending-elsewhere",
    "the work of the current stream is waited for",
    DLPACK,
    order_for=after_the_current_one,
)
also(
    "dlpack-pending-elsewhere",
    "its own streams wait",
    DLPACK,
    order_for=the_other_way_round,
)


def after_the_first(self, stream):
    for one in self._memory.streams[:1]:
        device().stream_of(stream or 1).wait(one.record())


also("dlpack-pending-on-two", "the first is waited for", DLPACK, order_for=after_the_first)
also(
    "dlpack-pending-on-two",
    "the current one is waited for",
    DLPACK,
    order_for=after_the_current_one,
)


def half_of_it(self, stream, max_version, dl_device, copy):
    """Slices of one dimension begin where their memory does."""
    first = self._memory.ptr if len(self._region.shape) == 1 else self._region.ptr
    return self.managed("versioned", ptr=first).capsule()


also("dlpack-pending-on-two", "a half begins where the array does", DLPACK, capsule=half_of_it)
also(
    "dlpack-default-stream",
    "None is the current stream",
    DLPACK,
    order_for=lambda self, stream: Array.order_for(self, stream or current_stream().handle),
)
also(
    "dlpack-default-stream",
    "None is -1",
    DLPACK,
    order_for=lambda self, stream: Array.order_for(self, stream or -1),
)
also(
    "dlpack-per-thread-stream",
    "2 is the current stream",
    DLPACK,
    order_for=lambda self, s: Array.order_for(self, current_stream().handle if s == 2 else s),
)
also(
    "dlpack-per-thread-stream",
    "it is made to be waited for",
    DLPACK,
    order_for=lambda self, s: (the_other_way_round if s == 2 else Array.order_for)(self, s),
)
also(
    "dlpack-streams", "1 is refused", DLPACK, capsule=refusing(ValueError, stream=lambda s: s == 1)
)
also(
    "dlpack-streams",
    "handles are refused",
    DLPACK,
    capsule=refusing(RuntimeError, stream=lambda s: s is not None and s > 2),
)
also(
    "dlpack-streams",
    "None is refused",
    DLPACK,
    capsule=refusing(TypeError, stream=lambda s: s is None),
)
also(
    "dlpack-no-synchronization",
    "-1 is refused",
    DLPACK,
    capsule=refusing(ValueError, stream=lambda s: s == -1),
)
also(
    "dlpack-no-synchronization",
    "the host waits",
    DLPACK,
    order_for=lambda self, stream: [one.synchronize() for one in self._memory.streams],
)
also(
    "dlpack-stream-zero",
    "0 is -1",
    DLPACK,
    capsule=lambda self, s, *more: Array.capsule(self, -1 if s == 0 else s, *more),
)
also(
    "dlpack-stream-zero",
    "0 is 1",
    DLPACK,
    capsule=lambda self, s, *more: Array.capsule(self, 1 if s == 0 else s, *more),
)


def kept_by_a_list(self, *asked):
    kept.append(self)
    return Array.capsule(self, *asked)


also("dlpack-unconsumed", "a list keeps it", DLPACK, capsule=kept_by_a_list)


def null_deleter(self, stream, max_version, dl_device, copy):
    kept.append(tensor := self.managed("versioned" if max_version else "legacy", null=("deleter",)))
    return tensor.capsule()


also(
    "dlpack-unconsumed",
    "its deleter is NULL, and nobody else lets go",
    DLPACK,
    capsule=null_deleter,
)
also("dlpack-deleter", "a list keeps it", DLPACK, capsule=kept_by_a_list)


def a_block_for_all(array):
    """Where each new array is given the same memory."""
    if not kept_blocks or kept_blocks[-1][0] is not device():
        kept_blocks.append((device(), device().alloc(64)))
    return kept_blocks[-1][1].ptr


kept_blocks = []
also(
    "dlpack-deleter",
    "the same memory is given to all",
    DLPACK,
    capsule=exporting(ptr=a_block_for_all),
)


class Complains:
    """An owner that is let go of by the thread that made it, and complains else."""

    def __init__(self, array):
        self.array, self.made = array, threading.get_ident()

    def __del__(self):
        if threading.get_ident() != self.made:
            kept.append(self.array)


_local = threading.local()


class InThreadsRegister:
    """An owner that is found by a register of the thread."""

    def __init__(self, array):
        self.array = array
        _local.__dict__.setdefault("held", {})[id(self)] = array

    def __del__(self):
        held = _local.__dict__.get("held", {})
        if held.pop(id(self), None) is None:
            kept.append(self.array)


also(
    "dlpack-deleter-anywhere",
    "only the thread that made it",
    DLPACK,
    capsule=exporting(owner=Complains),
)
also(
    "dlpack-deleter-anywhere",
    "a register of the thread is asked",
    DLPACK,
    capsule=exporting(owner=InThreadsRegister),
)


class ZeroesTheShape:
    """An owner whose end clears the array's own structure, which all tensors are given."""

    def __init__(self, array):
        self.array = array

    def __del__(self):
        for tensor in self.array.__dict__.get("tensors", []):
            tensor.struct.dl_tensor.data = 0


class MovesTheData:
    def __init__(self, array):
        self.array = array

    def __del__(self):
        for tensor in self.array.__dict__.get("tensors", []):
            tensor.struct.dl_tensor.byte_offset = 8


def sharing(owner):
    def capsule(self, stream, max_version, dl_device, copy):
        tensor = self.managed("versioned" if max_version else "legacy", owner=owner(self))
        self.__dict__.setdefault("tensors", []).append(tensor)
        return tensor.capsule()

    return capsule


also("dlpack-two-exports", "the end of one clears data", DLPACK, capsule=sharing(ZeroesTheShape))
also("dlpack-two-exports", "the end of one moves the other", DLPACK, capsule=sharing(MovesTheData))

# --- the exchange API -----------------------------------------------------------------------------

also("exchange-table", "version 2 only", table={"version": (2, 0)})
also("exchange-table", "no stream", table={"stream": 0})
also("exchange-table", "no tensor", table={"from_object": 0})
also(
    "exchange-values",
    "strides count bytes",
    EXCHANGE,
    exchanged=lambda self: self.managed(strides=self._region.strides),
)
also(
    "exchange-values",
    "the offset of a slice is ignored",
    EXCHANGE,
    exchanged=lambda self: self.managed(ptr=self._region.ptr - max(behind(self), 0)),
)
also(
    "exchange-values",
    "negative strides are positive",
    EXCHANGE,
    exchanged=lambda self: self.managed(strides=[abs(s) // 4 for s in self._region.strides]),
)
also("exchange-values", "the library reads others", EXCHANGE, tolist=reads_others)
also(
    "exchange-borrowed",
    "it has another shape",
    EXCHANGE,
    lent=lambda self: self.managed(shape=self._region.shape[::-1]),
)
also(
    "exchange-borrowed",
    "it is on another device",
    EXCHANGE,
    lent=lambda self: self.managed(device=(2, 1)),
)
also(
    "exchange-borrowed",
    "its items have another type",
    EXCHANGE,
    lent=lambda self: self.managed(dtype=(0, 32, 1)),
)
also(
    "exchange-stream",
    "one without the work",
    EXCHANGE,
    settle=lambda self: None,
    work_stream=classmethod(lambda cls: any_other_stream(None)),
)
also(
    "exchange-stream",
    "2, which waits for nothing",
    EXCHANGE,
    settle=lambda self: None,
    work_stream=classmethod(lambda cls: 2),
)
also("exchange-pending-on-two", "nothing is settled", EXCHANGE, settle=lambda self: None)


def settle_the_first(self):
    for one in self._memory.streams[:1]:
        device().legacy.wait(one.record())


also(
    "exchange-pending-on-two",
    "1 waits for the first",
    EXCHANGE,
    settle=settle_the_first,
    work_stream=classmethod(lambda cls: 1),
)


def kept_when_exchanged(self):
    kept.append(self)
    return self.managed()


also("exchange-owner", "a list keeps it", EXCHANGE, exchanged=kept_when_exchanged)
also(
    "exchange-owner",
    "the same memory is given to all",
    EXCHANGE,
    exchanged=lambda self: self.managed(ptr=a_block_for_all(self)),
)

# --- both -----------------------------------------------------------------------------------------

also(
    "both-agree",
    "the tensor has another shape",
    capsule=exporting(shape=lambda a: a._region.shape[::-1]),
)
also(
    "both-agree",
    "the tensor has signs, and the dict has none",
    interface=saying(typestr=lambda *_: "<u4"),
)
also(
    "both-agree",
    "slices begin elsewhere",
    capsule=exporting(ptr=lambda a: a._region.ptr - (a.contiguous and behind(a))),
)
