"""Further producers that break a requirement of what a capsule says."""

from __future__ import annotations

import ctypes

from broken_producers import behind, exporting, is_columns, versioned_with
from more_producers import DLPACK, also, reads_others
from producers import CODES, Array, device


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


def positions(self, stream=None, max_version=None, device=None, copied=None, /):
    return self.capsule(stream, max_version, device, copied)


also("dlpack-keywords", "it takes them by position", DLPACK, __dlpack__=positions)
also(
    "dlpack-legacy",
    "it is refused with a ValueError",
    DLPACK,
    capsule=refusing(ValueError, max_version=lambda newest: newest is None),
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
also(
    "dlpack-readonly", "a writable array's flag", DLPACK, capsule=versioned_with(flags=lambda _: 1)
)
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
