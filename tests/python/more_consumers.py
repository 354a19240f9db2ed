"""Further consumers that break a requirement, each another way than the one of `broken_consumers`.

They are written from the specifications: what a library's author may get wrong of a sentence there.
`ALSO` has them by the requirement and what they do; here a consumer may break others, too.
"""

from __future__ import annotations

from broken_consumers import (
    a_copy_of_five_axes,
    changed,
    compact,
    misread,
    one_further,
    taking,
    waiting_unless,
    without,
)

from cai_bridge.conformance.libraries.simulated import Array, Consumer
from cai_bridge.testing import SimulatedCuda

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

# --- what is done with an array, by both protocols ------------------------------------------------


def a_copy(self, array):
    if len(array.region.shape) != 5:
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
taken("shared", "it is copied when it is taken in again", a_copy_of_five_axes)
taken("unwritten", "its first item is cleared", zeroes_it)
taken("unwritten", "the item before it is cleared", writes_before)
for door in ("cai", "dlpack"):
    also(f"takes-{door}-readonly", "the flag is not looked at", fill=writes_what_is_readonly)
    also(f"takes-{door}-readonly", "it is refused too late", fill=writes_and_refuses)


# --- the CUDA Array Interface ---------------------------------------------------------------------


def without_descr(self, x):
    said = Consumer.interface(self, x)
    if "descr" in said:
        raise ValueError("descr: got one")
    return said


also("takes-cai-optional-entries", "descr is refused", interface=without_descr)


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


for name, waits in (
    ("the legacy default stream is left out", waiting_unless(lambda theirs, own: theirs == 1)),
    ("the per-thread default stream is left out", waiting_unless(lambda theirs, own: theirs == 2)),
    ("its own default stream does not wait", waiting_unless(lambda theirs, own: own == 1)),
    ("it waits for nothing", lambda self, stream: None),
):
    also("takes-cai-stream", name, wait_for=waits)
