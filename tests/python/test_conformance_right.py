"""Libraries that are right in ways of their own, which no requirement may take for a fault."""

from __future__ import annotations

from typing import Any

import producers
import pytest
from producers import Array, Library, current_stream, device, speaking

from cai_bridge.conformance import check_consumer, check_producer, open_lab
from cai_bridge.conformance.libraries.simulated import Consumer


@classmethod
def in_a_circle(cls: type[Array], shape: Any, dtype: Any) -> Array:
    """Make an array that only the garbage collector frees."""
    array = Array.made.__func__(cls, shape, dtype)
    array.itself = array
    return array


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
    assert {one.name: one.evidence for one in report.failed} == {}


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


del producers
