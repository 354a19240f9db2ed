"""Further ways to break a requirement, and ways not to: unusual libraries that keep them all."""

from __future__ import annotations

import functools

import producers
import pytest
from broken_producers import exporting, pending, saying
from producers import Array, Library, device, speaking

from cai_bridge.conformance import (
    ConsumerAdapter,
    NotApplicableError,
    check_consumer,
    check_producer,
)
from cai_bridge.testing import RaceError, assert_equivalent, simulated_cuda


def judged(only, doors=producers.EVERY, **methods):
    kind = type("Breach", (Library,), {"array": speaking("Breach", doors, **methods)})
    return check_producer(kind, only=only)[only]


def zero_while_pending(self):
    if not pending(self):
        return None
    self._memory.order_before(device().legacy)
    return 0


@pytest.mark.parametrize("stream", [zero_while_pending, lambda a: True if pending(a) else None])
def test_a_stream_that_is_wrong_only_while_work_is_pending_is_found(stream):
    assert judged("cai-stream", ready_stream=stream).outcome == "failed"


@pytest.mark.parametrize("typestr", ["<i4", "<u4", "<f2", "<f8", "<V4", "|f3"])
def test_a_typestr_of_another_type_is_found(typestr):
    found = judged("cai-typestr", interface=saying(typestr=lambda *_: typestr))
    assert found.outcome == "failed"
    assert typestr in found.evidence


@pytest.mark.parametrize("lanes", [0, 2])
def test_lanes_that_are_not_one_are_found(lanes):
    capsule = exporting(dtype=lambda a: (producers.CODES[a._region.dtype], 32, lanes))
    found = judged("dlpack-dtype", doors=("dlpack",), capsule=capsule)
    assert (found.outcome, found.evidence) == ("failed", f"float32 has {lanes} lanes")


def test_a_producer_that_makes_the_host_wait_is_found():
    def order_for(self, stream):
        for one in self._memory.streams:
            one.synchronize()

    found = judged("dlpack-pending", order_for=order_for)
    assert (found.outcome, found.evidence) == ("failed", "the host waited for the write")


def test_other_items_are_not_taken_for_a_race():
    found = judged("cai-pending", doors=("cai",), interface=saying(typestr=lambda *_: "<i4"))
    assert found.outcome == "failed"
    assert "nothing orders" not in found.evidence
    assert "other items are read" in found.evidence


@pytest.mark.parametrize("made", [lambda *_: None, lambda *_: [1.0], lambda *_: 3])
def test_what_makes_no_arrays_is_no_success(made):
    report = check_producer(made, name="nothing")
    assert not report.ok
    assert "nothing was judged" in str(report)


def test_an_exit_is_a_failure_and_an_interrupt_is_not_one():
    def leave(*_):
        raise SystemExit(0)

    def interrupt(*_):
        raise KeyboardInterrupt

    assert (
        check_producer(leave, only="cai-shape").failed[0].evidence.startswith("raised SystemExit")
    )
    with pytest.raises(KeyboardInterrupt):
        check_producer(interrupt, only="cai-shape")


def test_an_exception_without_a_text_is_a_failure():
    class MuteError(Exception):
        def __str__(self):
            raise ValueError

    def fail(*_):
        raise MuteError

    found = check_producer(fail, only="cai-shape").failed[0]
    assert found.evidence == "raised MuteError: its text raised ValueError"


def test_what_was_found_before_is_not_forgotten():
    with simulated_cuda(check=False) as cuda:
        x, first, second = cuda.array([1.0]), cuda.stream(), cuda.stream()
        first.fill(x, 3.0)
        second.fill(x, 4.0)
        with pytest.raises(RaceError):
            check_producer(Library, only="cai-shape")
        assert len(cuda.reports) == 1


def test_nothing_as_a_second_object_is_no_second_object_left_out():
    with simulated_cuda() as cuda:
        x = cuda.array([1.0], speaks=("dlpack", "cai"))
        assert_equivalent(x)
        with pytest.raises(TypeError):
            assert_equivalent(x, None)


# --- unusual, and right ---------------------------------------------------------------------------


class Copying(Library):
    """Slices of its arrays are arrays of their own."""

    class Own(producers.Cai, producers.DLPack, Array):
        def __getitem__(self, index):
            if not isinstance(index, tuple):
                return type(self).made((512,), "float32")
            part = type(self).made((3, 2), "float32")
            part.rows = [row[::2] for row in self.tolist()]
            for at, row in enumerate(part.rows):
                for column, value in enumerate(row):
                    place = part._region.ptr + 8 * at + 4 * column
                    device().stream_of(1).fill(self.at(part._region, ptr=place, shape=()), value)
            device().synchronize()
            return part

        def tolist(self):
            return tuple(map(tuple, super().tolist())) if self._region.shape[1:] else [0.0]

    array = Own


def test_a_library_whose_slices_are_copies_and_whose_rows_are_tuples_fails_in_nothing():
    report = check_producer(Copying)
    assert {one.name: one.evidence for one in report.failed} == {}
    assert report["cai-pending-on-two"].evidence == "slices of the arrays are copies"


def test_fields_with_shapes_are_a_descr():
    found = judged("cai-descr", interface=saying(descr=lambda *_: [("x", "<f2", (2,))]))
    assert found.outcome == "passed"


def test_a_fill_of_another_form_is_asked_for():
    class Filling(Array):
        def fill(self, value, *, stream):
            raise AssertionError

    kind = type("Filling", (Library,), {"array": type("F", (producers.Cai, Filling), {})})
    assert "the adapter says no fill()" in check_producer(kind)["cai-pending"].evidence


def test_a_library_of_one_dimension_says_so():
    class Flat(Library):
        def make(self, shape, dtype):
            if len(shape) != 1:
                raise NotApplicableError("one dimension only")
            return super().make(shape, dtype)

    report = check_producer(Flat)
    assert report.failed == ()
    assert report.ok


# --- what is given --------------------------------------------------------------------------------


class WithArguments(Library):
    def __init__(self, depth):
        self.depth = depth

    def make(self, shape, dtype):
        raise ZeroDivisionError


def fail(by, *_):
    raise ZeroDivisionError(by)


@pytest.mark.parametrize(
    "make",
    [lambda *_: 1 / 0, functools.partial(fail, "partial"), WithArguments(3)],
    ids=["lambda", "partial", "instance"],
)
def test_a_program_of_what_has_no_name_says_where_to_put_it(make):
    program = check_producer(make, only="cai-shape").failed[0].program
    assert "p = as_producer(...)  # what you gave to check_producer" in program


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: check_producer(ConsumerAdapter), TypeError, "the class ConsumerAdapter"),
        (lambda: check_producer(ConsumerAdapter()), TypeError, "got ConsumerAdapter"),
        (lambda: check_consumer(Library), TypeError, "the class Library"),
        (lambda: check_producer(WithArguments), TypeError, "which takes arguments"),
        (lambda: check_producer(Library, only=3), TypeError, "only: got int"),
        (lambda: check_producer(Library, only=b"cai-shape"), TypeError, "only: got bytes"),
        (lambda: check_producer(Library, only=()), ValueError, "only: got no name"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_door_that_there_is_not_is_refused():
    kind = type("Odd", (ConsumerAdapter,), {"doors": ("nope",)})
    with pytest.raises(ValueError, match="doors: got 'nope'"):
        check_consumer(kind)
