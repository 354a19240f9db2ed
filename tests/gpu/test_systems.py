"""The real systems that the specifications name, beside those that the other files have.

mpi4py, pylibraft, cuda.compute, cuCIM, ucxx and cuda.core, each where it is installed: what PyTorch
or CuPy wrote late on a side stream is what they read, what they write is what the other reads, and
the producer's next write comes after their read. They take no notice of the dict's stream.
"""

from __future__ import annotations

import gc
import os
import weakref
from typing import Any

import numpy as np
import pytest

from cai_bridge import convert, from_cai, to_cai

from . import streams
from .converting import Place, Torch
from .streams import WORDS, handle_of

RUNS = 10
LATE_MS = 5.0


class Producer(Torch):
    """PyTorch on a side stream, with an array that is written to late."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.driver = place.driver

    def late(self) -> float:
        """Queue the write of a new value behind a delay."""
        self.driver.synchronize()
        value = float(next(streams.fresh_values()))
        streams.torch_writes_late(self.array, int(value), self.stream, LATE_MS)
        return value

    def cai(self, **how: Any) -> Any:
        with self.working():
            return to_cai(self.array, **how)


@pytest.fixture
def producer(place):
    return Producer(place)


@pytest.fixture
def mpi():
    """mpi4py in a process of its own size, whatever MPI there is."""
    pytest.importorskip("mpi4py")
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as missing:
        pytest.skip(f"mpi4py has no MPI here: {missing}")
    return MPI


@pytest.mark.parametrize("door", ["to_cai", "__dlpack__"])
def test_mpi4py_takes_the_views_memory_and_keeps_it(mpi, producer, note, door):
    tensor = producer.torch.arange(8.0, device="cuda")
    view: Any = to_cai(tensor) if door == "to_cai" else from_cai(to_cai(tensor))
    ptr, gone = tensor.data_ptr(), weakref.ref(tensor)
    buffer = mpi.buffer(view)
    del view, tensor
    gc.collect()
    assert (buffer.address, buffer.nbytes, buffer.readonly) == (ptr, 32, False)
    assert gone() is not None
    buffer.release()
    gc.collect()
    assert gone() is None
    note(f"mpi4py {mpi.Get_library_version().split(chr(10))[0][:40]}: buffers by {door}")


def test_any_mpi_moves_managed_memory_which_the_host_reaches(mpi, driver, cupy, note):
    stream, wrong = cupy.cuda.Stream(non_blocking=True), 0
    x, y = (cupy.ndarray(WORDS, np.float32, cupy.cuda.malloc_managed(4 * WORDS)) for _ in range(2))
    for _ in range(RUNS):
        value = float(next(streams.fresh_values()))
        driver.synchronize()
        streams.cupy_writes_late(x, int(value), stream, LATE_MS)
        with stream, to_cai(x) as sent, to_cai(y) as received:
            assert sent.device == (13, 0)
            driver.synchronize()  # the host does not touch managed memory while the GPU is at work
            mpi.COMM_SELF.Sendrecv(sent, dest=0, recvbuf=received, source=0)
            x.fill(-1.0)
            seen = y.get(stream=stream)
        wrong += not bool((seen == value).all())
    note(f"mpi4py, managed memory of CuPy: wrong {wrong}/{RUNS}")
    assert wrong == 0


class Raft:
    """RAFT on a stream of its own: `rmat` reads the probabilities, and writes the edges."""

    SCALE = 12

    def __init__(self) -> None:
        pytest.importorskip("pylibraft")
        from pylibraft.common import DeviceResources, Stream
        from pylibraft.random import rmat

        self.stream, self.rmat = Stream(), rmat
        self.resources = DeviceResources(stream=self.stream)
        self.on_default = DeviceResources()

    def edges(self, out: Any, probabilities: Any, resources: Any = None) -> None:
        using = resources or self.resources
        self.rmat(out, probabilities, self.SCALE, self.SCALE, seed=7, handle=using)


@pytest.fixture
def raft():
    return Raft()


def test_raft_reads_what_was_written_late_and_torch_reads_what_raft_wrote(
    raft, producer, torch, driver, note
):
    late, one, other = (torch.zeros(4 * raft.SCALE, device="cuda") for _ in range(3))
    one.copy_(torch.tensor([0.7, 0.1, 0.1, 0.1]).repeat(raft.SCALE))
    other.copy_(torch.tensor([0.1, 0.1, 0.1, 0.7]).repeat(raft.SCALE))
    expected = []
    for probabilities in (one, other):
        edges = torch.zeros((2000, 2), dtype=torch.int32, device="cuda")
        driver.synchronize()
        raft.edges(to_cai(edges), to_cai(probabilities))
        raft.resources.sync()
        expected.append(edges.clone())
    driver.synchronize()
    assert not bool((expected[0] == expected[1]).all())
    wrong = {"stream": 0, "unsaid": 0, "-1": 0}
    for how in wrong:
        said: Any = {"stream": raft.stream, "unsaid": None, "-1": -1}[how]
        resources = raft.on_default if how == "unsaid" else raft.resources
        for _ in range(RUNS):
            late.copy_(other)
            edges = torch.zeros((2000, 2), dtype=torch.int32, device="cuda")
            driver.synchronize()
            driver.spin(handle_of(producer.stream), LATE_MS)
            with torch.cuda.stream(producer.stream):
                late.copy_(one)
                with to_cai(late, stream=said) as read, to_cai(edges, stream=said) as written:
                    raft.edges(written, read, resources)
                late.copy_(other)  # torch's next write, on its stream
                seen = edges.clone()
            driver.synchronize()
            wrong[how] += not bool((seen == expected[0]).all())
    note(f"rmat of RAFT: wrong of {RUNS}: {wrong}")
    assert (wrong["stream"], wrong["unsaid"]) == (0, 0)
    assert wrong["-1"] != 0, "nothing went wrong without the order: the case shows nothing"


@pytest.mark.parametrize("sink", ["torch", "cupy"])
def test_rafts_own_array_is_taken_on_the_stream_that_is_said(raft, producer, sink):
    pytest.importorskip(sink)
    from pylibraft.common import device_ndarray

    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    array = device_ndarray(host)
    gone = weakref.ref(array)
    view = from_cai(array, stream=1)
    made = convert(view, sink)
    ptr = array.__cuda_array_interface__["data"][0]
    del array, view
    gc.collect()
    assert gone() is not None
    assert (made.data_ptr() if sink == "torch" else made.data.ptr) == ptr
    assert np.array_equal(made.cpu().numpy() if sink == "torch" else made.get(), host)
    del made
    producer.driver.synchronize()
    from cai_bridge._core import _settle

    _settle()
    gc.collect()
    assert gone() is None


def test_cuda_compute_reads_what_was_written_late_though_nothing_is_said(producer, torch, note):
    compute = pytest.importorskip("cuda.compute")
    out, nothing = torch.zeros(1, device="cuda"), np.zeros(1, np.float32)

    def add_up(view: Any) -> None:
        with to_cai(out) as total:
            compute.reduce_into(
                d_in=view, d_out=total, num_items=WORDS, op=compute.OpKind.PLUS, h_init=nothing
            )

    add_up(to_cai(producer.array))  # compiled here
    wrong = {"unsaid": 0, "-1": 0}
    for how in wrong:
        said = {} if how == "unsaid" else {"stream": -1}
        for _ in range(RUNS):
            value = producer.late()
            with producer.cai(**said) as view:
                add_up(view)
            producer.write(-1.0)
            torch.cuda.synchronize()
            wrong[how] += abs(out.item() - WORDS * value) > 1.0
    note(f"reduce_into of cuda.compute: wrong of {RUNS}: {wrong}")
    assert wrong["unsaid"] == 0
    assert wrong["-1"] != 0, "nothing went wrong without the order: the case shows nothing"


def test_cucim_works_on_torchs_memory_through_cupy(producer, torch, cupy, note):
    pytest.importorskip("cucim")
    from cucim.core.operations import intensity

    stream, wrong = cupy.cuda.Stream(non_blocking=True), 0
    for _ in range(RUNS):
        value = producer.late()
        with torch.cuda.stream(producer.stream), stream:
            image = convert(producer.array, cupy)
            assert image.data.ptr == producer.array.data_ptr()
            # From 0..value to 0..1: what was written is 1, and what is written next is below 0.
            scaled = intensity.scale_intensity_range(image.reshape(1, 64, 64), 1.0, 0.0, value, 0.0)
            back = convert(scaled, torch)
            del image, scaled
            producer.write(-1.0)
            wrong += not bool(((back - 1.0).abs() < 1e-5).all())
    note(f"cuCIM's intensity of a torch tensor: wrong {wrong}/{RUNS}")
    assert wrong == 0


@pytest.mark.parametrize("sink", ["cai", "cupy"])
def test_a_strided_memory_view_of_cuda_core_goes_on_to_others(producer, torch, cupy, note, sink):
    utils = pytest.importorskip("cuda.core.utils")
    stream, out, wrong = cupy.cuda.Stream(non_blocking=True), cupy.zeros(WORDS, np.float32), 0
    for _ in range(RUNS):
        value = producer.late()
        with torch.cuda.stream(producer.stream):
            # It has no stream of its own, so it is made ready on the one that it is taken for.
            strided = utils.StridedMemoryView.from_dlpack(producer.array, stream_ptr=1)
        with stream:
            made = to_cai(strided, stream=stream) if sink == "cai" else convert(strided, cupy)
            assert (made.ptr if sink == "cai" else made.data.ptr) == producer.array.data_ptr()
            out[...] = streams.cupy_view_without_sync(made) if sink == "cai" else made
            seen = cupy.asnumpy(out, stream=stream)
        del made, strided
        wrong += not bool((seen == value).all())
    note(f"cuda.core's view to {sink}: wrong {wrong}/{RUNS}")
    assert wrong == 0


@pytest.fixture
def ucxx():
    os.environ.setdefault("UCX_TLS", "tcp,cuda_copy")
    return pytest.importorskip("ucxx")


def test_ucxx_takes_a_view_as_gpu_memory_and_keeps_it(ucxx, torch):
    from ucxx._lib.arr import Array

    tensor = torch.arange(6.0, device="cuda").reshape(2, 3)
    view = to_cai(tensor)
    gone, made = weakref.ref(view), Array(view)
    del view
    gc.collect()
    assert (made.cuda, made.shape, made.nbytes, made.c_contiguous) == (True, (2, 3), 24, True)
    assert made.obj.ptr == tensor.data_ptr()
    assert gone() is not None
    del made
    gc.collect()
    assert gone() is None


def test_ucxx_moves_what_was_waited_for(ucxx, producer, torch, note):
    import asyncio

    received = torch.zeros(WORDS, device="cuda")

    async def moved() -> int:
        wrong, done = 0, asyncio.Event()

        async def serve(endpoint: Any) -> None:
            for _ in range(RUNS):
                await endpoint.recv(to_cai(received))
                await endpoint.send(to_cai(received))
            await endpoint.close()
            done.set()

        listener = ucxx.create_listener(serve)
        endpoint = await ucxx.create_endpoint("127.0.0.1", listener.port)
        back = torch.zeros(WORDS, device="cuda")
        for _ in range(RUNS):
            value = producer.late()
            with producer.cai() as sent:
                torch.cuda.ExternalStream(sent.stream).synchronize()
                await endpoint.send(sent)
            producer.write(-1.0)
            await endpoint.recv(to_cai(back))
            torch.cuda.synchronize()
            wrong += not bool((back == value).all())
        await done.wait()
        listener.close()
        return wrong

    wrong = asyncio.run(moved())
    note(f"ucxx there and back: wrong {wrong}/{RUNS}")
    assert wrong == 0


@pytest.fixture
def memory_class():
    """`examples/memory_class`, where ``make extensions`` installed it."""
    return pytest.importorskip("memory_class")


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1000,), (30, 40), (7, 30, 40), (2, 7, 3, 4)])
def test_the_memory_class_takes_every_type_from_both_sides(memory_class, torch, dtype, shape):
    wanted = np.random.default_rng(0).integers(-1000, 1000, shape).astype(dtype)
    turned = tuple(reversed(range(len(shape))))
    memory = memory_class.MemArray(list(shape), dtype)
    memory.assign(wanted)
    for device_type in (2, 1, 2):
        memory.move_memory(device_type)
        assert memory[(1,) * len(shape)] == wanted[(1,) * len(shape)]
    with memory.read() as view:
        assert (torch.from_dlpack(view).cpu().numpy() == wanted).all()
    given = torch.from_numpy(wanted + 1).cuda()
    if len(shape) < 4:  # F order: the transpose of what is C-contiguous
        given = given.permute(turned).contiguous().permute(turned)
    memory.assign(given)
    with memory.get_dlpack(1) as host:
        assert (np.from_dlpack(host) == wanted + 1).all()
