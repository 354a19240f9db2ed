"""Exporters that move: who takes the memory waits for the stream that their dict names by now."""

from __future__ import annotations

import gc
from typing import Any

import capsules
import numpy as np
import pytest
from moving import BEFORE_OR_NONE, exporter_before, host_waits, moved, stream_before
from scenes import done

from cai_bridge import from_cai, to_cai, to_dlpack
from cai_bridge.testing import _current_streams


@BEFORE_OR_NONE
@pytest.mark.parametrize("through", ["itself", "a capsule that declined"])
@pytest.mark.parametrize("reader", ["capsule", "trusting", "dict", "copy", "host copy", "wait"])
def test_a_hand_over_after_the_move_waits_for_the_stream_of_now(reader, through, before, cuda):
    first, then = stream_before(cuda, before), cuda.stream("then")
    consumer = cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    cuda.synchronize()
    exporter = exporter_before(array, before)
    if before == "a library's":
        with cuda.current_stream(first):
            view = from_cai(exporter)
    else:
        view = from_cai(exporter)
    if through == "a capsule that declined":
        view = to_dlpack(view.__dlpack__(stream=-1))
    if reader in {"dict", "trusting"}:
        view = to_cai(view)
    moved(array, first, then)
    if reader == "dict":
        assert view.__cuda_array_interface__["stream"] == then.handle
        seen = cuda.consumer("cai-waits", consumer).read(view)
        view.release(consumer)
    elif reader == "trusting":
        seen = cuda.consumer("cai-trusting", consumer).read(view)
        view.release(consumer)
    elif reader == "capsule":
        seen = cuda.consumer("dlpack", consumer).read(view)
        seen.release()
        view.release()
    elif reader == "wait":
        (view := to_cai(view)).wait()
        seen = consumer.read(array)
        assert done(seen) == [2.0] * 4
        return
    elif reader == "host copy":
        copy = np.from_dlpack(view, device="cpu", copy=True)
        assert copy.tolist() == [2.0] * 4
        return
    else:
        copy = view.__dlpack__(stream=consumer, copy=True, max_version=(1, 3))
        copy = to_cai(copy, stream=consumer)
        seen = consumer.read(copy)
        copy.release()
        view.release()
    then.fill(array, 3.0)
    gc.collect()
    assert host_waits(cuda) == 0
    assert done(seen) == [2.0] * 4


def test_one_that_named_no_stream_is_heard_after_a_consumer_that_named_its_own(cuda):
    then, consumer = cuda.stream("then"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", name="x")
    view = from_cai(to_cai(array, stream=consumer), stream=-1)
    then.fill(array, 2.0)
    copy = to_cai(view.__dlpack__(stream=consumer, copy=True, max_version=(1, 3)), stream=consumer)
    seen = consumer.read(copy)
    copy.release()
    assert done(seen) == [2.0] * 4


class Around:
    """A class around an array of a library, whose dict names the library's stream of the moment."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        now = _current_streams(0)
        stream = now[-1][0].handle if now else 1
        return {**self.array.__cuda_array_interface__, "stream": stream}


@pytest.mark.parametrize("when", ["hand-over", "dict", "end"])
def test_a_class_around_a_librarys_array_is_ordered_with_the_stream_that_it_named(when, cuda):
    first, consumer = cuda.stream("first"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=first, name="x")
    with cuda.current_stream(first):
        view = from_cai(Around(array))
    if when == "hand-over":
        seen = cuda.consumer("dlpack", consumer).read(view)
    elif when == "dict":
        view = to_cai(view)
        with cuda.current_stream(consumer):
            seen = cuda.consumer("cai-enqueues", consumer).read(view)
    else:
        consumer.wait(first.record())
        capsule = capsules.take(view.__dlpack__(stream=consumer))
        seen = consumer.read(array)
        capsule.delete()
    if when != "end":
        seen.release()
    view.release()
    first.fill(array, 3.0)
    assert done(seen) == [1.0] * 4


class Idle:
    """An exporter whose dict names no stream once its work is done."""

    def __init__(self, array: Any) -> None:
        self.array, self.idle = array, False

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = self.array.__cuda_array_interface__
        return dict(interface, stream=None) if self.idle else interface


class Trusted(Idle):
    """Of a library that means it."""

    __module__ = "cai_bridge.testing"
    __cuda_array_interface__ = Idle.__cuda_array_interface__


@pytest.mark.parametrize("reader", ["capsule", "dict"])
def test_nothing_waits_for_an_exporter_that_has_nothing_pending_any_more(reader, cuda):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    exporter = Trusted(cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x"))
    view = from_cai(exporter) if reader == "capsule" else to_cai(exporter)
    cuda.synchronize()
    exporter.idle = True
    cuda.clear_calls()
    if reader == "capsule":
        capsule = view.__dlpack__(stream=consumer)
    else:
        assert view.__cuda_array_interface__["stream"] is None
        capsule = None
    made = {call.call for call in cuda.calls}
    del capsule
    assert not made & {"cuModuleUnload", "cuEventRecord", "cuStreamWaitEvent"}


@pytest.mark.parametrize("differs", ["stream", "address"])
def test_a_dict_that_is_not_the_owners_own_does_not_follow_it(differs, cuda):
    home, other = cuda.stream("home"), cuda.stream("other")
    array = cuda.array([1.0] * 8, speaks="cai3", stream=home, name="x")
    said = array.__cuda_array_interface__
    if differs == "stream":
        said["stream"] = other.handle
    else:
        said["data"], said["shape"] = (said["data"][0] + 4, False), (4,)
    # Nobody keeps it, so the legacy default stream replaces it.
    assert from_cai(said, owner=array).stream == 1
    cuda.synchronize()


def test_a_stream_that_a_dict_names_beside_a_view_as_its_owner_waits_at_the_end(cuda):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=home, name="x")
    cuda.legacy.wait(home.record())
    view = to_cai(array)
    taken = from_cai(dict(view.__cuda_array_interface__, stream=1), owner=view)
    seen = cuda.consumer("dlpack", consumer).read(taken)
    seen.release()
    taken.release()
    cuda.legacy.fill(array, 3.0)
    home.wait(cuda.legacy.record())
    assert done(seen) == [1.0] * 4


@pytest.mark.parametrize("reader", ["capsule", "dict"])
def test_a_dict_of_before_is_ordered_after_the_stream_that_its_owner_names_now(reader, cuda):
    then, consumer = cuda.stream("then"), cuda.stream("consumer")
    array = cuda.array([1.0] * 4, speaks="cai3", stream=cuda.legacy, name="x")
    said = array.__cuda_array_interface__
    moved(array, cuda.legacy, then)
    view = from_cai(said, owner=array)
    if reader == "dict":
        seen = cuda.consumer("cai-waits", consumer).read(to_cai(view))
    else:
        seen = cuda.consumer("dlpack", consumer).read(view)
    seen.release()
    view.release()
    assert done(seen) == [2.0] * 4
