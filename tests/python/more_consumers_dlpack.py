"""Further consumers that break a requirement of DLPack."""

from __future__ import annotations

import ctypes

from broken_consumers import known_minor, reading, refused_with
from more_consumers import also

from cai_bridge.conformance.libraries.simulated import Consumer
from cai_bridge.testing._kit.dlpack_capsule import Taken, _struct_in, read_capsule, take


def legacy_is_of_one_item(self, capsule):
    fields = read_capsule(capsule)
    if fields.version is None and len(fields.shape or ()) == 2:
        object.__setattr__(fields, "shape", (1, 1))
    return fields


def legacy_has_fields_further_on(self, capsule):
    fields = read_capsule(capsule)
    if fields.version is None and len(fields.shape or ()) == 3:
        object.__setattr__(fields, "data", fields.data + 4)
    return fields


also("takes-dlpack-legacy", "it is of one item", read=legacy_is_of_one_item)
also("takes-dlpack-legacy", "it is read from elsewhere", read=legacy_has_fields_further_on)
also("takes-dlpack-older-minor", "it is refused before 1.3", read=known_minor(lambda m: m >= 3))
also(
    "takes-dlpack-older-minor",
    "only 1.1 and 1.2 are taken",
    read=known_minor(lambda m: m in (1, 2)),
)
also("takes-dlpack-newer-minor", "only 1.3 is taken", read=known_minor(lambda m: m == 3))
also("takes-dlpack-newer-minor", "minors are taken up to 9", read=known_minor(lambda m: m < 9))


def any_major(self, capsule):
    name, found = _struct_in(capsule)
    if name == "dltensor_versioned":
        found.major, found.minor = 1, 0
    return read_capsule(capsule)


def major_of_two(self, capsule):
    name, found = _struct_in(capsule)
    if name == "dltensor_versioned" and found.major == 2:
        found.major = 1
    return read_capsule(capsule)


also("takes-dlpack-other-major", "versions are not looked at", read=any_major)
also("takes-dlpack-other-major", "2 is taken, too", read=major_of_two)


def of_lanes(change):
    def read(self, capsule):
        fields = read_capsule(capsule)
        if fields.dtype[2] > 1:
            change(fields)
        return fields

    return read


def first_lanes(fields):
    object.__setattr__(fields, "dtype", (*fields.dtype[:2], 1))
    object.__setattr__(fields, "strides", tuple(2 * step for step in fields.strides))


def lanes_for_bits(fields):
    code, bits, _ = fields.dtype
    object.__setattr__(fields, "dtype", (code, 2 * bits, 1))


also("takes-dlpack-lanes", "the first of each is read", read=of_lanes(first_lanes))
also("takes-dlpack-lanes", "two are taken for one of twice the size", read=of_lanes(lanes_for_bits))


def check_device_by_ordinal(self, x):
    kind, ordinal = x.__dlpack_device__()
    if kind == 1 or ordinal > 0:
        raise BufferError("device")


def asked_only_for_the_cpu(self, x):
    if x.__dlpack_device__()[0] in (1, 2):
        Consumer.check_device(self, x)


also(
    "takes-dlpack-foreign-device",
    "only the ordinal is looked at",
    check_device=check_device_by_ordinal,
    read=reading(device=lambda fields: (2, fields.device[1])),
)
also(
    "takes-dlpack-foreign-device",
    "types that are not known are taken for CUDA",
    check_device=asked_only_for_the_cpu,
    read=reading(device=lambda f: (2, 0) if f.device[0] > 2 else f.device),
)
also(
    "takes-dlpack-foreign-device",
    "of all other types one is taken for CUDA",
    check_device=asked_only_for_the_cpu,
    read=reading(device=lambda f: (2, 0) if f.device[0] == 10 else f.device),
)


def asks_first(self, x):
    """The capsule is asked for before the device."""
    self._early = x.__dlpack__(stream=self.stream_to_name(), max_version=(1, 3))
    Consumer.check_device(self, x)


