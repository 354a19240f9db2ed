"""One consumer for each requirement, that breaks it and keeps all others.

Each is the careful consumer of the simulated device with one of its methods replaced. `BROKEN` has
them by the requirement, and ``broken_consumers:breaks_...`` names one for a program.
"""

from __future__ import annotations

import ctypes

from cai_bridge.conformance.libraries.simulated import Array, Consumer
from cai_bridge.testing import SimulatedCuda
from cai_bridge.testing._kit.dlpack_capsule import (
    Taken,
    _struct_in,
    python_call,
    read_capsule,
    take,
)
from cai_bridge.testing._kit.dlpack_fields import fields_of
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import compact_strides

LEGACY = 1
BROKEN: dict[str, type[Consumer]] = {}


def broken(requirement, **methods):
    """Define a copy of the consumer that breaks one requirement."""
    name = "breaks_" + requirement.replace("-", "_")
    made = type(name, (Consumer,), {**methods, "name": name, "__module__": __name__})
    BROKEN[requirement] = globals()[name] = made


def device():
    return SimulatedCuda.current()


def changed(region, **changes):
    """A region with some of its fields replaced."""
    fields = {name: getattr(region, name) for name in Region.__dataclass_fields__}
    return Region(**{**fields, **changes})


def compact(region):
    """The region of who knows of no strides."""
    return changed(region, strides=compact_strides(region.shape, region.itemsize))


