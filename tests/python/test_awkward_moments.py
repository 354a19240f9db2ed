"""What happens in the middle of something else: unwinding, logging, other devices, other owners."""

import logging
from contextlib import contextmanager

import capsules
import pytest
from capsules import HandMade
from fakes import OnlyCai, interface

from cai_bridge import from_cai, to_cai


@contextmanager
def handler(act):
    """Call `act` for every event of the bridge."""

    class Act(logging.Handler):
        def emit(self, record):
            if record.door != "release":
                act()

    logger, acting = logging.getLogger("cai_bridge"), Act()
    logger.addHandler(acting)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(acting)


@pytest.mark.parametrize("said", [{"device": 0}, {"dtype": "float32"}, {"device": (2, 0)}])
def test_a_view_with_something_said_beside_it_is_not_stacked(said, cuda):
    array = cuda.array([1.0, 2.0], speaks="dlpack", name="x")
    view = to_cai(array)
    taken = from_cai(view, **said)
    assert taken.owner is array
    view.release()
    assert cuda.read(taken) == [1.0, 2.0]


@pytest.mark.parametrize("kind", ["dlpack", "dlpack-borrowed"])
def test_a_view_released_while_it_is_being_ordered_is_exported_whole_or_refused(kind, cuda):
    x = cuda.array([1.0, 2.0], speaks="cai3", stream=cuda.stream("side"))
    view, consumer = from_cai(x), cuda.consumer(kind, stream=cuda.stream("consumer"))
    with handler(view.release):
        if kind == "dlpack":
            seen = consumer.read(view)
        else:
            with pytest.raises(BufferError, match=r"^view: got a released view"):
                consumer.read(view)
    cuda.synchronize()
    assert kind == "dlpack-borrowed" or seen.value == [1.0, 2.0]


def test_a_deleter_that_runs_while_an_exception_unwinds_does_not_replace_it(cuda):
    made = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept)
    capsule = made.capsule()
    with pytest.raises(ZeroDivisionError):
        (to_cai(capsule), 1 / 0)
    assert made.deleted == 1


def test_a_capsule_that_somebody_else_consumes_meanwhile_is_refused_as_used(cuda):
    capsule = HandMade((kept := cuda.array(shape=4)).ptr, owner=kept).capsule()

    def consume():
        if not done:
            done.append(capsules.take(capsule))

    done = []
    with handler(consume), pytest.raises(ValueError, match=r"^capsule: got one that was consumed"):
        to_cai(capsule, stream=cuda.stream())
    done[0].delete()


def test_a_list_that_changes_while_it_is_read_is_read_as_it_was(cuda):
    class Emptying:
        def __index__(self):
            shape.clear()
            return 1

    shape = [Emptying(), 2, 2]
    array = cuda.array(shape=4, speaks=())
    assert from_cai(OnlyCai(dict(interface(array), shape=shape))).shape == (1, 2, 2)


def test_lanes_take_one_of_the_64_dimensions(cuda):
    memory = cuda.array(shape=4)
    refused, most = (
        HandMade(memory.ptr, shape=(1,) * ndim, strides=(1,) * ndim, lanes=2).capsule()
        for ndim in (64, 63)
    )
    with pytest.raises(ValueError, match=r"^ndim: got 64 and lanes; allowed"):
        to_cai(refused)
    assert to_cai(most).ndim == 64


def test_a_dict_that_cannot_be_read_at_the_import_is_read_at_the_end(cuda):
    producer, mine = cuda.stream("producer"), cuda.stream("mine")
    array = cuda.array([7.0] * 4, speaks=("dlpack", "cai3"), stream=producer)
    said = [ValueError("not now")]

    class Both:
        def __dlpack__(self, **asked):
            return array.__dlpack__(**asked)

        def __dlpack_device__(self):
            return array.__dlpack_device__()

        @property
        def __cuda_array_interface__(self):
            if said:
                raise said.pop()
            return array.__cuda_array_interface__

    view = to_cai(Both(), stream=mine)
    assert not said
    seen = mine.read(view)
    view.release()
    producer.fill(array, 9.0)
    cuda.synchronize()
    assert seen.value == [7.0] * 4
