"""Streams that are gone by the time the memory goes back: none of them is touched.

A real driver dies of the touch (SIGSEGV); the simulated device reports it, which fails the test.
"""

from __future__ import annotations

import logging

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


def test_a_line_that_only_a_trace_was_told_of_is_warned_of_later(cuda, caplog, traced):
    home, consumer = cuda.stream("home"), cuda.stream("consumer")
    array = producer(cuda, "cai3", home)
    found = []
    for level in (logging.ERROR, logging.WARNING):
        caplog.set_level(level, logger="cai_bridge")
        with traced():
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
