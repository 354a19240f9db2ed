"""`adapt(op=, like=, into=)`: kernels of other libraries in compiled programs and captured graphs.

Each producer's write is late, and the memory is overwritten right behind the call: what is not
ordered is seen in the values.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cai_bridge import adapt, convert, to_cai, to_dlpack

from . import libraries, streams
from .converting import LATE, LATE_MS, Place, Torch, place
from .streams import WORDS, blocks_for, handle_of

__all__ = ["place"]

RUNS = 100
FOLDER = Path(__file__).parents[2] / "docs" / "programs" / "compiled"
BY = 2.0
SCALE = "(Tensor x, float by) -> Tensor"
SOURCE = r"""
extern "C" __global__ void scale(const float* x, float* y, float by, int n)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}
"""


@pytest.fixture(autouse=True)
def one_compiler() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    inductor = pytest.importorskip("torch._inductor.config")
    before, inductor.compile_threads = inductor.compile_threads, 1
    yield
    inductor.compile_threads = before


def like(x: Any, by: Any) -> Any:
    return x


# kernels


def of_cupy(name: str, **how: Any) -> Any:
    """CuPy's kernel, on the stream that is current in CuPy, or on PyTorch's."""
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(SOURCE, "scale")

    @adapt(to="cupy", op=f"cai_gpu::{name}{SCALE}", like=like, into=True, **how)
    def scaled(x: Any, by: float, y: Any) -> None:
        kernel((blocks_for(x.size)[0],), (128,), (x, y, np.float32(by), np.int32(x.size)))

    return scaled


def of_cupy_returned(name: str) -> Any:
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(SOURCE, "scale")

    @adapt(to="cupy", op=f"cai_gpu::{name}_returned{SCALE}", like=like)
    def scaled(x: Any, by: float) -> Any:
        y = cupy.empty_like(x)
        kernel((blocks_for(x.size)[0],), (128,), (x, y, np.float32(by), np.int32(x.size)))
        return y

    return scaled


def of_numba(name: str) -> Any:
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit
    def kernel(x, y, by):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < x.size:
            y[i] = x[i] * by

    @adapt(to="numba", op=f"cai_gpu::{name}_numba{SCALE}", like=like, into=True)
    def scaled(x: Any, by: float, y: Any) -> None:
        kernel[blocks_for(x.size)](x, y, by)

    return scaled


def of_triton(name: str) -> Any:
    triton = pytest.importorskip("triton")
    kernel = triton.jit(_triton_scale)

    @adapt(to="torch", op=f"cai_gpu::{name}_triton{SCALE}", like=like, into=True)
    def scaled(x: Any, by: float, y: Any) -> None:
        kernel[(triton.cdiv(x.numel(), 128),)](x, y, by, x.numel(), BLOCK=128)

    return scaled


with contextlib.suppress(ImportError):
    import triton.language as tl


def _triton_scale(x, y, by, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * by, mask=at < n)


KERNELS: dict[str, Callable[[str], Any]] = {
    "cupy": of_cupy,
    "cupy returned": of_cupy_returned,
    "numba": of_numba,
    "triton": of_triton,
}


def wrong_of(one: Torch, program: Callable[[Any], Any], wanted: Callable[[float], float]) -> int:
    """Count the runs that saw anything but what was written late on a side stream."""
    with one.working():
        one.array.fill_(1.0)
        program(one.array)  # compiled here
    values, wrong = streams.fresh_values(), 0
    one.torch.cuda.synchronize()
    for _ in range(RUNS):
        value = float(next(values) % 1000 + 1)
        tensor = one.written(value)
        with one.working():
            one.out.copy_(program(tensor))
            tensor.fill_(LATE)
        wrong += not bool((one.seen() == wanted(value)).all())
    return wrong


# PyTorch


@pytest.mark.parametrize("backend", [None, "inductor"])
@pytest.mark.parametrize("library", [*KERNELS])
def test_a_late_producer_is_waited_for(
    library: str, backend: Any, place: Place, note: Callable[..., None]
) -> None:
    one, scaled = Torch(place), KERNELS[library]("order")

    def program(x: Any) -> Any:
        return scaled(x + 1.0, BY) + 3.0

    if backend:
        program = one.torch.compile(program, fullgraph=True, backend=backend)
    wrong = wrong_of(one, program, lambda value: (value + 1) * BY + 3)
    note(f"op= {library}, {backend or 'eager'}: {wrong} of {RUNS} wrong", wrong=wrong)
    assert wrong == 0


def test_a_gradient_of_cupys_is_right_in_a_compiled_program(place: Place, cupy: Any) -> None:
    one = Torch(place)
    torch = one.torch

    def backward(gradient: Any, x: Any, by: float) -> Any:
        return 3 * by * gradient * x * x, None

    cube = adapt(
        lambda x, by: by * x * x * x,
        "cupy",
        op=f"cai_gpu::cube{SCALE}",
        like=like,
        backward=backward,
    )
    program = torch.compile(lambda x: (cube(x.sin(), BY) * 2.0).sum(), fullgraph=True)
    with one.working():
        x = torch.rand(WORDS, device="cuda", requires_grad=True)
        y = x.detach().clone().requires_grad_()
        program(x).backward()
        ((BY * y.sin() ** 3) * 2.0).sum().backward()
    one.stream.synchronize()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("backend", [None, "inductor"])
def test_a_result_of_cupys_in_an_arguments_memory_is_refused(
    backend: Any, place: Place, cupy: Any
) -> None:
    torch = Torch(place).torch
    part = adapt(
        lambda x: x[1:],
        "cupy",
        op="cai_gpu::part(Tensor x) -> Tensor",
        like=lambda x: ((x.shape[0] - 1,), x.dtype),
    )

    def program(x: Any) -> Any:
        return part(x + 1.0) * 2.0

    if backend:
        program = torch.compile(program, fullgraph=True, backend=backend)
    with pytest.raises(BufferError, match="got memory of the argument x; allowed: memory of its"):
        program(torch.ones(WORDS, device="cuda"))


# CUDA graphs


def on_pytorchs_stream(place: Place, cupy: Any) -> Any:
    """CuPy's kernel on the stream that is current in PyTorch, as a capture needs it."""
    torch = pytest.importorskip("torch")
    kernel = cupy.RawKernel(SOURCE, "scale")
    # Compiled and loaded before the capture.
    kernel.compile()

    @adapt(
        to="cupy",
        op=f"cai_gpu::captured{SCALE}",
        like=like,
        into=True,
        stream=torch.cuda.current_stream,
    )
    def scaled(x: Any, by: float, y: Any) -> None:
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            kernel((blocks_for(x.size)[0],), (128,), (x, y, np.float32(by), np.int32(x.size)))

    return scaled


