"""Consumers that are odd in one way: what the verdict of the requirement says of each."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from fakes import FREE_THREADED
from producers import Array as Theirs
from producers import device

from cai_bridge.conformance import Verdict, check_consumer
from cai_bridge.conformance.libraries.simulated import Array, Consumer

# A faulty library may also raise where nobody can pass it on.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def judged(lab: Any, only: str, **methods: Any) -> Verdict:
    kind = type("Odd", (Consumer,), {"name": "odd", **methods})
    return check_consumer(kind, lab=lab, only=only)[only]


def one_further(region: Any) -> Any:
    return Theirs.at(region, ptr=region.ptr + region.itemsize)


def further_where(wrong: Any) -> dict[str, Any]:
    """Read one item further on, in what the dict or the tensor is wrong about."""

    def described(self: Any, said: Any, x: Any) -> Any:
        region = Consumer.described(self, said, x)
        return one_further(region) if wrong(said) else region

    def region_of(self: Any, fields: Any) -> Any:
        region = Consumer.region_of(self, fields)
        return one_further(region) if wrong(fields) else region

    return {"described": described, "region_of": region_of}


def one_for_nothing(self: Any, copied: Any) -> Any:
    return Consumer.values(self, copied) or [[1.0]]


def copies(self: Any, x: Any) -> Any:
    """Take what is read-only as a copy."""
    array = (
        self.take_dict(x)
        if hasattr(x, "__cuda_array_interface__")
        else Consumer.take_capsule(self, x)
    )
    copy = device().array(shape=array.region.shape, dtype=array.region.dtype)
    self.current.copy(copy, array.region)
    return Array(copy._region, array.ready, (array.held, copy))


def asks(*wishes: dict[str, Any]) -> Any:
    def ask(self: Any, x: Any) -> Any:
        for one in wishes:
            capsule = x.__dlpack__(**one)
        return capsule

    return ask


def swallows(self: Any, x: Any) -> Any:
    try:
        return Consumer.take_capsule(self, x)
    except BufferError:
        return None


def becomes_another(self: Any, x: Any) -> Any:
    try:
        return Consumer.take_capsule(self, x)
    except BufferError as error:
        raise RuntimeError("cannot be taken") from error


def zero_on(its_own: bool) -> Any:
    """Name 0, on streams of its own or on the default one alone."""

    def stream_to_name(self: Any) -> int:
        handle: int = self.current.handle
        return 0 if (handle > 1) == its_own else handle

    return stream_to_name


def keeps_what_it_copied(self: Any, array: Any) -> Any:
    kept.append(array)
    return Consumer.copy(self, array)


def takes_all(self: Any, fields: Any) -> Any:
    return device().array(shape=(3, 4))._region


def lets_the_tensor_go(self: Any, x: Any) -> Any:
    """What holds the tensor is garbage, which is collected at some time or other."""
    array = Consumer.take_capsule(self, x)
    circle = [array.held]
    circle.append(circle)
    array.held = None
    return array


kept: list[Any] = []
REFUSED = "refused: BufferError: array: got a read-only array; allowed: a writable one"
EVIDENCE: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "a dict that leaves out strides": (
        "takes-cai-optional-entries",
        "failed",
        " is read as ",
        further_where(lambda said: "strides" not in said),
    ),
    "a write that is refused, by CAI": (
        "takes-cai-readonly",
        "passed",
        f"the write was {REFUSED}",
        {},
    ),
    "a write that is refused, by DLPack": (
        "takes-dlpack-readonly",
        "passed",
        f"the write was {REFUSED}",
        {},
    ),
    "a write that goes to a copy, by CAI": (
        "takes-cai-readonly",
        "passed",
        "the write went elsewhere",
        {"take": copies},
    ),
    "a write that goes to a copy, by DLPack": (
        "takes-dlpack-readonly",
        "passed",
        "the write went elsewhere",
        {"take": copies},
    ),
    "the next version": (
        "takes-cai-version",
        "failed",
        "version 4 is taken",
        {"check_version": lambda self, version: None if version == 4 else 1 / 0},
    ),
    "items of an empty dict": (
        "takes-cai-zero-size",
        "failed",
        " is read as [[1.0]]",
        {"values": one_for_nothing},
    ),
    "items of an empty tensor": (
        "takes-dlpack-zero-size",
        "failed",
        " is read as [[1.0]]",
        {"values": one_for_nothing},
    ),
    "an older tensor": (
        "takes-dlpack-older-minor",
        "failed",
        " is read as ",
        further_where(lambda fields: fields.version == (1, 0)),
    ),
    "a newer tensor": (
        "takes-dlpack-newer-minor",
        "failed",
        " is read as ",
        further_where(lambda fields: fields.version == (1, 9)),
    ),
    "no older tensor": (
        "takes-dlpack-older-minor",
        "skipped",
        "it asks for legacy capsules, which have no version",
        {"ask": asks({"stream": 1})},
    ),
    "no newer tensor": (
        "takes-dlpack-newer-minor",
        "skipped",
        "it asks for legacy capsules, which have no version",
        {"ask": asks({"stream": 1})},
    ),
    "an array that is asked again": (
        "takes-dlpack-no-max-version",
        "failed",
        " is read as ",
        further_where(lambda fields: fields.version is None),
    ),
    "an error that is swallowed": (
        "takes-dlpack-buffer-error",
        "failed",
        "it is swallowed",
        {"take": swallows},
    ),
    "an error that becomes another": (
        "takes-dlpack-buffer-error",
        "failed",
        "it becomes RuntimeError: cannot be taken",
        {"take": becomes_another},
    ),
    "stream 0 on its own stream": (
        "takes-dlpack-stream-named",
        "failed",
        "stream is 0",
        {"stream_to_name": zero_on(True)},
    ),
    "stream 0 on the default stream": (
        "takes-dlpack-stream-named",
        "failed",
        "stream is 0",
        {"stream_to_name": zero_on(False)},
    ),
    "no order": (
        "takes-dlpack-pending",
        "failed",
        "it asks with stream=-1, max_version=(1, 3), and the copy has to see",
        {"ask": asks({"stream": -1, "max_version": (1, 3)})},
    ),
    "no stream": (
        "takes-dlpack-pending",
        "failed",
        "it asks with max_version=(1, 3), and the copy has to see",
        {"ask": asks({"max_version": (1, 3)})},
    ),
    "two streams": (
        "takes-dlpack-pending",
        "failed",
        "it asks with stream=the legacy default stream and with stream=-1, and the copy",
        {"ask": asks({"stream": 1}, {"stream": -1})},
    ),
    "a copy that keeps the array": (
        "takes-dlpack-deleter",
        "failed",
        "it was called [0, 0] times",
        {"copy": keeps_what_it_copied},
    ),
    "nothing that is refused": (
        "takes-dlpack-refused-deleted",
        "skipped",
        "it refused none",
        {"read": lambda self, capsule: None, "region_of": takes_all},
    ),
    "a tensor that is garbage": (
        "takes-dlpack-deleter-not-early",
        "failed",
        "it was called, and the array still reads the memory",
        {"take": lets_the_tensor_go},
    ),
}


@pytest.mark.parametrize("what", EVIDENCE)
def test_the_verdict_says_what_was_seen(what: str, lab: Any) -> None:
    only, outcome, evidence, odd = EVIDENCE[what]
    found = judged(lab, only, **odd)
    kept.clear()
    assert found.outcome == outcome, found.evidence
    assert evidence in found.evidence


class AtItsEnd:
    """An array in a circle, which does something when it is collected."""

    def __init__(self, array: Any, end: Any) -> None:
        vars(self).update(vars(array))
        self._end, self._itself = end, self

    def __del__(self) -> None:
        self._end()


@pytest.mark.parametrize("door", ["cai", "dlpack"])
def test_what_is_written_when_an_array_is_collected_is_found(door: str, lab: Any) -> None:
    def take(self: Any, x: Any) -> Any:
        array = Consumer.take(self, x)

        def end() -> None:
            if device() is not None and not array.region.readonly:
                device().legacy.fill(array.region, 7.0)

        return AtItsEnd(array, end)

    assert judged(lab, f"takes-{door}-unwritten", take=take).outcome == "failed"


@pytest.mark.parametrize("what", ["return", "return-write"])
def test_a_consumer_that_orders_back_when_its_array_is_collected_is_right(
    what: str, lab: Any
) -> None:
    def take(self: Any, x: Any) -> Any:
        array, streams = Consumer.take(self, x), []

        def end() -> None:
            for stream in streams if array.ready else ():
                self.order(stream.handle, array.ready)

        made = AtItsEnd(array, end)
        made.streams = streams
        return made

    def used(self: Any, array: Any) -> None:
        array.streams.append(self.current)

    found = judged(lab, f"takes-cai-{what}", take=take, give_back=used)
    assert found.outcome == "passed", found.evidence


@pytest.mark.skipif(FREE_THREADED, reason="garbage is collected by whichever thread")
def test_a_refused_tensor_may_be_deleted_by_the_garbage_collector(lab: Any) -> None:
    def read(self: Any, capsule: Any) -> Any:
        circle = [capsule]
        circle.append(circle)
        return Consumer.read(self, capsule)

    gc.collect()
    found = judged(lab, "takes-dlpack-refused-deleted", read=read)
    assert found.outcome == "passed", found.evidence
