"""Libraries that are right in ways of their own, which no requirement may take for a fault."""

from __future__ import annotations

from typing import Any

import producers
import pytest
from producers import (
    Array,
    Library,
    current_stream,
    device,
    in_a_circle,
    judged,
    saying,
    speaking,
)

from cai_bridge.conformance import check_consumer, check_producer, open_lab
from cai_bridge.conformance.libraries.simulated import Consumer


def worked_on(array: Array) -> Array:
    """Queue work on a stream of the array's own: it writes what is there."""
    if array._memory.bytes is not None and not array._region.readonly:
        stream = device().stream()
        array._memory.order_before(stream)
        stream.launch(writes=[array._region], name="the library's own work")
        array._memory.used_on(stream)
    return array


@classmethod
def with_work_pending(cls: type[Array], shape: Any, dtype: Any) -> Array:
    return worked_on(Array.made.__func__(cls, shape, dtype))


def sliced_with_work_pending(self: Array, index: Any) -> Array:
    return worked_on(Array.__getitem__(self, index))


def filled_behind_its_own_work(self: Array, value: float) -> None:
    self._memory.order_before(current_stream())
    Array.fill(self, value)


KINDS = {
    "in garbage cycles": speaking("Circular", made=in_a_circle),
    "always at work": speaking(
        "Busy",
        made=with_work_pending,
        __getitem__=sliced_with_work_pending,
        fill=filled_behind_its_own_work,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_library_that_is_right_passes(kind: str) -> None:
    adapter = type("Right", (Library,), {"array": KINDS[kind]})
    with open_lab("simulated") as lab:
        report = check_producer(adapter, lab=lab)
    told = {one.name: one.evidence for one in report.failed}
    # No function in Python fails with an exception set, which is advice.
    assert told.keys() == {"exchange-errors"}, told


class Copying(Library):
    """Slices of its arrays are arrays of their own."""

    class Own(producers.Cai, producers.DLPack, Array):
        def __getitem__(self, index):
            part, stream = super().__getitem__(index), producers.current_stream()
            copy = type(self).made(part._region.shape, part._region.dtype)
            if part._region.size:
                self._memory.order_before(stream)
                stream.copy(copy._region, part._region)
                stream.synchronize()
            return copy

        def tolist(self):
            return tuple(map(tuple, super().tolist()))

    array = Own


def test_a_library_whose_slices_are_copies_and_whose_rows_are_tuples_fails_in_nothing():
    report = check_producer(Copying)
    assert {one.name: one.evidence for one in report.failed} == {}
    assert report["cai-pending-on-two"].evidence == "slices of the arrays are copies"
    for door in ("cai", "dlpack"):
        for name in ("values", "offset", "reversed"):
            assert report[f"{door}-{name}"].outcome == "passed"


class Tuple(tuple):
    """A tuple with more to it, such as a namedtuple."""


class Dict(dict):
    """A dict with more to it, such as an OrderedDict."""


class Number(int):
    """An integer with more to it, such as that of an IntEnum."""


class Text(str):
    """The same of a text."""


class Subclasses(Library):
    """What it hands out is of subclasses, which the specifications do not forbid."""

    class Own(producers.Cai, producers.DLPack, Array):
        def interface(self):
            said = Array.interface(self)
            for name in ("shape", "strides", "data"):
                said[name] = said[name] and Tuple(said[name])
            said["shape"] = Tuple(map(Number, said["shape"]))
            said["data"] = Tuple((Number(said["data"][0]), said["data"][1]))
            said["descr"] = [Tuple(field) for field in said["descr"]]
            said["stream"] = said["stream"] and Number(said["stream"])
            return Dict({**said, "version": Number(3), "typestr": Text(said["typestr"])})

        def device(self):
            return Tuple((Number(2), 0))

    array = Own


def test_subclasses_of_the_types_that_are_named_fail_in_nothing():
    report = check_producer(Subclasses)
    assert {one.name: one.evidence for one in report.failed} == {}
    judged_here = {one.name for one in report.verdicts if one.outcome == "passed"}
    assert {"cai-stream-lifetime", "cai-pending", "dlpack-device"} <= judged_here


def halves(array, descr):
    return [("x", "<f2", (2,))] if array._region.dtype == "float32" else descr


def test_fields_with_shapes_are_a_descr():
    found = judged(None, "cai-descr", interface=saying(descr=halves))
    assert found.outcome == "passed"


class Circular(Consumer):
    """Its arrays are freed by the garbage collector alone."""

    def take(self, x: Any) -> Any:
        array = super().take(x)
        array.itself = array
        return array


class Eager(Consumer):
    """It looks at what it takes in, at once."""

    def take(self, x: Any) -> Any:
        array = super().take(x)
        self.current.read(array.region, name="the consumer's own read")
        self.give_back_read(array)
        return array


@pytest.mark.parametrize("consumer", [Circular, Eager])
def test_a_consumer_that_is_right_passes(consumer: type[Consumer]) -> None:
    with open_lab("simulated") as lab:
        report = check_consumer(consumer, lab=lab)
    assert {one.name: one.evidence for one in report.verdicts if one.outcome != "passed"} == {}
