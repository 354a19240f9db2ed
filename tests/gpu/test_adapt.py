"""Gradients of CuPy's functions in PyTorch, by `adapt`; its kernels are in test_compiled.py."""

from __future__ import annotations

from typing import Any

import pytest

from cai_bridge import adapt

from . import streams
from .converting import LATE_MS, RUNS
from .streams import WORDS, handle_of


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
