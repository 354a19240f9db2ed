"""Streams that are gone by the time the memory goes back: none of them is touched.

A real driver dies of the touch (SIGSEGV); the simulated device reports it, which fails the test.
"""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import capsules
import numpy as np
import pytest
from fakes import StreamObject, only_cai
from stream_objects import (
    KINDS,
    Closing,
    ExternalStream,
    Flagged,
    TorchExternal,
    Unowned,
    ended,
    producer,
)
from tests.soak.device.foreign import external

from cai_bridge import from_cai, to_cai
from cai_bridge.testing import simulated_cuda


@KINDS
@pytest.mark.parametrize("end", ["release", "drop", "capsule"])
def test_a_consumers_bare_handle_that_nobody_vouches_for(end, blocking, cuda):
    home, stream = cuda.stream("home"), cuda.stream("consumer", blocking=blocking)
    array = producer(cuda, "cai3", home)
    if end == "capsule":
        taken = capsules.take(from_cai(array).__dlpack__(stream=stream.handle))
    else:
        view = to_cai(array, stream=stream.handle)
    cuda.synchronize()
    stream.destroy()
    if end == "capsule":
        taken.delete()
    elif end == "release":
        view.release()
    else:
        del view
    ended(cuda)


@KINDS
@pytest.mark.parametrize("wrap", [ExternalStream, Flagged, TorchExternal, Unowned])
def test_a_consumers_object_that_keeps_nothing_alive(wrap, blocking, cuda):
    home, stream = cuda.stream("home"), cuda.stream("consumer", blocking=blocking)
    array, external = producer(cuda, "cai3", home), wrap(stream)
    views = [to_cai(array, stream=external), from_cai(array).__dlpack__(stream=external)]
    cuda.synchronize()
    stream.destroy()
    views.clear()
    ended(cuda)


@pytest.mark.parametrize("used", ["closed", "another of its handle"])
def test_the_host_waits_for_the_gpu_that_a_consumer_works_on(used):
    """Managed memory of one GPU, used on the producer's stream, or on one of its handle."""
    with simulated_cuda(devices=2) as cuda:
        home = Closing(cuda.stream("home", device=1 if used == "closed" else 0))
        array = cuda.array([1.0] * 4, speaks=(), device=0, memory="managed", name="x")
        view, stream = from_cai(only_cai(array), stream=home), home.stream
        cuda.synchronize()
        if used == "closed":
            view = to_cai(view, stream=home)
        else:
            stream.destroy()
            stream = cuda.stream("next", device=1, handle_of=stream)
            view = to_cai(view, stream=external(stream))
        stream.fill(array, 2.0)
        home.close()
        view.release()
        assert array.tolist() == [2.0] * 4


@KINDS
@pytest.mark.parametrize("to", ["its own GPU", "another GPU", "the CPU"])
def test_a_copy_of_what_a_closed_object_names(to, blocking, cuda, caplog):
    home = Closing(cuda.stream("home", blocking=blocking))
    array = cuda.array([1.0] * 4, speaks=(), name="x")
    home.stream.fill(array, 7.0)
    view = from_cai(only_cai(array), stream=home)
    home.close()
    if to == "the CPU":
        assert np.from_dlpack(view, device="cpu").tolist() == [7.0] * 4
    else:
        reader = cuda.stream("reader", device=int(to == "another GPU"))
        device = (2, reader.device)
        copy = view.__dlpack__(stream=reader, dl_device=device, copy=True, max_version=(1, 3))
        seen = reader.read(to_cai(copy, stream=reader))
        ended(cuda)
        assert seen.value == [7.0] * 4
    assert "the array's stream may be destroyed" in caplog.text


@KINDS
@pytest.mark.parametrize("way", ["exchange API", "declared", "declared for a view", "a bare dict"])
def test_a_dict_names_no_stream_that_nothing_keeps_alive(way, blocking, cuda):
    home, consumer = cuda.stream("home", blocking=blocking), cuda.stream("consumer")
    array = producer(cuda, "exchange" if way == "exchange API" else "cai3", home)
    if way == "exchange API":
        with cuda.current_stream(external(home)):
            view = to_cai(array)
    elif way == "declared":
        view = to_cai(from_cai(only_cai(array), stream=home.handle))
    elif way == "declared for a view":
        view = to_cai(from_cai(to_cai(only_cai(array)), stream=home.handle))
    else:
        bare = dict(array.__cuda_array_interface__)
        view = to_cai(from_cai(bare, owner=only_cai(array)))
    home.destroy()
    seen = cuda.consumer("cai-waits", consumer).read(view)
    view.release()
    ended(cuda)
    assert view.stream == 1
    assert seen.value == [1.0] * 4


