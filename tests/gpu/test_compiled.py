"""`adapt(op=, into=)` in `torch.compile`: kernels of other libraries, in order and checked.

Each producer's write is late, and the memory is overwritten right behind the call: what is not
ordered is seen in the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from cai_bridge import adapt, convert

from . import compiled_cost, streams
from .converting import LATE, Place, Torch
from .kernels import (
    BY,
    KERNELS,
    RUNS,
    SCALE,
    WRITING,
    cupys_kernel,
    like,
    of_cupy_returned,
)
from .streams import WORDS

MOST_US = 15.0
TRIES = 3
"""What a call may take more than one of an operator that is written by hand."""


@pytest.fixture(autouse=True)
def one_compiler():
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    inductor = pytest.importorskip("torch._inductor.config")
    before, inductor.compile_threads = inductor.compile_threads, 1
    yield
    inductor.compile_threads = before


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


@pytest.mark.parametrize("backend", [None, "inductor"])
@pytest.mark.parametrize("library", [*KERNELS, *WRITING])
def test_a_late_producer_is_waited_for(library, backend, place, note):
    one, scaled = Torch(place), (KERNELS | WRITING)[library]("order")

    def program(x: Any) -> Any:
        return scaled(x + 1.0, BY) + 3.0

    if backend:
        program = one.torch.compile(program, fullgraph=True, backend=backend)
    wrong = wrong_of(one, program, lambda value: (value + 1) * BY + 3)
    note(f"op= {library}, {backend or 'eager'}: {wrong} of {RUNS} wrong")
    assert wrong == 0


def test_a_gradient_of_cupys_is_right_in_a_compiled_program(place, cupy):
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


def on_pytorchs_stream(place: Place, cupy: Any) -> Any:
    """CuPy's kernel on the stream that is current in PyTorch, as a capture needs it."""
    torch, scale = pytest.importorskip("torch"), cupys_kernel()

    @adapt(
        to="cupy",
        op=f"cai_gpu::captured{SCALE}",
        like=like,
        into=True,
        stream=torch.cuda.current_stream,
    )
    def scaled(x: Any, by: float, y: Any) -> None:
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            scale(x, by, y)

    return scaled


@pytest.mark.parametrize("which", ["captured", "returned"])
def test_reduce_overhead_is_right(which, place, cupy, note):
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
    note(f"reduce-overhead, {which}: {wrong} of {RUNS} wrong")
    assert wrong == 0


def doubled(case: str) -> Callable[[Any], Any]:
    """Twice a tensor, by CuPy, in a program that has no operator for it."""
    if case == "convert":
        return lambda x: convert(convert(x, "cupy") * 2, "torch")
    if case == "a tree":
        return lambda x: convert({"a": convert({"a": [x, 3]}, "cupy")["a"][0] * 2}, "torch")["a"]
    backward = (lambda gradient, x: gradient * 2) if case == "backward=" else None
    return adapt(lambda x: x * 2, "cupy", backward=backward)


@pytest.mark.parametrize("case", ["convert", "a tree", "adapt", "backward="])
def test_without_an_operator_the_graph_breaks_and_is_right(case, place, cupy):
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


@pytest.mark.alone
def test_a_call_costs_little_more_than_one_by_hand(place, cupy, note):
    """Plain calls, and those of compiled programs, in microseconds of the thread's own time."""
    more: dict[str, float] = {}
    for turn in range(TRIES):
        found = compiled_cost.measured("cuda", f"test_{turn}", rounds=9)
        for what, took in found.items():
            note(f"cost of a call, {what}: {took['ours']:.1f}, by hand {took['by hand']:.1f}")
        for what, took in found.items():
            if "func" not in what:
                # A busy host only adds to it.
                more[what] = min(took["ours"] - took["by hand"], more.get(what, math.inf))
        if max(more.values()) <= MOST_US:
            break
    assert max(more.values()) <= MOST_US, more
