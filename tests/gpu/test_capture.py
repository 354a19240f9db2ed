"""Hand-overs during captures of PyTorch, CuPy and the driver: replays give right values, and no
call of the bridge ends a capture.
"""

from __future__ import annotations

import numpy as np
import pytest

from cai_bridge import convert, from_cai, to_cai

from . import capsules, streams
from .converting import WORKERS
from .streams import handle_of

COUNT = 4096
REPLAYS = 5


@pytest.mark.parametrize("library", ["cupy", "numba"])
def test_a_library_takes_part_in_a_graph_of_torch(place, torch, library):
    sink = WORKERS[library](place)
    x, total = torch.zeros(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    take = {
        "cupy": streams.cupy_view_without_sync,
        "numba": lambda view: sink.cuda.as_cuda_array(view, sync=False),
    }[library]
    sink.read(sink.array)  # compiled, and its memory taken, before the capture
    place.driver.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
        with to_cai(y, stream=sink.stream) as view, sink.working():
            taken = take(view)
            sink.read(taken)
            del taken
        # After the view: what torch does next comes after the library's read.
        y.fill_(-1.0)
        with to_cai(total) as view:
            torch.add(total, 1.0, out=total)
    for value in range(1, REPLAYS + 1):
        x.fill_(float(value))
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert (sink.seen() == 2.0 * value).all()
        assert (total.cpu().numpy() == value).all()


@pytest.mark.parametrize("produced_on", ["side", "default"])
def test_a_captured_consumer_waits_for_a_producer_outside(driver, torch, cupy, produced_on):
    consumer = cupy.cuda.Stream(non_blocking=True)
    side = torch.cuda.Stream() if produced_on == "side" else torch.cuda.default_stream()
    x, seen = torch.zeros(COUNT, device="cuda"), cupy.zeros(COUNT, dtype=np.float32)
    with consumer:
        cupy.multiply(seen, 3.0, out=seen)
    driver.spin(handle_of(side), 0.01)
    driver.synchronize()
    streams.torch_writes_late(x, 7, side, milliseconds=20)
    with torch.cuda.stream(side), consumer:
        consumer.begin_capture()
        view = to_cai(x, stream=consumer)
        cupy.multiply(streams.cupy_view_without_sync(view), 3.0, out=seen)
        graph = consumer.end_capture()
    graph.launch(consumer)
    consumer.synchronize()
    assert (cupy.asnumpy(seen) == 21.0).all()
    # Later records of this thread are none of the graph's: a replay does not wait for them.
    driver.synchronize()
    driver.spin(handle_of(side), 100.0)
    with torch.cuda.stream(side):
        to_cai(x, stream=cupy.cuda.Stream(non_blocking=True))
    graph.launch(consumer)
    consumer.synchronize()
    assert driver.is_pending(handle_of(side))


@pytest.fixture
def reader(driver, torch, cupy):
    """Streams of CuPy and torch, an array of torch, and what reads a view on CuPy's."""
    mine, producer = cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    x, seen = torch.full((COUNT,), 7.0, device="cuda"), cupy.zeros(COUNT, dtype=np.float32)

    def read(view):
        with mine:
            cupy.multiply(streams.cupy_view_without_sync(view), 1.0, out=seen)

    # Once before: kernels are compiled, and the bridge's own stream and module are made.
    with torch.cuda.stream(producer), to_cai(x, stream=mine) as view:
        read(view)
        convert(x, "numpy")
        driver.spin(mine.ptr, 0.01)
        driver.spin(handle_of(producer), 0.01)
    driver.synchronize()
    return mine, producer, x, read, lambda: cupy.asnumpy(seen, stream=mine)


@pytest.mark.parametrize("used", ["on its stream", "by the host"])
def test_what_waited_in_a_graph_waits_again_outside(driver, torch, reader, used):
    mine, producer, x, read, seen = reader
    x.fill_(0.0)
    driver.synchronize()
    streams.torch_writes_late(x, 7, producer, milliseconds=50)
    with torch.cuda.stream(producer):
        with mine:
            mine.begin_capture()
            view = to_cai(x, stream=mine)
            graph = mine.end_capture()
        assert driver.is_pending(handle_of(producer))
        if used == "by the host":
            found = convert(view, "numpy")
        else:
            again = to_cai(view, stream=mine)
            read(again)
            found = seen()
    assert (found == 7.0).all()
    graph.launch(mine)
    driver.synchronize()


@pytest.mark.parametrize("end", ["release", "del"])
def test_an_end_in_a_capture_covers_what_the_stream_did_before(driver, torch, reader, end):
    mine, producer, x, read, seen = reader
    with torch.cuda.stream(producer):
        view = to_cai(x, stream=mine)
        driver.spin(mine.ptr, 50)
        read(view)
        with mine:
            mine.begin_capture()
            if end == "release":
                view.release()
            else:
                del view
            x.fill_(9.0)
            mine.end_capture()
    assert (seen() == 7.0).all()
    driver.synchronize()


def test_conversions_beside_a_capture_leave_it_alone(driver, torch, cupy):
    jax = pytest.importorskip("jax")
    consumer, side = cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    x, y = torch.ones(COUNT, device="cuda"), cupy.ones(COUNT, dtype=np.float32)
    pending = jax.numpy.ones(COUNT)
    outside = torch.ones(COUNT, device="cuda")
    driver.spin(consumer.ptr, 0.01)
    driver.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1.0)
        with torch.cuda.stream(side):
            # PyTorch's current stream is one outside the capture here.
            driver.spin(handle_of(side), 5)
            view = to_cai(outside, stream=consumer)
            driver.spin(consumer.ptr, 5)
            view.release()
            tensor = torch.from_dlpack(from_cai(y))
            del tensor
            to_cai(outside)
        # Nobody knows the stream of this one: its consumer is waited for by queries.
        silent = to_cai(pending, stream=consumer)
        del silent, pending
        from_cai(capsules.OnlyCai({**y.__cuda_array_interface__, "stream": 1}, keep=y))
    graph.replay()
    torch.cuda.synchronize()
    assert (x.cpu().numpy() == 2.0).all()


