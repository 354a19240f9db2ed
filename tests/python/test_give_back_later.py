"""Memory that cannot be given back at once: its producer's stream is unknown, or the order fails.

It is kept until its consumer is done, or the order made.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from capsules import HandMade
from scenes import ORDER, STREAMS, Scene, again, by_dict, done, next_tenant, read_before

from cai_bridge import DriverError, from_cai, to_cai
from cai_bridge.testing import simulated_cuda

# --- a producer whose stream is unknown -----------------------------------------------------------


class Unknown(Scene):
    """A producer that says nothing of its stream, with an allocator on a non-blocking one."""

    def __init__(self, cuda: Any, speaks: str, consumed_on: str = "non-blocking") -> None:
        super().__init__(cuda, speaks, "non-blocking", consumed_on)
        self.producer.synchronize()


@pytest.mark.parametrize("consumed_on", STREAMS)
@pytest.mark.parametrize("speaks", ["dlpack", "dlpack-strict", "dlpack-bare", "capsule"])
def test_without_its_stream_a_producer_gets_its_memory_back_when_the_consumer_is_done(
    speaks, consumed_on, cuda
):
    scene = Unknown(cuda, "dlpack" if speaks == "capsule" else speaks, consumed_on)
    given = scene.array.__dlpack__() if speaks == "capsule" else scene.array
    view = to_cai(given, stream=scene.consumer)
    del given
    seen, block = scene.consumer.read(view), scene.array.ptr
    scene.array, view = None, view.release()
    gc.collect()
    new = cuda.array(shape=8, memory="pool", stream=scene.producer, speaks=())
    assert new.ptr != block, "the consumer has not read yet"
    scene.producer.fill(new, 2.0)
    scene.consumer.synchronize()
    assert seen.value == [1.0] * 8
    # The next call of the bridge finds that the consumer is done; here the sync was one.
    last = cuda.array(shape=8, memory="pool", stream=scene.producer, speaks=())
    assert last.ptr == block
    scene.producer.fill(last, 3.0)
    cuda.synchronize()


def test_the_stream_that_a_silent_dicts_producer_was_asked_for_is_not_its_own(cuda):
    scene = Unknown(cuda, ("dlpack", "cai2"), "legacy")
    gone = weakref.ref(scene.array)
    view = from_cai(scene.array)
    seen = cuda.consumer("dlpack", scene.consumer).read(view)
    scene.array, view = None, view.release()
    seen.release()
    assert gone() is not None, "the consumer has not read yet"
    scene.consumer.synchronize()
    assert (seen.value, gone()) == ([1.0] * 8, None)


def test_what_waits_for_its_consumer_goes_at_the_next_call_of_the_bridge(cuda):
    scene = Unknown(cuda, "dlpack")
    view = to_cai(scene.array, stream=scene.consumer)
    gone = weakref.ref(scene.array)
    scene.consumer.read(view)
    scene.array = None
    del view
    gc.collect()
    assert gone() is not None
    cuda.run()
    to_cai(cuda.array([1.0]))
    assert gone() is None
    cuda.synchronize()


def test_what_is_not_done_at_the_end_of_the_device_goes_then():
    with simulated_cuda() as cuda:
        stream, array = cuda.stream(), cuda.array([1.0] * 4)
        tensor = HandMade(array.ptr)
        view = to_cai(tensor.capsule(), stream=stream)
        stream.launch(reads=[view])
        view.release()
        assert tensor.deleted == 0
    assert tensor.deleted == 1


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ORDER)
def test_a_release_whose_order_fails_leaves_everything_as_it_was(call, cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    pending, view = by_dict(scene)
    cuda.fail(call)
    with pytest.raises(DriverError, match=rf"^{call}: got "):
        view.release()
    assert view.owner is scene.array
    view.release()
    assert view.owner is None
    assert read_before(again, scene, pending) == [1.0] * 8


@pytest.mark.parametrize("call", ORDER)
def test_a_last_reference_whose_order_fails_keeps_the_memory_until_it_is_made(call, cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    pending, view = by_dict(scene)
    block, gone = scene.array.ptr, weakref.ref(scene.array)
    cuda.fail(call)
    scene.array = None
    del view
    gc.collect()
    assert cuda.clear_faults() == 0
    assert gone() is not None
    to_cai(cuda.array([1.0]))
    assert gone() is None
    next_tenant(scene.producer, block, 8)
    assert done(pending) == [1.0] * 8


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_order_that_fails_at_the_end_of_a_with_block_replaces_no_exception(cuda):
    scene = Scene(cuda, "exchange", "non-blocking", "non-blocking")
    pending, view = by_dict(scene)

    def failing_in_the_block() -> None:
        with view:
            cuda.fail("cuEventRecord")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_in_the_block()
    assert view.owner is scene.array
    with pytest.raises(DriverError, match=r"^cuEventRecord"), view:
        cuda.fail("cuEventRecord")
    view.release()
    assert read_before(again, scene, pending) == [1.0] * 8
