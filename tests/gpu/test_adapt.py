"""`adapt` between the libraries themselves: kernels, streams and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cai_bridge import adapt

from . import streams
from .converting import LATE, LATE_MS, RUNS, Cupy, Torch
from .kernels import SOURCE
from .streams import WORDS, handle_of


def test_a_raw_kernel_of_cupy_works_on_tensors(place, cupy):
    one = Torch(place)
    kernel = cupy.RawKernel(SOURCE, "scale")

    @adapt(to="cupy")
    def scaled(x: Any, by: float) -> Any:
        y = cupy.empty_like(x)
        kernel(streams.blocks_for(x.size)[:1], (128,), (x, y, np.float32(by), np.int32(x.size)))
        return y

    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        tensor = one.written(value)
        with one.working():
            made = scaled(tensor, 2.0)
            assert type(made) is one.torch.Tensor
            one.out.copy_(made)
            tensor.fill_(LATE)
        assert (one.seen() == 2.0 * value).all()


def test_a_kernel_of_numba_works_on_tensors(place):
    one = Torch(place)
    pytest.importorskip("numba.cuda")
    _, kernel = streams.numba_kernels()

    @adapt(to="numba")
    def copied(x: Any, y: Any) -> None:
        kernel[streams.blocks_for(x.size)](x, y)

    values = streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        tensor = one.written(value)
        with one.working():
            copied(tensor, one.out)
            tensor.fill_(LATE)
        assert (one.seen() == value).all()


def test_the_functions_stream_is_asked_for_at_each_call(place, cupy):
    one, other = Torch(place), Cupy(place)
    asked = []

    @adapt(to="cupy", stream=lambda: asked.append(1) or other.stream)
    def copied(x: Any) -> None:
        other.read(x)

    for _ in range(3):
        value = float(next(streams.fresh_values()))
        tensor = one.written(value)
        with one.working():
            copied(tensor)
            tensor.fill_(LATE)
        assert (other.seen() == value).all()
    assert len(asked) == 3


def test_gradients_of_cupys_functions_are_right(driver, torch, cupy):
    def forward(x: Any, power: int, y: Any) -> Any:
        return x**power * y

    def backward(gradient: Any, x: Any, power: int, y: Any) -> Any:
        assert all(isinstance(one, cupy.ndarray) for one in (gradient, x, y))
        return gradient * power * x ** (power - 1) * y, None, gradient * x**power

    function = adapt(forward, "cupy", backward=backward)
    random = [torch.rand(3, 4, dtype=torch.float64, device="cuda") + 0.5 for _ in range(2)]
    inputs = [one.requires_grad_() for one in random]
    assert torch.autograd.gradcheck(lambda x, y: function(x, 3, y), inputs)
    result = function(inputs[0], 3, inputs[1])
    assert torch.allclose(result, inputs[0] ** 3 * inputs[1])
    assert result.requires_grad


def test_gradients_are_in_order_on_a_side_stream(driver, torch, cupy):
    function = adapt(lambda x: x * x, "cupy", backward=lambda gradient, x: 2 * gradient * x)
    side, values = torch.cuda.Stream(), streams.fresh_values()
    for _ in range(RUNS):
        value = float(next(values))
        x = torch.zeros(WORDS, dtype=torch.float64, device="cuda")
        driver.synchronize()
        with torch.cuda.stream(side):
            driver.spin(handle_of(side), LATE_MS)
            x.fill_(value)
            x.requires_grad_()
            function(x).sum().backward()
            seen = x.grad.clone()
        side.synchronize()
        assert (seen.cpu() == 2 * value).all()


def test_gradients_are_not_differentiated_again(driver, torch, cupy):
    function = adapt(lambda x: x * x, "cupy", backward=lambda gradient, x: 2 * gradient * x)
    x = torch.ones(3, dtype=torch.float64, device="cuda", requires_grad=True)
    seed = torch.ones(3, dtype=torch.float64, device="cuda", requires_grad=True)
    (gradient,) = torch.autograd.grad(function(x), x, seed, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative to compute"):
        gradient.sum().backward()
