"""One producer for each requirement, that breaks it and keeps all others.

Where one breach shows through two protocols, the producer speaks only one of them.
"""

from __future__ import annotations

import threading

from producers import CODES, Array, broken, current_stream, device

from cai_bridge.testing._kit.dlpack_capsule import NAMES, new_capsule

kept = []
"""What a library that forgets to let go of things holds."""


def saying(**entries):
    """The dict with some entries replaced, by functions of the array and the entry."""

    def interface(self):
        said = Array.interface(self)
        return {**said, **{name: change(self, said[name]) for name, change in entries.items()}}

    return interface


def exporting(**fields):
    """Capsules with some fields replaced, by functions of the array."""

    def capsule(self, stream, max_version, dl_device, copy):
        self.check_wishes(stream, dl_device, copy)
        form = form_for(max_version)
        tensor = self.managed(form, **{name: change(self) for name, change in fields.items()})
        self.order_for(stream)
        return tensor.capsule()

    return capsule


def is_columns(array):
    """Whether it is every second column of an array of two dimensions."""
    return len(array._region.shape) == 2 and array._region.strides[1] == 2 * array._region.itemsize


def behind(array):
    """How many bytes the first item of an array of two dimensions is behind its memory's."""
    region = array._region
    return region.ptr - array._memory.ptr if len(region.shape) == 2 else 0


def starts_with_its_memory(array):
    """Where an array is, but for rows, which are told to be where their memory begins."""
    region = array._region
    return region.ptr - (array.contiguous and behind(array)) if region.size else 0


def form_for(max_version):
    """The form of a capsule by what was asked for."""
    return "versioned" if max_version is not None and max_version >= (1, 0) else "legacy"


def pending(array):
    """The handles of the streams that work on the array is queued on."""
    return [stream.handle for stream in array._memory.streams]


def on_current(array):
    """Whether the work of the current stream is all that is pending, or some of it."""
    return current_stream().handle in pending(array)


# --- CAI ------------------------------------------------------------------------------------------


class Entries(dict):
    """Gives a version that it does not hold, so that only ``[]`` finds it."""

    def __missing__(self, name):
        return {"version": 3}[name]


def without_version(self):
    said = Entries(Array.interface(self))
    del said["version"]
    return said


broken("cai-entries", doors=("cai",), interface=without_version)
broken("cai-shape", interface=saying(shape=lambda _, shape: list(shape)))
broken(
    "cai-typestr",
    interface=saying(typestr=lambda a, said: ">c8" if a._region.dtype == "complex64" else said),
)
broken("cai-data", interface=saying(data=lambda _, data: list(data)))
broken(
    "cai-pointer",
    interface=saying(data=lambda a, data: (4096, data[1]) if a._region.shape == (6,) else data),
)
broken("cai-zero-size", interface=saying(data=lambda _, data: (data[0] or 4096, data[1])))
broken("cai-strides", interface=saying(strides=lambda _, strides: strides and list(strides)))
broken(
    "cai-values",
    doors=("cai",),
    interface=saying(data=lambda a, data: (data[0] + 4 * is_columns(a), data[1])),
)
broken(
    "cai-offset",
    doors=("cai",),
    interface=saying(
        data=lambda a, data: (starts_with_its_memory(a), data[1]),
    ),
)
broken(
    "cai-reversed",
    doors=("cai",),
    interface=saying(strides=lambda _, strides: strides and tuple(map(abs, strides))),
)
broken("cai-version", interface=saying(version=lambda *_: 2))
broken("cai-mask", doors=("cai",), interface=lambda self: {**Array.interface(self), "mask": [True]})
broken("cai-descr", interface=saying(descr=lambda *_: [("", "<f8")]))
broken("cai-readonly", interface=saying(data=lambda _, data: (data[0], False)))
broken("cai-stream", interface=saying(stream=lambda _, stream: stream or 0))


def nothing_pending_here(self):
    return None if pending(self) == [current_stream().handle] else Array.ready_stream(self)


def the_current_stream(self):
    if not pending(self) or on_current(self):
        return Array.ready_stream(self)
    return current_stream().handle


def the_last_stream(self):
    return pending(self)[-1] if pending(self) else None


