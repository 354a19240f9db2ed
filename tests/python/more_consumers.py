"""Further consumers that break a requirement, each another way than the one of `broken_consumers`.

They are written from the specifications: what a library's author may get wrong of a sentence there.
`ALSO` has them by the requirement and what they do; here a consumer may break others, too.
"""

from __future__ import annotations

import ctypes

from broken_consumers import (
    a_copy_of_four,
    changed,
    compact,
    described_as,
    known_minor,
    misread,
    one_further,
    reading,
    steps,
    taking,
    waiting_unless,
    without,
)

from cai_bridge.conformance.libraries.simulated import Array, Consumer
from cai_bridge.testing import SimulatedCuda
from cai_bridge.testing._kit.dlpack_structures import Taken, _struct_in, read_capsule, take
from cai_bridge.testing._values import compact_strides

ALSO: dict[tuple[str, str], type[Consumer]] = {}


def also(requirement, what, **methods):
    """Define a copy of the consumer that breaks a requirement in another way."""
    ALSO[requirement, what] = type("Another", (Consumer,), {**methods, "name": what})


def device():
    return SimulatedCuda.current()


def both(name, what, change):
    """Break what is required by both protocols of where the items are."""

    def described(self, said, x):
        return change(Consumer.described(self, said, x))

    def region_of(self, fields):
        return change(Consumer.region_of(self, fields))

    also(f"takes-cai-{name}", what, described=described)
    also(f"takes-dlpack-{name}", what, region_of=region_of)


def taken(name, what, change):
    """Break what is required by both protocols of what is made of an array."""
    for door in ("cai", "dlpack"):
        also(f"takes-{door}-{name}", what, **taking(door, change))


# --- where the items are, by both protocols -------------------------------------------------------


def transposed(region):
    return changed(region, strides=region.strides[::-1], shape=region.shape[::-1])


def from_the_last(region):
    return changed(region, shape=region.shape[::-1])


def of_another_type(region):
    return changed(region, dtype="int32")


def is_fortran(region):
    return len(region.shape) > 1 and steps(region) == compact_strides(region.shape[::-1], 1)[::-1]


def has_gaps(region):
    return len(region.shape) > 1 and steps(region)[-1] == 2


def is_backwards(region):
    return any(step < 0 for step in region.strides)


def is_repeated(region):
    return 0 in region.strides and region.size > 0


def lowest(region):
    """The items from the lowest address on, by positive strides."""
    low = min(ptr for ptr, _ in region.spans())
    return compact(changed(region, ptr=low))


def strides_of_bytes(region):
    return changed(region, strides=steps(region))


def one_row(region):
    return changed(region, shape=(1, *region.shape[1:]))


both("values", "the extents are those of the transpose", from_the_last)
both("values", "the items are taken for integers", of_another_type)
both("fortran", "it is taken for its transpose", misread(is_fortran, transposed))
both("fortran", "strides are taken for items", misread(is_fortran, strides_of_bytes))
both("columns", "strides are taken for items", misread(has_gaps, strides_of_bytes))
both("columns", "the last of each pair is read", misread(has_gaps, one_further))
both("reversed", "the items are read from the lowest", misread(is_backwards, lowest))
both("reversed", "only one row is read", misread(is_backwards, one_row))
both("repeated", "only one row is read", misread(is_repeated, one_row))
both("repeated", "the next row is read", misread(is_repeated, one_further))
both("zero-size", "any pointer 0 is refused", without("NULL", lambda region: not region.ptr))
both(
    "zero-size",
    "extents of 0 are taken for 1",
    misread(
        lambda region: not region.size,
        lambda region: changed(region, shape=(), strides=(), ptr=device().alloc(16).ptr),
    ),
)
both(
    "scalar",
    "it is taken for an array of none",
    misread(lambda region: not region.shape, lambda r: changed(r, shape=(0,), strides=(4,))),
)
both("scalar", "the item behind it is read", misread(lambda region: not region.shape, one_further))
both(
    "dtypes",
    "unsigned integers are refused",
    without("uint8", lambda region: region.dtype == "uint8"),
)
both(
    "dtypes",
    "16-bit floats are taken for integers",
    misread(lambda r: r.dtype == "float16", lambda r: changed(r, dtype="int16")),
)

# --- what is done with an array, by both protocols ------------------------------------------------


def a_copy(self, array):
    if array.region.shape != (4,):
        return array
    made = device().array(device().read(array.region), dtype=array.region.dtype)
    return Array(made._region, array.ready, (array.held, made))


