"""The streams of registered libraries, and of Warp, where nobody named the user of memory.

PyTorch and CuPy are asked for theirs by quicker ways, which tests of their own are for.
"""

import logging
import sys
import types

import pytest
from moving import host_waits
from stand_in import StandIn, made_on, no_libraries

from cai_bridge import convert, register, to_cai

__all__ = ["no_libraries"]


@pytest.fixture
def stream(cuda):
    """The registered library's, which follows no other."""
    return cuda.stream("the library's")


@pytest.fixture
def library(cuda, no_libraries, stream):
    made = StandIn({0: stream})
    register(made)
    return made


@pytest.fixture
def producer(cuda):
    return cuda.stream("producer")


@pytest.fixture
def x(cuda, producer):
    """An array that the producer is about to write 7 to."""
    return made_on(cuda, producer, 7.0, "cai3")


def reads_on(stream, view, producer):
    """What a library does that takes the dict at its word: its stream waits for the dict's."""
    assert view.__cuda_array_interface__["stream"] == producer.handle
    stream.wait(producer.record())
    return stream.read(view, name="the library's read")


def seen_before_the_next_write(cuda, producer, x, seen):
    """What a reader has seen, when the producer has written again and all is done."""
    producer.fill(x, 9.0, name="the producer's next write")
    cuda.synchronize()
    return seen.value


@pytest.mark.unchecked
@pytest.mark.parametrize("registered", [True, False])
def test_the_producer_waits_for_a_registered_library_that_was_not_named(
    registered, cuda, no_libraries, stream, producer, x
):
    if registered:
        register(StandIn({0: stream}))
    view = to_cai(x)
    seen = reads_on(stream, view, producer)
    del view
    assert seen_before_the_next_write(cuda, producer, x, seen) == [7.0] * 4 or not registered
    assert [report.kind for report in cuda.reports] == ([] if registered else ["race"])


@pytest.mark.filterwarnings("ignore::cai_bridge.HostSyncWarning")
def test_a_wait_of_the_host_does_not_end_a_registered_librarys_capture(cuda, library, stream):
    silent = cuda.array([0.0] * 4, speaks="cai2")
    with cuda.capture(stream) as graph:
        assert to_cai(silent).ptr == silent.ptr
        convert(silent, "stand_in", stream=cuda.stream("another"))
        assert host_waits(cuda) == 2
    graph.launch(stream)
    cuda.synchronize()


def test_the_stream_of_a_handle_is_kept_if_a_registered_library_works_on_it(
    cuda, library, stream, producer, x, caplog
):
    view = to_cai(x, stream=stream.handle)
    seen = stream.read(view, name="the library's read")
    library.streams[0] = cuda.stream("the library's next")
    cuda.clear_calls()
    with caplog.at_level(logging.WARNING, logger="cai_bridge"):
        del view
    assert not caplog.records
    assert host_waits(cuda) == 0
    assert seen_before_the_next_write(cuda, producer, x, seen) == [7.0] * 4


def test_the_stream_of_a_handle_is_not_kept_by_a_handle(cuda, library, stream, x, caplog):
    library.streams[0] = stream.handle
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
    cuda, library, monkeypatch, answer, producer, x
):
    def current_stream(_self, device):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(StandIn, "current_stream", current_stream)
    reader = cuda.stream("reader")
    with cuda.current_stream(reader):
        view = to_cai(x)
        seen = reads_on(reader, view, producer)
        del view
    assert seen_before_the_next_write(cuda, producer, x, seen) == [7.0] * 4


def test_a_library_that_is_not_imported_is_not_asked(cuda, no_libraries, stream, monkeypatch, x):
    absent = type("Absent", (StandIn,), {"name": "absent", "arrays": ("absent.core:Array",)})
    library = absent({0: stream})
    register(library)
    to_cai(x).release(stream)
    del to_cai(x).__cuda_array_interface__["stream"]
    assert library.asked == []
    module = types.ModuleType("absent.core")
    module.Array = type("Array", (), {})
    monkeypatch.setitem(sys.modules, "absent.core", module)
    del to_cai(x).__cuda_array_interface__["stream"]
    assert 0 in library.asked


@pytest.mark.parametrize("has_context", [True, False])
@pytest.mark.parametrize("protocol", [True, False])
@pytest.mark.parametrize("started", [True, False])
def test_warp_which_ignores_the_dicts_stream_waits_on_its_own(
    cuda, no_libraries, monkeypatch, started, has_context, protocol, producer, x
):
    asked = []

    class Gpu:
        def __init__(self):
            self.has_context = has_context

        @property
        def stream(self):
            asked.append(self)  # here Warp begins on this GPU
            return warps if protocol else types.SimpleNamespace(cuda_stream=warps.handle)

    warps = cuda.stream("Warp's")
    context = types.ModuleType("warp._src.context")
    runtime = types.SimpleNamespace(get_device={"cuda:0": Gpu()}.__getitem__)
    context.runtime = runtime if started else None
    for module in (types.ModuleType("warp"), context):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    view = to_cai(x)
    assert view.__cuda_array_interface__["stream"] == producer.handle
    if not (started and has_context):
        # To ask it would start it, or begin it on this GPU.
        assert asked == []
        return
    seen = warps.read(view, name="Warp's read")
    del view
    assert seen_before_the_next_write(cuda, producer, x, seen) == [7.0] * 4