def fill_and_forget_the_stream(self, value):
    stream = current_stream()
    stream.fill(self._region, value)
    self._memory.used_on(device().stream_of(stream.handle))


def interface_that_keeps_the_array(self):
    kept.append(self)
    return Array.interface(self)


broken("cai-pending", ready_stream=nothing_pending_here)
broken("cai-pending-elsewhere", ready_stream=the_current_stream)
broken("cai-pending-on-two", ready_stream=the_last_stream)
broken("cai-stream-lifetime", fill=fill_and_forget_the_stream)
broken("cai-lifetime", doors=("cai",), interface=interface_that_keeps_the_array)

# --- DLPack ---------------------------------------------------------------------------------------


def capsule_for_given_copy(self, *, stream=None, max_version=None, dl_device=None, **more):
    if more.get("copy", False) is None:
        raise TypeError("__dlpack__() got an unexpected keyword argument 'copy'")
    return self.capsule(stream, max_version, dl_device, more.get("copy"))


def version_as_asked(self, stream, max_version, dl_device, copy):
    self.check_wishes(stream, dl_device, copy)
    form = "2.0" if max_version and max_version >= (2, 0) else form_for(max_version)
    tensor = self.managed(form)
    self.order_for(stream)
    return tensor.capsule()


def only(form):
    def capsule(self, stream, max_version, dl_device, copy):
        self.check_wishes(stream, dl_device, copy)
        tensor = self.managed(form)
        self.order_for(stream)
        return tensor.capsule()

    return capsule


broken("dlpack-device", device=lambda self: list(self._region.device))
broken("dlpack-same-device", doors=("dlpack",), device=lambda self: (2, 7))
broken("dlpack-keywords", __dlpack__=capsule_for_given_copy)
broken("dlpack-legacy", capsule=only("versioned"))
broken("dlpack-versioned", capsule=only("legacy"))
broken("dlpack-version", capsule=version_as_asked)


def versioned_with(**fields):
    """The same replaced in versioned capsules only."""
    changed = exporting(**fields)

    def capsule(self, stream, max_version, dl_device, copy):
        made = changed if form_for(max_version) == "versioned" else Array.capsule
        return made(self, stream, max_version, dl_device, copy)

    return capsule


broken("dlpack-flags", capsule=versioned_with(flags=lambda a: 2 | a._region.readonly))
broken("dlpack-readonly", capsule=versioned_with(flags=lambda _: 0))


def dtype_that_forgets_signs(array):
    code = 0 if array._region.dtype == "uint32" else CODES[array._region.dtype]
    return (code, 8 * array._region.itemsize, 1)


def ones_for_scalars(array):
    return array._region.shape or (1,)


