"""Further producers that break a requirement of the CUDA Array Interface."""

from __future__ import annotations

import ctypes
import types

from broken_producers import behind, is_backwards, kept, on_current, pending, saying
from more_producers import CAI, Index, also, reads_others, without
from producers import Array, current_stream, device


class Printed:
    """No text, though it prints as one and has its letters."""

    def __init__(self, text):
        self.text = text

    def __str__(self):
        return self.text

    def __getitem__(self, place):
        return self.text[place]


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
also(
    "cai-typestr",
    "it is an object that prints as one",
    CAI,
    interface=saying(typestr=lambda _, t: Printed(t)),
)
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
also("cai-entries", "the version is a float", CAI, interface=saying(version=lambda *_: 3.0))
also("cai-entries", "the version is text", CAI, interface=saying(version=lambda *_: "3"))
also("cai-version", "it is 1", CAI, interface=saying(version=lambda *_: 1))
also("cai-version", "it is 0", CAI, interface=saying(version=lambda *_: 0))
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
also(
    "cai-readonly",
    "a writable array has it",
    interface=saying(data=lambda _, d: (d[0], True)),
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