@pytest.mark.parametrize(
    ("made", "end"), [("inside", "inside"), ("before", "inside"), ("before", "after")]
)
def test_torch_takes_part_in_a_graph_of_cupy_by_a_view(driver, torch, cupy, made, end):
    origin, side = cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    out = torch.zeros(COUNT, device="cuda")
    with origin:
        x = cupy.zeros(COUNT, dtype=np.float32)
        cupy.add(x, 1.0, out=x)
        view = from_cai(x) if made == "before" else None
    with torch.cuda.stream(side):  # once outside a capture, in which torch's first call would fail
        out.copy_(out.clone())
    driver.synchronize()
    with origin:
        origin.begin_capture()
        cupy.add(x, 1.0, out=x)
        view = from_cai(x) if view is None else view
        with torch.cuda.stream(side):
            tensor = torch.from_dlpack(view)
            out.copy_(tensor)
        if end == "inside":
            del tensor  # the fork is joined by the tensor's end
        else:
            event = cupy.cuda.Event(disable_timing=True)
            event.record(cupy.cuda.ExternalStream(side.cuda_stream))
            origin.wait_event(event)
        if made == "inside":
            view = None
        cupy.add(x, 1.0, out=x)
        graph = origin.end_capture()
    if end == "after":
        del tensor
    if view is not None:
        view.release()
    x.fill(0.0)
    driver.synchronize()
    for replay in range(REPLAYS):
        graph.launch(origin)
        origin.synchronize()
        assert (out.cpu().numpy() == 2.0 * replay + 1.0).all()


def test_a_copy_for_the_cpu_ends_no_capture_of_another_stream(
    driver, torch, cupy, new_stream, words
):
    captured, block = new_stream(), words(COUNT)
    y = cupy.full(COUNT, 7.0, dtype=np.float32)
    driver.synchronize()
    with driver.capture(captured, keep=True) as capture:
        driver.write(block, 7, COUNT, captured)
        assert (np.from_dlpack(from_cai(y), device="cpu") == 7.0).all()
    assert capture.ended == "CUDA_SUCCESS"
    driver("cuGraphLaunch", capture.graph, captured)
    driver.synchronize()
    assert driver.words(block, 2) == [7, 7]
    driver("cuGraphExecDestroy", capture.graph)


@pytest.mark.parametrize("stream", ["side", "default"])
def test_torch_waits_in_its_graph_for_what_it_reads_by_a_dict(driver, torch, stream):
    side = torch.cuda.Stream()
    producer = torch.cuda.Stream() if stream == "side" else torch.cuda.default_stream()
    out, x = (torch.zeros(1 << 18, device="cuda") for _ in range(2))
    torch.cuda.synchronize()
    streams.torch_writes_late(x, 1, producer, milliseconds=5)
    with torch.cuda.stream(producer):
        view = to_cai(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        out.copy_(torch.as_tensor(view, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    assert out.eq(1.0).all().item()
    view.release()
