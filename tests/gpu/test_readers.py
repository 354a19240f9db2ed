"""Readers on streams that nobody named, on a GPU."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from cai_bridge import from_cai, to_cai

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


def reused(torch: Any, stream: Any, ptr: int) -> Any:
    """The producer's next array, which its allocator makes of the block that went back."""
    gc.collect()
    again = full(torch, stream, -1.0)
    assert again.data_ptr() == ptr, "the block was not used again, so nothing was tried"
    return again


def test_a_reader_under_a_stream_object_that_keeps_nothing_is_waited_for(driver, torch, new_stream):
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


def test_work_with_the_address_on_a_librarys_current_stream_is_waited_for(driver, torch, cupy):
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


@pytest.mark.parametrize("stream", ["side", "default"])
def test_torch_waits_in_its_graph_for_what_it_reads_by_a_dict(driver, torch, stream):
    side = torch.cuda.Stream()
    producer = torch.cuda.Stream() if stream == "side" else torch.cuda.default_stream()
    out, x = zeros(torch), zeros(torch)
    with torch.cuda.stream(producer):
        driver.spin(handle_of(producer), SPIN_MS)
        x.fill_(1.0)
        view = to_cai(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        out.copy_(torch.as_tensor(view, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    assert out.eq(1.0).all().item()
    view.release()
