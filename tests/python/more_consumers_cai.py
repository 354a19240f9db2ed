"""Further consumers that break a requirement of the CUDA Array Interface."""

from __future__ import annotations

from broken_consumers import described_as, waiting_unless
from more_consumers import also, device, of_another_type

from cai_bridge.conformance.libraries.simulated import Consumer


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
for name, waits in (
    ("the legacy default stream is left out", waiting_unless(lambda theirs, own: theirs == 1)),
    ("the per-thread default stream is left out", waiting_unless(lambda theirs, own: theirs == 2)),
    ("its own default stream does not wait", waiting_unless(lambda theirs, own: own == 1)),
    ("it waits for nothing", lambda self, stream: None),
):
    also("takes-cai-stream", name, wait_for=waits)
also(
    "takes-cai-stream",
    "a default stream is taken for none",
    named_stream=lambda self, said: None if said.get("stream") in (1, 2) else said["stream"],
)


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
