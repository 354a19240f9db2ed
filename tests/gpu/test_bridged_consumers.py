"""Consumers behind the bridge keep what they do not keep by themselves.

What is left is the consumer's own: CuPy and torch write to memory that they are told is read-only,
order their own streams as their users say, at a hand-over and at an end, and CuPy reads items of
types that it lacks as bytes. Neither can tell bfloat16 from a dict. The bridge reads the producer's
dict once more when a consumer takes a view of it. (torch ends the process on negative strides: not
asked.)
"""

from __future__ import annotations

from typing import Any

import pytest

from cai_bridge import from_cai, to_cai
from cai_bridge.conformance import check_consumer, consumer_named, requirements
from cai_bridge.conformance.known import known
from cai_bridge.conformance.lab.gpu import GpuLab

BY_USERS = {"takes-cai-other-stream", "takes-cai-return", "takes-cai-return-write"}
CAI = {"takes-cai-readonly", "takes-cai-one-read", *BY_USERS}
QUEUED = "takes-dlpack-deleter-queued"
CASES = [
    # library, the protocol that it is judged by, what it fails in
    ("cupy", "cai", CAI),
    ("torch", "cai", CAI),
    ("cupy", "dlpack", {"takes-dlpack-readonly", "takes-dlpack-other-types", QUEUED}),
    ("torch", "dlpack", {"takes-dlpack-other-stream", QUEUED}),
]


@pytest.mark.parametrize(("library", "door", "left"), CASES)
def test_a_consumer_behind_the_bridge(driver, note, library, door, left):
    del driver
    try:
        consumer = consumer_named(library)
    except ValueError as missing:
        pytest.skip(str(missing))
    take_by = consumer.take_by

    def take(x: Any) -> Any:
        if door == "cai":
            return take_by("dlpack", from_cai(x))
        return take_by("cai", to_cai(x, stream=current_stream(library)))

    consumer.doors, consumer.take = (door,), take  # type: ignore[method-assign]
    if door == "dlpack":
        odd = ("bfloat", "float8")
        consumer.dtypes = tuple(one for one in consumer.dtypes if not one.startswith(odd))
    ends = {f"takes-{door}-reversed"} if library == "torch" else set()
    names = [one.name for one in requirements("consumer") if f"-{door}-" in one.name]
    with GpuLab() as lab:
        report = check_consumer(consumer, only=[n for n in names if n not in ends], lab=lab)
    alone = [name for name in names if name in known("xfails")[library]]
    failed = {one.name: one.evidence for one in report.failed}
    note(f"{library} by {door}: {len(alone) + len(ends)} fail by itself, {len(failed)} bridged")
    assert failed.keys() == left, "\n".join(f"{one}: {why[:300]}" for one, why in failed.items())


def current_stream(library: str) -> Any:
    """The stream object that a library works on."""
    cuda = pytest.importorskip(library).cuda
    return cuda.current_stream() if library == "torch" else cuda.get_current_stream()
