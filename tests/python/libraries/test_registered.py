"""The streams of registered libraries, and of Warp, where nobody named the user of memory.

PyTorch and CuPy are asked for theirs by quicker ways, which tests of their own are for.
"""

from __future__ import annotations

import logging
import sys
import types
from typing import Any

import pytest
from stand_in import StandIn, made_on, no_libraries

from cai_bridge import _libraries, convert, register, to_cai

__all__ = ["no_libraries"]


@pytest.fixture
def stream(cuda: Any) -> Any:
    """The registered library's, which follows no other."""
    return cuda.stream("the library's")


@pytest.fixture
def library(cuda: Any, no_libraries: None, stream: Any) -> StandIn:
    made = StandIn({0: stream})
    register(made)
    return made


def reads_on(stream: Any, view: Any, producer: Any) -> Any:
    """What a library does that takes the dict at its word: its stream waits for the dict's."""
    assert view.__cuda_array_interface__["stream"] == producer.handle
    stream.wait(producer.record())
    return stream.read(view, name="the library's read")


def seen_before_the_next_write(cuda: Any, producer: Any, x: Any, seen: Any) -> Any:
    """What a reader has seen, when the producer has written again and all is done."""
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    return seen.value


def test_the_producer_waits_for_a_registered_library_that_was_not_named(
    cuda: Any, library: StandIn, stream: Any
) -> None:
    producer = cuda.stream("producer")
    x = made_on(cuda, producer, 7.0, "cai3")
    view = to_cai(x)
    seen = reads_on(stream, view, producer)
    del view
    assert seen_before_the_next_write(cuda, producer, x, seen) == [7.0] * 4


@pytest.mark.unchecked
def test_without_being_registered_it_is_a_race(cuda: Any, no_libraries: None, stream: Any) -> None:
    producer = cuda.stream("producer")
    x = made_on(cuda, producer, 7.0, "cai3")
    view = to_cai(x)
    reads_on(stream, view, producer)
    del view
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    assert [report.kind for report in cuda.reports] == ["race"]


@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
def test_a_wait_of_the_host_does_not_end_a_registered_librarys_capture(
    cuda: Any, library: StandIn, stream: Any
) -> None:
    silent = cuda.array([0.0] * 4, speaks="cai2")
    with cuda.capture(stream) as graph:
        assert to_cai(silent).ptr == silent.ptr
        convert(silent, "stand_in", stream=cuda.stream("another"))
        assert [call.call for call in cuda.calls].count("cuModuleUnload") == 2
    graph.launch(stream)
    cuda.synchronize()


def test_the_stream_of_a_handle_is_kept_if_a_registered_library_works_on_it(
    cuda: Any, library: StandIn, stream: Any, caplog: pytest.LogCaptureFixture
) -> None:
    producer = cuda.stream("producer")
    x = made_on(cuda, producer, 7.0, "cai3")
    view = to_cai(x, stream=stream.handle)
    seen = stream.read(view, name="the library's read")
    library.streams[0] = cuda.stream("the library's next")
    cuda.clear_calls()
    with caplog.at_level(logging.WARNING, logger="cai_bridge"):
        del view
    assert not caplog.records
    assert all(record.call != "cuModuleUnload" for record in cuda.calls)
    assert seen_before_the_next_write(cuda, producer, x, seen) == [7.0] * 4


def test_the_stream_of_a_handle_is_not_kept_by_a_handle(
    cuda: Any, library: StandIn, stream: Any, caplog: pytest.LogCaptureFixture
) -> None:
    library.streams[0] = stream.handle
    x = made_on(cuda, cuda.stream("producer"), 7.0, "cai3")
    view = to_cai(x, stream=stream.handle)
    library.streams[0] = None
    cuda.synchronize()
    stream.destroy()
    with caplog.at_level(logging.WARNING, logger="cai_bridge"):
        del view
    assert ["bare handle" in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize(
    "answer", [None, -1, 0, True, 1, 2, 3, 0x5000_1000, 2**63, "x", object(), ValueError("none")]
)
def test_what_is_no_stream_of_this_driver_is_no_answer(
    cuda: Any, library: StandIn, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    def current_stream(_self: Any, device: int) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(StandIn, "current_stream", current_stream)
    producer, reader = cuda.stream("producer"), cuda.stream("reader")
    x = made_on(cuda, producer, 7.0, "cai3")
    with cuda.current_stream(reader):
        view = to_cai(x)
        seen = reads_on(reader, view, producer)
        del view
    assert seen_before_the_next_write(cuda, producer, x, seen) == [7.0] * 4


def test_a_library_that_is_not_imported_is_not_asked(
    cuda: Any, no_libraries: None, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = type("Absent", (StandIn,), {"name": "absent", "arrays": ("absent.core:Array",)})
    library = absent({0: stream})
    register(library)
    x = made_on(cuda, cuda.stream("producer"), 7.0, "cai3")
    to_cai(x).release(stream)
    del to_cai(x).__cuda_array_interface__["stream"]
    assert library.asked == []
    module: Any = types.ModuleType("absent.core")
    module.Array = type("Array", (), {})
    monkeypatch.setitem(sys.modules, "absent.core", module)
    del to_cai(x).__cuda_array_interface__["stream"]
    assert 0 in library.asked


@pytest.mark.parametrize("has_context", [True, False])
@pytest.mark.parametrize("protocol", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_warp_which_ignores_the_dicts_stream_waits_on_its_own(
    cuda: Any,
    no_libraries: None,
    monkeypatch: pytest.MonkeyPatch,
    started: bool,
    has_context: bool,
    protocol: bool,
) -> None:
    asked = []

    class Gpu:
        def __init__(self) -> None:
            self.has_context = has_context

        @property
        def stream(self) -> Any:
            asked.append(self)  # here Warp begins on this GPU
            return warps if protocol else types.SimpleNamespace(cuda_stream=warps.handle)

    warps, producer = cuda.stream("Warp's"), cuda.stream("producer")
    warp: Any = types.ModuleType("warp")
    context: Any = types.ModuleType("warp._src.context")
    runtime = types.SimpleNamespace(get_device={"cuda:0": Gpu()}.__getitem__)
    context.runtime = runtime if started else None
    monkeypatch.setitem(sys.modules, "warp", warp)
    monkeypatch.setitem(sys.modules, "warp._src.context", context)
    x = made_on(cuda, producer, 7.0, "cai3")
    view = to_cai(x)
    assert view.__cuda_array_interface__["stream"] == producer.handle
    if not (started and has_context):
        # To ask it would start it, or begin it on this GPU.
        assert asked == []
        return
    seen = warps.read(view, name="Warp's read")
    del view
    assert seen_before_the_next_write(cuda, producer, x, seen) == [7.0] * 4


def test_what_was_registered_before_is_asked_no_more(
    cuda: Any, library: StandIn, stream: Any
) -> None:
    newer = StandIn({0: stream})
    register(newer)
    x = made_on(cuda, cuda.stream("producer"), 7.0, "cai3")
    del to_cai(x).__cuda_array_interface__["stream"]
    assert (library.asked, newer.asked != []) == ([], True)
    assert list(_libraries._registered.values()) == [newer]
