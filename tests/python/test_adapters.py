"""What an adapter has by default, and what is said of one that lacks what a check needs."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import producers
import pytest
from fakes import OnlyCai
from producers import Array, Library, device, speaking

from cai_bridge.conformance import (
    ConsumerAdapter,
    NotApplicableError,
    ProducerAdapter,
    UnmetError,
    check_consumer,
    check_producer,
)
from cai_bridge.conformance.libraries.simulated import Consumer
from cai_bridge.conformance.missing import MissingMemberError


def test_a_full_array_is_made_and_filled_on_the_current_stream(lab):
    library = Library()
    with library.on(library.stream()) as stream:
        array = library.full((2, 3), "float32", 5.0)
    assert producers.pending(array) == [stream.handle]
    assert array.tolist() == [[5.0] * 3] * 2
    assert lab.reports() == []


def test_a_stream_that_can_be_entered_is_made_the_current_one_by_entering_it():
    adapter, entered = ProducerAdapter(), []

    class Stream:
        def __enter__(self):
            entered.append(self)

        def __exit__(self, *_):
            entered.remove(self)

    stream = Stream()
    with adapter.on(stream):
        assert entered == [stream]
    with adapter.on(None):
        assert entered == []
    with pytest.raises(MissingMemberError, match="and its streams are no context managers"):
        adapter.on(4096)


MADE = weakref.WeakSet[Any]()


class Stream:
    """A stream as an object of a library, which ends when it is let go of."""

    def __init__(self):
        self.own = device().stream()
        MADE.add(self)

    def __cuda_stream__(self):
        return (0, self.own.handle)


class OfObjects(Library):
    """Streams are objects that end with their last reference."""

    def stream(self):
        return Stream()

    def on(self, stream):
        return super().on(stream.own)


def test_both_streams_of_an_array_written_on_two_live_as_long_as_it_is_late(lab):
    late = OfObjects().late_on_two(lab, 5.0)
    gc.collect()
    assert len(MADE) == 2
    assert late.stream in MADE
    assert late.array.tolist() == [5.0] * lab.items
    del late
    gc.collect()
    assert len(MADE) == 0


def test_of_two_streams_each_is_held_back_in_its_turn_where_time_tells(lab, monkeypatch):
    monkeypatch.setattr(lab, "timed", True)
    held = []
    hold = lab.hold
    monkeypatch.setattr(lab, "hold", lambda stream: held.append(stream) or hold(stream))
    lates = [Library().late_on_two(lab, float(value)) for value in range(6)]
    assert len(held) == 6
    turns = [one == late.stream.handle for one, late in zip(held, lates, strict=True)]
    assert turns in ([False, True] * 3, [True, False] * 3)


@pytest.mark.parametrize("which", [0, 1])
def test_each_of_two_writes_has_to_be_on_the_stream_that_was_made_current(which, lab):
    class Forgetful(Library):
        """Does not work on one of the two streams that it is given."""

        given = 0

        def on(self, stream):
            self.given += 1
            if self.given == which + 1:
                return contextlib.nullcontext()
            return super().on(stream)

    with pytest.raises(UnmetError, match="does not make the stream the current one"):
        Forgetful().late_on_two(lab, 5.0)
    lab.reports()


def test_an_array_that_cannot_say_where_it_is_is_left_to_the_check(lab):
    class Silent(Library):
        def make(self, shape, dtype):
            made = OnlyCai(RuntimeError("not today"))
            made.array = super().make(shape, dtype)
            return made

        def fill(self, array, value):
            array.array.fill(value)

    late = Silent().late(lab, 5.0)
    assert late.array.array.tolist() == [5.0] * 64
    found = check_producer(Silent, lab=lab, only="cai-pending")["cai-pending"]
    assert found.outcome == "failed"
    assert "RuntimeError: not today" in found.evidence


def no_fill(_):
    raise AttributeError("fill")


class OtherFill(Array):
    def fill(self, value, *, stream):
        raise AssertionError


UNFILLED = speaking("Fixed", ("cai", "dlpack"), fill=property(no_fill))
OTHER = type("Other", (producers.Cai, OtherFill), {})
# What adapters lack: the member, and what is said of it.
LACKS = [
    (Library, {"array": UNFILLED}, "cai-pending", "fill(array, value)", "fill(), and the arrays"),
    (Library, {"array": OTHER}, "cai-pending", "fill(array, value)", "fill()"),
    (Library, {"stream": lambda self: None}, "cai-pending-on-two", "stream()", ""),
    (Library, {"stream": lambda self: None}, "dlpack-pending-on-two", "stream()", ""),
    (Library, {}, "cai-lazy", "lazy()", "lazy(), which gives arrays that are not"),
    (
        Consumer,
        {"copy": ConsumerAdapter.copy},
        *("takes-cai-stream", "copy(array)", "copy(), and the arrays have none"),
    ),
    (
        Consumer,
        {"values": ConsumerAdapter.values},
        *("takes-cai-stream", "values(copied)"),
        "values(), and the arrays have no tolist",
    ),
]


@pytest.mark.parametrize(("kind", "members", "only", "missing", "said"), LACKS)
def test_what_an_adapter_lacks_leaves_a_check_without_a_verdict(
    kind, members, only, missing, said, lab
):
    check = check_consumer if kind is Consumer else check_producer
    found = check(type("Lacking", (kind,), members), lab=lab, only=only)[only]
    assert (found.outcome, found.missing) == ("skipped", missing)
    assert found.evidence.startswith(f"the adapter has no {said}")


class NamesOne(Library):
    """Its dicts name the legacy default stream, whatever is pending."""

    array = speaking("NamesOne", ready_stream=lambda self: 1)


def test_an_adapter_without_on_shows_nothing_of_streams():
    streams = []

    class WithoutOn(NamesOne):
        # What an adapter has that says stream() alone.
        on = ProducerAdapter.on

        def stream(self):
            streams.append(device().stream())
            return streams[-1].handle

    report = check_producer(WithoutOn)
    for name in ("cai-pending", "cai-pending-on-two", "dlpack-pending", "exchange-stream"):
        assert report[name].outcome == "skipped"
        assert report[name].evidence.startswith("the adapter has no on(), and its streams are no")


@pytest.mark.parametrize(
    "name",
    ["cai-pending", "cai-pending-on-two", "dlpack-pending", "dlpack-pending-on-two"],
)
def test_an_adapter_whose_on_does_nothing_is_told_so(name):
    class Idle(NamesOne):
        def on(self, stream):
            return contextlib.nullcontext()

    found = check_producer(Idle, only=name)[name]
    assert found.outcome == "failed"
    assert found.evidence.startswith("on(stream) does not make the stream the current one")


def test_a_library_of_one_dimension_says_so():
    class Flat(Library):
        def make(self, shape, dtype):
            if len(shape) != 1:
                raise NotApplicableError("one dimension only")
            return super().make(shape, dtype)

    report = check_producer(Flat)
    assert report.failed == ()
    assert report.ok