def zeroes_it(self, array):
    region = array.region
    if region.size and region == compact(region) and not region.readonly:
        device()._session.store(region.ptr, bytes(region.itemsize))
    return array


def writes_before(self, array):
    region = array.region
    if region.size and region == compact(region):
        device()._session.store(region.ptr - 4, bytes(4))
    return array


def writes_what_is_readonly(self, array, value):
    self.current.fill(changed(array.region, readonly=False), value)


def writes_and_refuses(self, array, value):
    writes_what_is_readonly(self, array, value)
    raise BufferError("array: got a read-only one")


taken("shared", "it is read when it is taken in", a_copy)
taken("shared", "it is copied when it is taken in again", a_copy_of_four)
taken("unwritten", "its first item is cleared", zeroes_it)
taken("unwritten", "the item before it is cleared", writes_before)
for door in ("cai", "dlpack"):
    also(f"takes-{door}-readonly", "the flag is not looked at", fill=writes_what_is_readonly)
    also(f"takes-{door}-readonly", "it is refused too late", fill=writes_and_refuses)

# --- CAI ------------------------------------------------------------------------------------------


def needing(*names):
    """Refuse dicts without an entry."""

    def interface(self, x):
        said = Consumer.interface(self, x)
        for name in names:
            if said.get(name) is None:
                raise ValueError(f"{name}: got none")
        return said

    return interface


def without_descr(self, x):
    said = Consumer.interface(self, x)
    if "descr" in said:
        raise ValueError("descr: got one")
    return said


also("takes-cai-optional-entries", "strides are needed", interface=needing("strides"))
also("takes-cai-optional-entries", "descr is refused", interface=without_descr)


def taken_for_integers(self, said, x):
    region = Consumer.described(self, {**said, "typestr": said["typestr"].replace(">", "<")}, x)
    return of_another_type(region) if said["typestr"][0] == ">" else region


also("takes-cai-byte-order", "the items are taken for integers", described=taken_for_integers)
also(
    "takes-cai-byte-order",
    "the letter is not looked at",
    described=described_as(typestr=lambda said: "<" + said["typestr"][1:]),
)


def only_masks_of_none(self, mask):
    if mask is not None and not hasattr(mask, "__cuda_array_interface__"):
        raise TypeError("mask")


also("takes-cai-mask", "only its type is looked at", check_mask=only_masks_of_none)


def mask_read_and_dropped(self, mask):
    if mask is not None:
        device().read(Consumer.described(self, mask.__cuda_array_interface__, mask))


also("takes-cai-mask", "it is read, and dropped", check_mask=mask_read_and_dropped)


def up_to(limit):
    def check_version(self, version):
        if version > limit:
            raise ValueError("version")

    return check_version


also("takes-cai-version", "every version is taken", check_version=up_to(float("inf")))
also("takes-cai-version", "versions up to 9 are taken", check_version=up_to(9))


def asks_and_reads(self, x):
    return x.__cuda_array_interface__ if hasattr(x, "__cuda_array_interface__") else None


def reads_each_entry(self, x):
    names = ("shape", "typestr", "data", "version", "strides", "stream", "mask", "descr")
    return {n: x.__cuda_array_interface__[n] for n in names if n in x.__cuda_array_interface__}


also("takes-cai-one-read", "hasattr reads it, too", interface=asks_and_reads)
also("takes-cai-one-read", "it is read for each entry", interface=reads_each_entry)
also(
    "takes-cai-stream-zero",
    "it is the legacy default stream",
    named_stream=lambda self, said: said.get("stream") if said.get("stream") != 0 else 1,
)
also(
    "takes-cai-stream-zero",
    "it is -1",
    named_stream=lambda self, said: None if said.get("stream") in (0, -1) else said["stream"],
)


def backwards(self, stream):
    """The producer's stream is made to wait."""
    self.order(self.current.handle, stream)


def recorded_only(self, stream):
    device().stream_of(stream).record()


also("takes-cai-stream", "the producer's stream waits", wait_for=backwards)
also("takes-cai-stream", "an event is recorded, and not waited for", wait_for=recorded_only)
for name in ("legacy", "per-thread"):
    also(
        f"takes-cai-{name}-stream",
        "default streams are left out",
        wait_for=waiting_unless(lambda theirs, own: theirs <= 2),
    )
    also(
        f"takes-cai-{name}-stream",
        "it is taken for none",
        named_stream=lambda self, said: None if said.get("stream") in (1, 2) else said["stream"],
    )