def test_a_captured_graph_is_right_at_each_replay(
    place: Place, cupy: Any, note: Callable[..., None]
) -> None:
    one = Torch(place)
    torch, scaled = one.torch, on_pytorchs_stream(place, cupy)
    with one.working():
        x = torch.ones(WORDS, device="cuda")
        scaled(x, BY)
        one.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=one.stream):
            y = scaled(x + 1.0, BY) + 3.0
    values, wrong = streams.fresh_values(), 0
    for _ in range(RUNS):
        value = float(next(values) % 1000 + 1)
        with one.working():
            place.driver.spin(handle_of(one.stream), LATE_MS)
            x.fill_(value)
            graph.replay()
            x.fill_(LATE)
            one.out.copy_(y)
        wrong += not bool((one.seen() == (value + 1) * BY + 3).all())
    note(f"into= in a captured graph: {wrong} of {RUNS} wrong", wrong=wrong)
    assert wrong == 0


@pytest.mark.parametrize("which", ["captured", "returned"])
def test_reduce_overhead_is_right(
    which: str, place: Place, cupy: Any, note: Callable[..., None]
) -> None:
    """PyTorch captures the one, and splits its graph at the other, whose memory is CuPy's."""
    one = Torch(place)
    scaled = (
        on_pytorchs_stream(place, cupy) if which == "captured" else of_cupy_returned("overhead")
    )
    program = one.torch.compile(
        lambda x: scaled(x + 1.0, BY) + 3.0, fullgraph=True, mode="reduce-overhead"
    )
    with one.working():
        for _ in range(3):
            program(one.array)
    wrong = wrong_of(one, program, lambda value: (value + 1) * BY + 3)
    note(f"reduce-overhead, {which}: {wrong} of {RUNS} wrong", wrong=wrong)
    assert wrong == 0