def asks_when_it_is_not_cuda(self, x):
    if x.__dlpack_device__()[0] != 2:
        x.__dlpack__(stream=self.stream_to_name())
        raise BufferError("device")


also("takes-dlpack-device", "the capsule is asked for first", check_device=asks_first)
also(
    "takes-dlpack-device",
    "the device is asked, and not minded",
    check_device=asks_when_it_is_not_cuda,
)
also("takes-dlpack-stream-named", "it names an object", stream_to_name=lambda self: self.current)
also("takes-dlpack-stream-named", "it names -2", stream_to_name=lambda self: -2)
also(
    "takes-dlpack-stream-named",
    "it names True",
    stream_to_name=lambda self: True if self.current.handle == 1 else self.current.handle,
)


def asks_for(newest):
    def ask(self, x):
        try:
            return x.__dlpack__(stream=self.stream_to_name(), max_version=newest)
        except TypeError:
            return x.__dlpack__(stream=self.stream_to_name())

    return ask


also("takes-dlpack-max-version", "it asks for 0.8", ask=asks_for((0, 8)))
also("takes-dlpack-max-version", "it asks for None", ask=asks_for(None))


def asks_again_for_buffer_errors(self, x):
    try:
        return x.__dlpack__(stream=self.stream_to_name(), max_version=(1, 3))
    except BufferError:
        return x.__dlpack__(stream=self.stream_to_name())


def asks_again_with_it(self, x):
    try:
        return x.__dlpack__(stream=self.stream_to_name(), max_version=(1, 3), copy=None)
    except TypeError:
        return x.__dlpack__(stream=self.stream_to_name(), max_version=(1, 3))


also("takes-dlpack-no-max-version", "it minds another error", ask=asks_again_for_buffer_errors)
also("takes-dlpack-no-max-version", "it asks again with it", ask=asks_again_with_it)


def fails_as(error):
    def ask(self, x):
        try:
            return Consumer.ask(self, x)
        except BufferError as refused:
            raise error(str(refused)) from refused

    return ask


also("takes-dlpack-buffer-error", "it becomes a TypeError", ask=fails_as(TypeError))
also("takes-dlpack-buffer-error", "it becomes a ValueError", ask=fails_as(ValueError))


_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
_set_destructor = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
    ("PyCapsule_SetDestructor", ctypes.pythonapi)
)
_NAMES = [ctypes.create_string_buffer(b"consumed"), ctypes.create_string_buffer(b"dltensor")]


def renamed_to(name):
    def consume(self, capsule):
        kind, found = _struct_in(capsule)
        _set_destructor(capsule, None)
        if name is not None:
            _set_name(capsule, ctypes.cast(_NAMES[name], ctypes.c_char_p))
        return Taken(found, kind)

    return consume


also("takes-dlpack-renamed", "it is called otherwise", consume=renamed_to(0))
also("takes-dlpack-renamed", "it keeps its name", consume=renamed_to(None))


for_ever = []
"""What nobody lets go of."""


def consume_and_drop(self, capsule):
    take(capsule)


def capsule_after_the_copy(self, x):
    """It is let go of when the next array is taken in."""
    self._held = Consumer.take_capsule(self, x)
    held, self._held.held = self._held.held, None
    held.delete()
    return self._held


also("takes-dlpack-deleter-not-early", "nobody holds the tensor", consume=consume_and_drop)
also(
    "takes-dlpack-deleter-not-early",
    "it is deleted when all is read",
    take_capsule=capsule_after_the_copy,
)


def deleted_twice(capsule):
    found = take(capsule)
    deleter = ctypes.cast(found.struct.deleter, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
    deleter(ctypes.addressof(found.struct))
    found.delete()


for act, how in ((deleted_twice, "it is deleted twice"), (for_ever.append, "the capsule is kept")):
    also("takes-dlpack-refused-deleted", how, read=refused_with(act))