also("takes-cai-default-stream", "the producer's stream waits", wait_for=backwards)
also("takes-cai-default-stream", "it waits for nothing", wait_for=lambda self, stream: None)


def gives_back_too_early(self, array):
    """The order is made when the array is taken in, and the work comes behind."""


def early(door_method):
    def taken_in(self, x):
        array = door_method(self, x)
        self.give_back(array)
        return array

    return taken_in


also(
    "takes-cai-return",
    "it is made before the work is queued",
    take_dict=early(Consumer.take_dict),
    give_back_read=gives_back_too_early,
)
also(
    "takes-cai-return",
    "its own stream waits once more",
    give_back_read=lambda self, array: array.ready and self.order(array.ready, self.current.handle),
)
also(
    "takes-cai-return-write",
    "it is made before the work is queued",
    take_dict=early(Consumer.take_dict),
    give_back_written=gives_back_too_early,
)
also(
    "takes-cai-return-write",
    "its own stream waits once more",
    give_back_written=lambda self, array: (
        array.ready and self.order(array.ready, self.current.handle)
    ),
)

# --- DLPack ---------------------------------------------------------------------------------------


def legacy_is_refused(self, capsule):
    fields = read_capsule(capsule)
    if fields.version is None:
        raise BufferError("capsule: got 'dltensor'")
    return fields


def legacy_has_fields_further_on(self, capsule):
    fields = read_capsule(capsule)
    if fields.version is None and len(fields.shape or ()) == 3:
        object.__setattr__(fields, "data", fields.data + 4)
    return fields


also("takes-dlpack-legacy", "it is refused", read=legacy_is_refused)
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
also(
    "takes-dlpack-byte-offset",
    "it counts items",
    read=reading(byte_offset=lambda f: f.byte_offset // 4),
)
also(
    "takes-dlpack-byte-offset",
    "it is subtracted",
    read=reading(byte_offset=lambda f: -f.byte_offset),
)


def null_strides_are_those_of_fortran(self, fields, shape):
    return compact_strides(shape[::-1], 1)[::-1] if fields.strides is None else fields.strides


def null_strides_are_one(self, fields, shape):
    return (1,) * len(shape) if fields.strides is None else fields.strides


also(
    "takes-dlpack-null-strides", "they are Fortran's", strides_of=null_strides_are_those_of_fortran
)
also("takes-dlpack-null-strides", "they are all 1", strides_of=null_strides_are_one)


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
    code, bits, lanes = fields.dtype
    object.__setattr__(fields, "dtype", (code, bits * lanes, 1))


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
also("takes-dlpack-pending", "it names the default stream", stream_to_name=lambda self: 1)
also("takes-dlpack-pending", "it names 2", stream_to_name=lambda self: 2)


def another_stream(self):
    self._another = device().stream()
    return self._another.handle


also("takes-dlpack-default-stream", "it names -1", stream_to_name=lambda self: -1)
also("takes-dlpack-default-stream", "it names another stream", stream_to_name=another_stream)

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


def consume_and_keep(self, capsule):
    for_ever.append(take(capsule))
    return for_ever[-1]


class Twice:
    """A tensor whose deleter is called twice."""

    def __init__(self, taken):
        self._taken = taken

    def __del__(self):
        address = ctypes.addressof(self._taken.struct)
        deleter = ctypes.cast(self._taken.struct.deleter, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
        deleter(address)
        self._taken.delete()


also("takes-dlpack-deleter", "a list keeps it", consume=consume_and_keep)
also("takes-dlpack-deleter", "it is called twice", consume=lambda self, c: Twice(take(c)))


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


def deleted_twice(self, capsule):
    try:
        fields = Consumer.read(self, capsule)
        Consumer.region_of(self, fields)
    except BufferError:
        found = take(capsule)
        deleter = ctypes.cast(found.struct.deleter, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
        deleter(ctypes.addressof(found.struct))
        found.delete()
        raise
    return fields


def kept_when_refused(self, capsule):
    try:
        fields = Consumer.read(self, capsule)
        Consumer.region_of(self, fields)
    except BufferError:
        for_ever.append(capsule)
        raise
    return fields


also("takes-dlpack-refused-deleted", "it is deleted twice", read=deleted_twice)
also("takes-dlpack-refused-deleted", "the capsule is kept", read=kept_when_refused)
