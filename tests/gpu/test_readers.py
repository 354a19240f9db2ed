"""Readers on streams that nobody named, on a GPU."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from cai_bridge import Library, _libraries, from_cai, register, to_cai

from .streams import handle_of

WORDS = 1 << 18
SPIN_MS = 5.0


def full(torch: Any, stream: Any, value: float) -> Any:
    with torch.cuda.stream(stream):
        return torch.full((WORDS,), value, device="cuda")


def lent(torch: Any, producer: Any, take: Any) -> tuple[Any, int]:
    """A view of an array of the producer's that nobody else holds, and its address."""
    x = full(torch, producer, 1.0)
    with torch.cuda.stream(producer):
        return take(x), x.data_ptr()


def zeros(torch: Any) -> Any:
    """What a reader copies to, once it is there."""
    out = torch.zeros(WORDS, device="cuda")
    torch.cuda.synchronize()
    return out


def written_late(driver: Any, torch: Any, producer: Any) -> tuple[Any, Any, Any]:
    """What a reader copies to, and an array that is written late, with its view."""
    out, x = zeros(torch), zeros(torch)
    with torch.cuda.stream(producer):
        driver.spin(handle_of(producer), SPIN_MS)
        x.fill_(1.0)
        return out, x, to_cai(x)


def reused(torch: Any, stream: Any, ptr: int) -> Any:
    """The producer's next array, which its allocator makes of the block that went back."""
    gc.collect()
    again = full(torch, stream, -1.0)
    assert again.data_ptr() == ptr, "the block was not used again, so nothing was tried"
    return again


def test_a_reader_under_a_stream_object_that_keeps_nothing_is_waited_for(
    driver: Any, torch: Any, new_stream: Callable[..., int]
) -> None:
    producer, own = torch.cuda.Stream(), new_stream()
    out = zeros(torch)
    view, ptr = lent(torch, producer, to_cai)
    with torch.cuda.stream(torch.cuda.ExternalStream(own)):
        taken = torch.as_tensor(view, device="cuda")
        driver.spin(own, SPIN_MS)
        out.copy_(taken)
    del taken
    view.release()  # the host waits, since no library works on that stream any more
    del view
    again = reused(torch, producer, ptr)
    torch.cuda.synchronize()
    assert out.eq(1.0).all().item()
    del again


def test_work_with_the_address_on_a_librarys_current_stream_is_waited_for(
    driver: Any, torch: Any, cupy: Any
) -> None:
    producer, own = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    out = cupy.zeros(WORDS, dtype=np.float32)
    torch.cuda.synchronize()
    view, ptr = lent(torch, producer, from_cai)
    producer.synchronize()
    with own:
        driver.spin(handle_of(own), SPIN_MS)
        driver.copy(out.data.ptr, view.ptr, 4 * WORDS, own.ptr)
        view.release()
    del view
    again = reused(torch, producer, ptr)
    torch.cuda.synchronize()
    own.synchronize()
    assert (out == 1.0).all()
    del again


@pytest.mark.parametrize("on", ["legacy", "per-thread", "blocking"])
def test_default_streams_wait_where_a_library_is_imported_that_ignores_dicts(
    driver: Any,
    torch: Any,
    new_stream: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    on: str,
) -> None:
    monkeypatch.setitem(sys.modules, "pylibcudf", types.ModuleType("pylibcudf"))
    reader = {"legacy": 1, "per-thread": 2}.get(on) or new_stream(0)
    producer = torch.cuda.Stream()
    out, _x, view = written_late(driver, torch, producer)
    ptr = view.__cuda_array_interface__["data"][0]
    driver.copy(out.data_ptr(), ptr, 4 * WORDS, reader)
    torch.cuda.synchronize()
    assert out.eq(1.0).all().item()
    view.release()


class Unnamed(Library):
    """A library that is registered, and works on one stream of the driver's."""

    name = "unnamed"
    arrays = ("builtins:memoryview",)

    def __init__(self, stream: int) -> None:
        self.stream = stream

    def current_stream(self, device: int) -> int:
        return self.stream

    def make(self, view: Any, stream: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def unnamed(new_stream: Callable[..., int]) -> Iterator[int]:
    """The stream of a library that is registered."""
    registered, own = dict(_libraries._registered), new_stream()
    register(Unnamed(own))
    yield own
    _libraries._registered = registered
    _libraries.ask_for_streams()


def test_a_registered_library_that_reads_unnamed_is_waited_for(
    driver: Any, torch: Any, unnamed: int
) -> None:
    producer, out = torch.cuda.Stream(), zeros(torch)
    view, ptr = lent(torch, producer, to_cai)
    assert view.__cuda_array_interface__["stream"] == producer.cuda_stream
    producer.synchronize()
    driver.spin(unnamed, SPIN_MS)
    driver.copy(out.data_ptr(), view.ptr, 4 * WORDS, unnamed)
    view.release()
    del view
    again = reused(torch, producer, ptr)
    torch.cuda.synchronize()
    assert out.eq(1.0).all().item()
    del again


@pytest.mark.parametrize("stream", ["side", "default"])
def test_torch_waits_in_its_graph_for_what_it_reads_by_a_dict(
    driver: Any, torch: Any, stream: str
) -> None:
    side = torch.cuda.Stream()
    producer = torch.cuda.Stream() if stream == "side" else torch.cuda.default_stream()
    out, _x, view = written_late(driver, torch, producer)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        out.copy_(torch.as_tensor(view, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    assert out.eq(1.0).all().item()
    view.release()
