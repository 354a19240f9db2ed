"""Further producers that break a requirement, each another way than the one of `broken_producers`.

They are written from the specifications: what a library's author may get wrong of a sentence there.
`ALSO` has them by the requirement and what they do; here a producer may break others, too.
`more_producers_dlpack` adds those of DLPack.
"""

from __future__ import annotations

import ctypes
import types

from broken_producers import exporting, saying
from producers import EVERY, Array, Library, speaking

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


# --- what a dict says -----------------------------------------------------------------------------


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
    "the shape is that of no dimensions",
    CAI,
    interface=saying(shape=lambda _, shape: () if 0 in shape else shape),
)
also(
    "cai-strides",
    "they are no integers",
    CAI,
    interface=saying(strides=lambda _, strides: strides and tuple(map(float, strides))),
)


also("cai-entries", "the version is a float", CAI, interface=saying(version=lambda *_: 3.0))
also("cai-entries", "the version is text", CAI, interface=saying(version=lambda *_: "3"))
also("cai-version", "it is 1", CAI, interface=saying(version=lambda *_: 1))
also("cai-version", "it is 0", CAI, interface=saying(version=lambda *_: 0))
also("cai-mask", "it is False", interface=lambda self: {**Array.interface(self), "mask": False})
also("cai-mask", "it is a pointer", interface=lambda self: {**Array.interface(self), "mask": 4096})
also("cai-descr", "it is a tuple", interface=saying(descr=lambda _, descr: tuple(descr)))
also(
    "cai-readonly",
    "a writable array has it",
    interface=saying(data=lambda _, d: (d[0], True)),
)


def interface_in_a_circle(self):
    self.__dict__["last"] = self.interface_again
    return Array.interface(self)


also(
    "cai-lifetime",
    "it holds itself afterwards, until a collection",
    CAI,
    interface=interface_in_a_circle,
    interface_again=lambda self: None,
)


# --- the exchange API, and both protocols ---------------------------------------------------------

also("exchange-table", "version 2 only", table={"version": (2, 0)})
also("exchange-table", "no stream", table={"stream": 0})
also("exchange-table", "no tensor", table={"from_object": 0})


also(
    "both-agree",
    "the tensor has another shape",
    capsule=exporting(shape=lambda a: a._region.shape[::-1]),
)
