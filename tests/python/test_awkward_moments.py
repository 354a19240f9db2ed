"""What happens in the middle of something else: unwinding, logging, other devices, other owners."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import capsules
import pytest
from capsules import HandMade
from fakes import OnlyCai, interface, only_cai

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import simulated_cuda


@pytest.fixture
def two() -> Iterator[Any]:
    with simulated_cuda(devices=2) as cuda:
        yield cuda
        cuda.check()


@pytest.fixture
def kept(two: Any) -> Iterator[list[Any]]:
    """Arrays that live until their work is done: their end is a write on the host."""
    arrays: list[Any] = []
    yield arrays
    two.synchronize()


@contextmanager
def handler(act: Any) -> Iterator[None]:
    """Call `act` for every event of the bridge."""

    class Act(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.door != "release":  # type: ignore[attr-defined]
                act()

    logger, acting = logging.getLogger("cai_bridge"), Act()
    logger.addHandler(acting)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(acting)


# --- a view as somebody's owner -------------------------------------------------------------------


@pytest.mark.parametrize("said", [{"device": 0}, {"dtype": "float32"}, {"device": (2, 0)}])
def test_a_view_with_something_said_beside_it_is_not_stacked(said: Any, two: Any) -> None:
    array = two.array([1.0, 2.0], speaks="dlpack", name="x")
    view = to_cai(array)
    taken = from_cai(view, **said)
    assert taken.owner is array
    view.release()
    assert two.read(taken) == [1.0, 2.0]


# --- released, or read-only, in the middle --------------------------------------------------------


def test_a_view_released_while_a_borrowed_tensor_is_being_ordered_is_refused(
    two: Any, kept: list[Any]
) -> None:
    side, consumer = two.stream("side"), two.stream("consumer")
    kept.append(two.array([1.0], speaks="cai3", stream=side))
    view = from_cai(kept[0])
    with handler(view.release), pytest.raises(BufferError, match=r"^view: got a released view"):
        two.consumer("dlpack-borrowed", stream=consumer).read(view)


def test_a_view_released_while_its_capsule_is_being_ordered_is_exported_whole(two: Any) -> None:
    side, consumer = two.stream("side"), two.stream("consumer")
    view = from_cai(two.array([1.0, 2.0], speaks="cai3", stream=side))
    with handler(view.release):
        seen = two.consumer("dlpack", stream=consumer).read(view)
    consumer.synchronize()
    assert seen.value == [1.0, 2.0]


def test_read_only_memory_is_not_lent_by_a_structure_without_flags(two: Any) -> None:
    view = from_cai(two.array([1.0], speaks="cai3", readonly=True))
    with pytest.raises(BufferError, match=r"^readonly: got read-only memory"):
        two.consumer("dlpack-borrowed", stream=two.legacy).read(view)
    vouched = from_cai(two.array([1.0], speaks="cai3", readonly=True), readonly=False)
    seen = two.consumer("dlpack-borrowed", stream=two.legacy).read(vouched)
    two.synchronize()
    assert seen.value == [1.0]


# --- exceptions on their way ----------------------------------------------------------------------


def test_a_deleter_that_runs_while_an_exception_unwinds_does_not_replace_it(two: Any) -> None:
    made = HandMade((kept := two.array(shape=4)).ptr, owner=kept)
    capsule = made.capsule()
    with pytest.raises(ZeroDivisionError):
        (to_cai(capsule), 1 / 0)
    assert made.deleted == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_inside_a_producer_is_not_taken_for_an_answer(error: Any, two: Any) -> None:
    class Interrupted:
        def __index__(self) -> int:
            raise error

    array = two.array(shape=4, speaks=())
    for broken in ({"shape": (Interrupted(),)}, {"stream": Interrupted()}):
        with pytest.raises(error):
            from_cai(OnlyCai(dict(interface(array), **broken)))
    with pytest.raises(error):
        to_cai(array if array is None else only_cai(array), stream=Interrupted())


def test_a_capsule_that_somebody_else_consumes_meanwhile_is_refused_as_used(two: Any) -> None:
    capsule = HandMade((kept := two.array(shape=4)).ptr, owner=kept).capsule()

    def consume() -> None:
        if not done:
            done.append(capsules.take(capsule))

    done: list[Any] = []
    with handler(consume), pytest.raises(ValueError, match=r"^capsule: got one that was consumed"):
        to_cai(capsule, stream=two.stream())
    done[0].delete()


# --- small things ---------------------------------------------------------------------------------


def test_a_list_that_changes_while_it_is_read_is_read_as_it_was(two: Any) -> None:
    class Emptying:
        def __index__(self) -> int:
            shape.clear()
            return 1

    shape: list[Any] = [Emptying(), 2, 2]
    array = two.array(shape=4, speaks=())
    assert from_cai(OnlyCai(dict(interface(array), shape=shape))).shape == (1, 2, 2)


def test_lanes_take_one_of_the_64_dimensions(two: Any) -> None:
    memory = two.array(shape=4)
    pointer = memory.ptr
    refused = HandMade(pointer, shape=(1,) * 64, strides=(1,) * 64, lanes=2).capsule()
    with pytest.raises(ValueError, match=r"^ndim: got 64 and lanes; allowed"):
        to_cai(refused)
    most = HandMade(pointer, shape=(1,) * 63, strides=(1,) * 63, lanes=2).capsule()
    assert to_cai(most).ndim == 64