# JAX


@pytest.fixture
def jax() -> Any:
    jax = libraries.gpu_jax()
    pytest.importorskip("jax.experimental.buffer_callback")
    return jax


@pytest.mark.parametrize("library", [*KERNELS])
def test_a_program_of_jaxs_is_right(
    library: str, jax: Any, place: Place, note: Callable[..., None]
) -> None:
    scaled = KERNELS[library]("in_jax")
    delay = streams.jax_delay(LATE_MS)
    program = jax.jit(lambda x: scaled(x + 1.0, BY) + 3.0)
    values, wrong = streams.fresh_values(), 0
    jax.block_until_ready(program(delay(1)))
    for _ in range(RUNS):
        value = next(values) % 1000 + 1
        made = program(delay(value))
        wrong += not bool((np.asarray(made) == (value + 1.0) * BY + 3.0).all())
    note(f"jax.jit, {library}: {wrong} of {RUNS} wrong", wrong=wrong)
    assert wrong == 0


def test_xla_waits_for_a_functions_own_stream_and_it_for_xla(
    jax: Any, place: Place, cupy: Any, note: Callable[..., None]
) -> None:
    """The function's stream is non-blocking, and late: only an event at each end orders it."""
    kernel = cupy.RawKernel(SOURCE, "scale")
    own = cupy.cuda.Stream(non_blocking=True)

    @adapt(to="cupy", like=like, into=True, stream=own)
    def scaled(x: Any, by: float, y: Any) -> None:
        place.driver.spin(own.ptr, LATE_MS)
        with own:
            kernel((blocks_for(x.size)[0],), (128,), (x, y, np.float32(by), np.int32(x.size)))

    delay = streams.jax_delay(LATE_MS)
    # Twice: the second call reads what the first wrote, in memory that XLA uses again.
    program = jax.jit(lambda x: scaled(scaled(x + 1.0, BY) + 3.0, BY) + 5.0)
    values, wrong = streams.fresh_values(), 0
    for _ in range(RUNS):
        value = next(values) % 1000 + 1
        made = np.asarray(program(delay(value)))
        wrong += not bool((made == ((value + 1.0) * BY + 3.0) * BY + 5.0).all())
    note(f"jax.jit, a stream of its own: {wrong} of {RUNS} wrong", wrong=wrong)
    assert wrong == 0


def test_nothing_is_copied_and_what_is_kept_is_refused(jax: Any, cupy: Any, place: Place) -> None:
    seen: list[Any] = []

    @adapt(to="cupy", like=lambda x: x, into=True)
    def noted(x: Any, y: Any) -> None:
        seen.append((x.data.ptr, y.data.ptr))
        y[...] = x

    x = jax.block_until_ready(jax.device_put(np.ones(WORDS, np.float32), jax.devices("gpu")[0]))
    made = jax.block_until_ready(jax.jit(noted)(x))
    assert seen == [(x.unsafe_buffer_pointer(), made.unsafe_buffer_pointer())]
    assert (np.asarray(made) == 1.0).all()

    @adapt(to="cupy", like=lambda x: x, into=True)
    def keeps(x: Any, y: Any) -> None:
        seen.append(x[1:])
        y[...] = x

    try:
        with pytest.raises(Exception, match="keeps: got one that kept its array 0"):
            jax.block_until_ready(jax.jit(keeps)(x))
    finally:
        seen.clear()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int8", "bool"])
def test_jaxs_other_types_reach_pytorch(dtype: str, jax: Any, place: Place) -> None:
    torch = pytest.importorskip("torch")

    @adapt(to="torch", like=lambda x: x, into=True)
    def copied(x: Any, y: Any) -> None:
        assert str(x.dtype) == f"torch.{dtype}"
        y.copy_(x)

    host = (np.arange(64) % 2).astype(np.float32)
    with jax.default_device(jax.devices("gpu")[0]):
        x = jax.numpy.asarray(host).astype(dtype)
        made = jax.jit(copied)(x)
    assert (np.asarray(made.astype("float32")) == host).all()
    assert torch.cuda.is_available()


