"""Further consumers that break a requirement of the CUDA Array Interface."""

from __future__ import annotations

from broken_consumers import waiting_unless
from more_consumers import also

from cai_bridge.conformance.libraries.simulated import Consumer


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