def strides_for_ones(array):
    return [step // array._region.itemsize for step in array._region.strides] or [1]


def null_in_new_tensors(self, stream, max_version, dl_device, copy):
    self.check_wishes(stream, dl_device, copy)
    null = ("strides",) if max_version and self.contiguous else ()
    tensor = self.managed(form_for(max_version), null=null)
    self.order_for(stream)
    return tensor.capsule()


broken("dlpack-dtype", capsule=exporting(dtype=dtype_that_forgets_signs))
broken("dlpack-shape", capsule=exporting(shape=ones_for_scalars, strides=strides_for_ones))
broken("dlpack-strides", capsule=null_in_new_tensors)
broken("dlpack-zero-size", capsule=exporting(ptr=lambda a: a._region.ptr or 4096))
broken(
    "dlpack-values", doors=("dlpack",), capsule=exporting(byte_offset=lambda a: 4 * is_columns(a))
)
broken(
    "dlpack-offset",
    doors=("dlpack",),
    capsule=exporting(ptr=starts_with_its_memory),
)
broken(
    "dlpack-reversed",
    doors=("dlpack",),
    capsule=exporting(
        strides=lambda a: [abs(step) // a._region.itemsize for step in a._region.strides]
    ),
)


def order_if(wanted):
    """Order before the consumer's stream only where `wanted` says so."""

    def order_for(self, stream):
        if wanted(self, stream):
            Array.order_for(self, stream)

    return order_for


def order_always(self, stream):
    Array.order_for(self, None if stream == -1 else stream)


def waits_for_the_last(self, stream):
    last = self._memory.streams[-1:]
    for one in last if stream != -1 else ():
        device().stream_of(stream or 1).wait(one.record())


def waits_for_one(a, stream):
    """Whether nothing is asked for but the order of one stream before another."""
    return stream not in (None, 2) and len(pending(a)) < 2 and on_current(a)


broken("dlpack-pending", order_for=order_if(lambda a, stream: not waits_for_one(a, stream)))
broken("dlpack-pending-on-two", order_for=waits_for_the_last)
broken("dlpack-pending-elsewhere", order_for=order_if(lambda a, _: on_current(a)))
broken("dlpack-no-synchronization", order_for=order_always)


def takes_zero(self, stream, max_version, dl_device, copy):
    return Array.capsule(self, stream or None, max_version, dl_device, copy)


def takes_copy(self, stream, max_version, dl_device, copy):
    return Array.capsule(self, stream, max_version, dl_device, None)


def takes_any_device(self, stream, max_version, dl_device, copy):
    return Array.capsule(self, stream, max_version, None, copy)


def refuses_two(self, stream, max_version, dl_device, copy):
    if stream == 2 and not pending(self):
        raise ValueError("stream: got 2; allowed: None, -1, 1 or a handle")
    return Array.capsule(self, stream, max_version, dl_device, copy)


broken("dlpack-streams", capsule=refuses_two)
broken("dlpack-stream-zero", capsule=takes_zero)
broken("dlpack-copy", capsule=takes_copy)
broken("dlpack-dl-device", capsule=takes_any_device)


def capsule_without_destructor(self, stream, max_version, dl_device, copy):
    self.check_wishes(stream, dl_device, copy)
    tensor = self.managed(form_for(max_version))
    self.order_for(stream)
    name = NAMES["dltensor_versioned" if form_for(max_version) == "versioned" else "dltensor"]
    return new_capsule(tensor.hand_out(), name, None)


class LetsGoInTheMainThread:
    """An owner that must not go in another thread, and stays instead."""

    def __init__(self, array):
        self.array = array

    def __del__(self):
        if threading.current_thread() is not threading.main_thread():
            kept.append(self.array)


class SharesItsShape:
    """An owner that takes what it shares with other tensors of the array along."""

    def __init__(self, array):
        self.tensors = array.__dict__.setdefault("tensors", [])

    def __del__(self):
        for tensor in self.tensors:
            tensor.struct.dl_tensor.ndim = 0


def with_shared_shape(self, stream, max_version, dl_device, copy):
    self.check_wishes(stream, dl_device, copy)
    owner = SharesItsShape(self)
    owner.array = self
    tensor = self.managed(form_for(max_version), owner=owner)
    owner.tensors.append(tensor)
    self.order_for(stream)
    return tensor.capsule()


broken("dlpack-unconsumed", capsule=capsule_without_destructor)
broken("dlpack-deleter", capsule=exporting(owner=lambda _: None))
broken("dlpack-deleter-anywhere", capsule=exporting(owner=LetsGoInTheMainThread))
broken("dlpack-two-exports", capsule=with_shared_shape)

# --- the exchange API -----------------------------------------------------------------------------

broken("exchange-table", table={"allocate": 0})
broken(
    "exchange-values",
    doors=("exchange",),
    exchanged=lambda self: self.managed(byte_offset=4 * is_columns(self)),
)
broken(
    "exchange-borrowed",
    doors=("exchange",),
    lent=lambda self: self.managed(byte_offset=4),
)
broken(
    "exchange-stream",
    settle=lambda self: len(pending(self)) > 1 and self._memory.order_before(device().legacy),
    work_stream=classmethod(lambda cls: 1),
)
broken(
    "exchange-pending-on-two",
    settle=lambda self: Array.settle(self) if len(pending(self)) < 2 else None,
)
broken("exchange-owner", exchanged=lambda self: self.managed(owner=None))

# --- both -----------------------------------------------------------------------------------------


def managed_by_whom_may_not_write(array, form="versioned", **fields):
    """Versioned tensors that are read-only, of integers whose dict says that they are not."""
    flags = {} if form == "legacy" or array._region.dtype == "float32" else {"flags": 1}
    return Array.managed(array, form, **{**flags, **fields})


broken("both-agree", managed=managed_by_whom_may_not_write)