# without op=


def doubled(case: str) -> Callable[[Any], Any]:
    """Twice a tensor, by CuPy, in a program that has no operator for it."""
    if case == "convert":
        return lambda x: convert(convert(x, "cupy") * 2, "torch")
    if case == "a tree":
        return lambda x: convert({"a": convert({"a": [x, 3]}, "cupy")["a"][0] * 2}, "torch")["a"]
    backward = (lambda gradient, x: gradient * 2) if case == "backward=" else None
    return adapt(lambda x: x * 2, "cupy", backward=backward)


@pytest.mark.parametrize("case", ["convert", "a tree", "adapt", "backward="])
def test_without_an_operator_the_graph_breaks_and_is_right(
    case: str, place: Place, cupy: Any
) -> None:
    one = Torch(place)
    torch, inner = one.torch, doubled(case)
    program = torch.compile(lambda x: inner(x.sin()) + 1)
    with one.working():
        x = torch.rand(WORDS, device="cuda")
        seen = program(x)
    torch.cuda.synchronize()
    torch.testing.assert_close(seen, x.sin() * 2 + 1)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(lambda x: inner(x.sin()) + 1, fullgraph=True)(x)


# The programs of the pages.


@pytest.mark.parametrize("program", ["torch", "graph", "jax"])
def test_a_program_of_a_page_prints_what_the_page_shows(program: str, driver: Any) -> None:
    pytest.importorskip("cupy")
    pytest.importorskip("jax" if program == "jax" else "torch")
    done = subprocess.run(
        [sys.executable, FOLDER / f"{program}_cupy.py"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (FOLDER / f"{program}.txt").read_text("utf-8")


# A line for each of the other compilers (docs/compiled.md).


def test_numba_launches_on_a_stream_of_its_own(place: Place) -> None:
    one = Torch(place)
    cuda = pytest.importorskip("numba.cuda")
    _, kernel = streams.numba_kernels()
    own, out = cuda.stream(), cuda.device_array(WORDS, dtype=np.float32)
    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        tensor = one.written(value)
        with one.working():
            with to_cai(tensor, stream=own) as view:
                kernel[(*blocks_for(WORDS), own)](view, out)
            tensor.fill_(LATE)
        own.synchronize()
        assert (out.copy_to_host() == value).all()


def test_warp_takes_part_in_a_capture(place: Place) -> None:
    one = Torch(place)
    warp, torch = pytest.importorskip("warp"), one.torch
    warp.init()
    double = warp.kernel(_warp_double)
    x = torch.ones(WORDS, device="cuda")
    own = warp.Stream("cuda:0")

    def step() -> None:
        y = convert(x, "warp", stream=own)
        with warp.ScopedStream(own, sync_enter=False):
            warp.launch(double, dim=WORDS, inputs=[y])
        del y
        x.add_(1.0)

    with one.working():
        step()
        one.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=one.stream):
            step()
    for value in range(1, 11):
        with one.working():
            x.fill_(float(value))
            graph.replay()
        one.stream.synchronize()
        assert (x == 2.0 * value + 1.0).all()


with contextlib.suppress(ImportError):
    import warp as wp

    def _warp_double(x: wp.array(dtype=wp.float32)):  # type: ignore[no-untyped-def, valid-type]
        i = wp.tid()
        x[i] = 2.0 * x[i]


def test_triton_takes_a_tensor_over_another_librarys_array(place: Place, cupy: Any) -> None:
    """Its launcher takes what has `data_ptr()`, on PyTorch's current stream."""
    torch, triton = Torch(place).torch, pytest.importorskip("triton")
    kernel, own = triton.jit(_triton_scale), cupy.cuda.Stream(non_blocking=True)
    x, y = cupy.zeros(WORDS, np.float32), torch.zeros(WORDS, device="cuda")
    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        streams.cupy_writes_late(x, value, own, LATE_MS)
        with own:
            taken = convert(x, "torch")
        kernel[(triton.cdiv(WORDS, 128),)](taken, y, BY, WORDS, BLOCK=128)
        with own:
            del taken
            x.fill(LATE)
        assert (y == BY * value).all()


def test_cute_takes_a_view_that_is_ready_on_the_kernels_stream(place: Place, cupy: Any) -> None:
    """CuTe DSL's ``from_dlpack`` asks for a capsule with stream -1; CuPy stands for its kernel."""
    one, own = Torch(place), cupy.cuda.Stream(non_blocking=True)
    out = cupy.zeros(WORDS, np.float32)
    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        tensor = one.written(value)
        with one.working():
            with to_dlpack(tensor, stream=own) as view:
                capsule = view.__dlpack__(stream=-1)
                with own:
                    place.driver.spin(own.ptr, LATE_MS)
                    memory = cupy.cuda.UnownedMemory(view.ptr, view.nbytes, capsule, 0)
                    out[...] = cupy.ndarray(WORDS, np.float32, cupy.cuda.MemoryPointer(memory, 0))
                del memory, capsule
            tensor.fill_(LATE)
        assert (cupy.asnumpy(out, stream=own) == value).all()


# cost


def per_call_us(call: Callable[[], Any], synchronize: Callable[[], Any], calls: int = 300) -> float:
    best = float("inf")
    for _ in range(7):
        synchronize()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter_ns() - start) / calls / 1e3)
        synchronize()
    return best