@KINDS
@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_what_is_held_lives_on_and_is_ordered(side, blocking, cuda):
    home, consumer = cuda.stream("home"), cuda.stream("consumer", blocking=blocking)
    array = cuda.array([1.0] * 4, speaks="exchange", memory="pool", stream=home, name="x")
    with cuda.current_stream(home):
        view = to_cai(array, stream=consumer)
    seen, block = consumer.read(view), array.ptr
    if side == "producer":
        other = cuda.stream("not the producer's")
        del home, array
    else:
        other = home
        del consumer, array
    cuda.clear_calls()
    del view
    gc.collect()
    waits = [call for call in cuda.calls if call.call == "cuStreamWaitEvent"]
    assert len(waits) == 1, "an edge between streams that are alive only as the view holds them"
    if side == "consumer":
        new = cuda.array(shape=4, memory="pool", stream=other, speaks=())
        assert new.ptr == block
        other.fill(new, 2.0)
    cuda.synchronize()
    assert seen.value == [1.0] * 4


def test_for_a_bare_handle_that_nobody_keeps_the_host_waits_and_says_how_to_avoid_it(cuda, caplog):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = producer(cuda, "cai3", home)
    for _ in range(3):
        view = to_cai(array, stream=consumer.handle)
        seen = consumer.read(view)
        cuda.clear_calls()
        del view
        home.fill(array, 1.0)
        assert [call.call for call in cuda.calls].count("cuModuleUnload") == 1
        cuda.synchronize()
        assert seen.value == [1.0] * 4
    records = [one for one in caplog.records if getattr(one, "order", "") == "impossible"]
    assert [record.levelname for record in records] == ["WARNING"], "once for a line"
    assert records[0].consumer == consumer.handle
    assert records[0].line.startswith(__file__)
    assert "release(stream)" in records[0].getMessage()
    # The way out, while the handle is good: release is told, and uses it in the call itself.
    caplog.clear()
    view = to_cai(array, stream=consumer.handle)
    seen = consumer.read(view)
    view.release(consumer.handle)
    home.fill(array, 2.0)
    cuda.synchronize()
    assert seen.value == [1.0] * 4
    assert caplog.records == []


def test_a_line_that_was_not_warned_of_while_logging_was_off_is_warned_of_later(cuda, caplog):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = producer(cuda, "cai3", home)
    found = []
    for level in (logging.ERROR, logging.WARNING):
        caplog.set_level(level, logger="cai_bridge")
        view = to_cai(array, stream=consumer.handle)
        consumer.read(view)
        view.release()
        found.append([one.levelname for one in caplog.records if hasattr(one, "line")])
    assert found == [[], ["WARNING"]]


@pytest.mark.parametrize("asked", ["stream_id", "external"])
def test_an_object_that_fails_to_say_is_taken_to_keep_nothing(asked, cuda):
    def fails(self):
        raise ValueError

    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    named = type("Named", (StreamObject,), {asked: property(fails)})((0, consumer.handle))
    view = to_cai(producer(cuda, "cai3", home), stream=named)
    cuda.synchronize()
    consumer.destroy()
    del view
    ended(cuda)


@pytest.mark.parametrize("role", ["home", "declared", "consumer"])
def test_a_view_that_its_own_stream_object_holds_is_collected(role, cuda):
    class Named:
        def __init__(self, name: str) -> None:
            self.stream = cuda.stream(name)

        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, self.stream.handle)

    named = Named(role)
    array = producer(cuda, "cai3", cuda.stream("producer"))
    if role == "home":
        named.view = from_cai(only_cai(array), stream=named)
    elif role == "declared":
        named.view = from_cai(to_cai(array), stream=named)
    else:
        named.view = to_cai(array, stream=named)
    gone = weakref.ref(named)
    cuda.synchronize()
    del named
    gc.collect()
    assert gone() is None
    cuda.synchronize()


@pytest.mark.parametrize("handed", ["to_cai", "from_cai and to_cai"])
def test_the_dict_of_a_view_names_no_stream_that_was_closed(cuda: Any, handed: str) -> None:
    stream, home = cuda.stream("closed"), cuda.stream("producer's")
    closing = Closing(stream)
    array = producer(cuda, "cai3", home)
    if handed == "to_cai":
        view = to_cai(array, stream=closing)
    else:
        view = to_cai(from_cai(array, stream=closing))
    assert view.__cuda_array_interface__["stream"] == stream.handle
    stream.wait(home.record())
    stream.fill(array, 7.0)
    closing.close()
    assert view.__cuda_array_interface__["stream"] is None
    seen = cuda.consumer("cai-waits", cuda.stream("reader's")).read(view)
    cuda.synchronize()
    assert seen.value == [7.0] * 4