def steps(region):
    """The strides in items."""
    return tuple(step // region.itemsize for step in region.strides)


FORTRAN, COLUMNS, REVERSED, REPEATED = (1, 3), (8, 2), (-4, 1), (0, 1)


def both(name, change):
    """Break what is required by both protocols of where the items are."""

    def described(self, said, x):
        return change(Consumer.described(self, said, x))

    def region_of(self, fields):
        return change(Consumer.region_of(self, fields))

    broken(f"takes-cai-{name}", described=described)
    broken(f"takes-dlpack-{name}", region_of=region_of)


def without(message, forbidden):
    """Make the change that refuses some regions."""

    def change(region):
        if forbidden(region):
            raise BufferError(message)
        return region

    return change


def misread(wrong, how=compact):
    """Make the change that misreads some regions."""
    return lambda region: how(region) if wrong(region) else region


def one_further(region):
    return changed(region, ptr=region.ptr + region.itemsize)


def by_size(region):
    return changed(region, strides=tuple(map(abs, region.strides)))


both("fortran", misread(lambda region: steps(region) == FORTRAN))
both("columns", misread(lambda region: steps(region) == COLUMNS))
both("reversed", misread(lambda region: steps(region) == REVERSED, by_size))
both("repeated", misread(lambda region: steps(region) == REPEATED))
both("zero-size", without("data: got NULL", lambda region: not region.size))
both("scalar", without("shape: got ()", lambda region: not region.shape))
both("dtypes", misread(lambda region: region.dtype == "int16", one_further))


# --- What is done with an array, by either protocol -----------------------------------------------


def taking(door, change):
    """Replace what is made of an array that came by a door, by a function of both."""
    name = {"cai": "take_dict", "dlpack": "take_capsule"}[door]

    def taken(self, x):
        return change(self, getattr(Consumer, name)(self, x))

    return {name: taken}


def a_copy_of_five_axes(self, array):
    """Arrays of many axes are copied, as by who has no more than four."""
    if len(array.region.shape) != 5:
        return array
    copy = device().array(shape=array.region.shape, dtype=array.region.dtype)
    self.current.copy(copy, array.region)
    return Array(copy._region, array.ready, (array.held, copy), array.upon, [self.current])


def forgetting_the_flag(self, array):
    return Array(changed(array.region, readonly=False), array.ready, array.held)


def writing_behind(self, array):
    """The item behind a C-contiguous array is set to 0."""
    region = array.region
    if region.size and region == compact(region):
        end = region.ptr + region.size * region.itemsize
        device()._session.store(end, bytes(region.itemsize))
    return array


for door in ("cai", "dlpack"):
    broken(f"takes-{door}-shared", **taking(door, a_copy_of_five_axes))
    broken(f"takes-{door}-readonly", **taking(door, forgetting_the_flag))
    broken(f"takes-{door}-unwritten", **taking(door, writing_behind))


# --- CAI ------------------------------------------------------------------------------------------


def described_as(**entries):
    """Read the dict with some entries replaced, by functions of it."""

    def described(self, said, x):
        replaced = {name: change(said) for name, change in entries.items()}
        return Consumer.described(self, {**said, **replaced}, x)

    return described


def described_in_three(self, said, x):
    region = Consumer.described(self, said, x)
    return one_further(region) if len(region.shape) == 3 else region


def read_twice(self, x):
    assert x.__cuda_array_interface__
    return x.__cuda_array_interface__


broken("takes-cai-values", described=described_in_three)
broken("takes-cai-optional-entries", described=described_as(strides=lambda said: said["strides"]))
broken(
    "takes-cai-byte-order",
    described=described_as(typestr=lambda said: said["typestr"].replace(">", "<")),
)
broken("takes-cai-mask", check_mask=lambda self, mask: None)
broken("takes-cai-version", check_version=lambda self, version: None)
broken("takes-cai-one-read", interface=read_twice)
broken("takes-cai-stream-zero", named_stream=lambda self, said: said.get("stream") or None)


def waiting_unless(spared):
    """Wait for the streams that are named, but for some."""

    def wait_for(self, stream):
        if not spared(stream, self.current.handle):
            Consumer.wait_for(self, stream)

    return wait_for


broken("takes-cai-stream", wait_for=waiting_unless(lambda theirs, own: theirs > 2 and own > 2))
broken("takes-cai-return", give_back_read=lambda self, array: None)
broken("takes-cai-return-write", give_back_written=lambda self, array: None)


# --- DLPack ---------------------------------------------------------------------------------------


def region_of_three(versioned):
    """Misread tensors of three dimensions, of one of the two structures."""

    def region_of(self, fields):
        region = Consumer.region_of(self, fields)
        wrong = len(region.shape) == 3 and (fields.version is not None) == versioned
        return one_further(region) if wrong else region

    return region_of


def reading(**changes):
    """Read the tensor with some of its fields replaced, by functions of them."""

    def read(self, capsule):
        fields = read_capsule(capsule)
        for name, change in changes.items():
            object.__setattr__(fields, name, change(fields))
        return fields

    return read


def known_minor(known):
    def read(self, capsule):
        fields = read_capsule(capsule)
        if fields.version is not None and not known(fields.version[1]):
            raise BufferError(f"version: got {fields.version}")
        return fields

    return read


def read_any_major(self, capsule):
    name, struct = _struct_in(capsule)
    if name == "dltensor_versioned":
        struct.major = 1
    return fields_of(struct, name)


def no_strides(self, fields, shape):
    assert fields.strides is not None
    return fields.strides


def refuse_the_cpu(self, x):
    if x.__dlpack_device__()[0] == 1:
        raise BufferError("device: got the CPU")


broken("takes-dlpack-values", region_of=region_of_three(versioned=True))
broken("takes-dlpack-legacy", region_of=region_of_three(versioned=False))
broken("takes-dlpack-older-minor", read=known_minor(lambda minor: minor > 0))
broken("takes-dlpack-newer-minor", read=known_minor(lambda minor: minor <= 3))
broken("takes-dlpack-other-major", read=read_any_major)
broken("takes-dlpack-byte-offset", read=reading(byte_offset=lambda fields: 0))
broken("takes-dlpack-null-strides", strides_of=no_strides)
broken("takes-dlpack-lanes", read=reading(dtype=lambda fields: (*fields.dtype[:2], 1)))
broken(
    "takes-dlpack-foreign-device",
    check_device=refuse_the_cpu,
    read=reading(device=lambda fields: (2, 0)),
)


def ask_once(self, x):
    return x.__dlpack__(stream=self.stream_to_name(), max_version=(1, 3))


def ask_for_legacy(self, x):
    return x.__dlpack__(stream=self.stream_to_name())


def ask_or_fail(self, x):
    try:
        return Consumer.ask(self, x)
    except BufferError as error:
        raise RuntimeError("the array cannot be taken") from error


def naming(wrong, instead):
    """Name another stream, at times."""

    def stream_to_name(self):
        own = self.current.handle
        return instead if wrong(own) else own

    return stream_to_name


broken("takes-dlpack-device", check_device=lambda self, x: None)
broken("takes-dlpack-stream-named", stream_to_name=naming(lambda own: own == LEGACY, 0))
broken("takes-dlpack-max-version", ask=ask_for_legacy)
broken("takes-dlpack-no-max-version", ask=ask_once)
broken("takes-dlpack-buffer-error", ask=ask_or_fail)
broken("takes-dlpack-pending", stream_to_name=naming(lambda own: own > LEGACY, -1))

_set_destructor = python_call(
    "PyCapsule_SetDestructor", ctypes.c_int, ctypes.py_object, ctypes.c_void_p
)


def consume_without_renaming(self, capsule):
    name, struct = _struct_in(capsule)
    _set_destructor(capsule, None)
    return Taken(struct, name)


def consume_for_ever(self, capsule):
    return take(capsule).give_away()


def consume_and_delete(self, capsule):
    taken = take(capsule)
    taken.delete()
    return taken


def refused_with(act):
    """Reads a capsule, and acts on one that is refused."""

    def read(self, capsule):
        try:
            fields = Consumer.read(self, capsule)
            Consumer.region_of(self, fields)
        except BufferError:
            act(capsule)
            raise
        return fields

    return read


read_or_leak = refused_with(lambda capsule: take(capsule).give_away())


broken("takes-dlpack-renamed", consume=consume_without_renaming)
broken("takes-dlpack-deleter", consume=consume_for_ever)
broken("takes-dlpack-deleter-not-early", consume=consume_and_delete)
broken("takes-dlpack-refused-deleted", read=read_or_leak)