@pytest.mark.alone
def test_what_a_call_costs_beside_one_by_hand(
    place: Place, cupy: Any, note: Callable[..., None]
) -> None:
    one = Torch(place)
    torch = one.torch
    kernel = cupy.RawKernel(SOURCE, "scale")
    scaled, returned = of_cupy("cost"), of_cupy_returned("cost")

    @torch.library.custom_op("cai_gpu::by_hand", mutates_args=())
    def by_hand(x: torch.Tensor, by: float) -> torch.Tensor:
        y = torch.empty_like(x)
        a, b = convert(x, "cupy"), convert(y, "cupy")
        kernel((blocks_for(a.size)[0],), (128,), (a, b, np.float32(by), np.int32(a.size)))
        return y

    by_hand.register_fake(lambda x, by: torch.empty_like(x))
    plain = adapt(
        lambda x, by, y: kernel(
            (blocks_for(x.size)[0],), (128,), (x, y, np.float32(by), np.int32(x.size))
        ),
        "cupy",
    )
    x, y, synchronize = one.array, torch.empty_like(one.array), torch.cuda.synchronize
    took: dict[str, float] = {}
    for name, f in (("by hand", by_hand), ("op= into=", scaled), ("op= returned", returned)):
        took[name] = per_call_us(lambda f=f: f(x, BY), synchronize)
        torch._dynamo.reset()
        program = torch.compile(lambda x, f=f: f(x, BY), fullgraph=True)
        program(x)
        took[f"{name}, compiled"] = per_call_us(lambda p=program: p(x), synchronize)
    took["adapt alone"] = per_call_us(lambda: plain(x, BY, y), synchronize)
    for name, us in took.items():
        note(f"cost of a call, {name}: {us:.1f} us", **{name: round(us, 1)})
    assert took["op= into="] < took["by hand"] + 40.0, took


@pytest.mark.alone
def test_what_a_call_from_jax_costs(jax: Any, place: Place, note: Callable[..., None]) -> None:
    scaled = KERNELS["cupy"]("jax_cost")
    x = jax.device_put(np.ones(WORDS, np.float32), jax.devices("gpu")[0])
    for name, f in (("like= into=", scaled), ("XLA alone", lambda x, by: x * by)):
        program = jax.jit(lambda x, f=f: f(x, BY))
        jax.block_until_ready(program(x))
        us = per_call_us(lambda p=program: jax.block_until_ready(p(x)), lambda: None, 100)
        note(f"jax.jit, {name}: {us:.1f} us with its wait", **{name: round(us, 1)})
        assert us < 5000.0
