"""Train with a function that is written for another library's arrays.

On a GPU with torch and CuPy: an activation in CuPy, and its gradient, in PyTorch's autograd. Else
on the simulated device: a registered library reads a model's parameters during training. Prints
which device it uses. Nothing is copied, and the host does not wait during training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cai_bridge import CaiView, Library, adapt, register

STEPS = 30


def on_gpu(torch: Any, cupy: Any) -> None:
    """Learn the slope of a leaky ReLU, on a side stream of torch."""
    leaky = cupy.ElementwiseKernel("T x, T slope", "T y", "y = x > 0 ? x : slope * x", "leaky")

    def forward(x: Any, slope: Any) -> Any:
        return leaky(x, slope)

    def backward(gradient: Any, x: Any, slope: Any) -> Any:
        below = gradient * (x <= 0)
        return gradient - below + slope * below, (below * x).sum()

    activation = adapt(forward, to="cupy", backward=backward)
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.randn(1 << 16, device="cuda")
        wanted = torch.nn.functional.leaky_relu(x, 0.25)
        slope = torch.tensor(0.9, device="cuda", requires_grad=True)
        descent = torch.optim.SGD([slope], lr=0.5)
        for _ in range(STEPS):
            descent.zero_grad()
            loss = (activation(x, slope) - wanted).square().mean()
            loss.backward()
            descent.step()
        print(f"slope after {STEPS} steps: {slope.item():.4f}, loss {loss.item():.2e}")
        assert abs(slope.item() - 0.25) < 1e-3


class Array:
    """An array of the toy library. It keeps the view, and so the memory."""

    def __init__(self, view: Any, stream: Any) -> None:
        self.view, self.stream = view, stream

    def read(self) -> Any:
        """Queue a read."""
        return self.stream.read(self.view)


class Toy(Library):
    """The toy library for the bridge: its array type, its stream, and how to make an array."""

    name = "toy"
    arrays = (f"{__name__}:Array",)
    view = CaiView

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def current_stream(self, device: int) -> Any:  # noqa: ARG002
        """Return the library's only stream."""
        return self.stream

    def make(self, view: Any, stream: Any) -> Array:
        """Make an array that is ready on `stream`."""
        return Array(view, stream)


def simulated() -> None:
    """Read the parameters in each step, while the optimizer goes on writing to them."""
    from cai_bridge.testing import simulated_cuda

    with simulated_cuda() as cuda:  # raises an error at the end if there is a race
        theirs, ours = cuda.stream("the optimizer's"), cuda.stream("the toy library's")
        register(Toy(ours))
        parameters = {
            "weight": cuda.array([0.0] * 4, speaks="exchange", name="weight"),
            "bias": cuda.array([0.0], speaks="exchange", name="bias"),
        }

        @adapt(to="toy")
        def look(parameters: dict[str, Array]) -> dict[str, Any]:
            return {name: one.read() for name, one in parameters.items()}

        seen = []
        with cuda.current_stream(theirs):
            for step in range(3):
                for parameter in parameters.values():
                    theirs.fill(parameter, float(step), name="the optimizer's step")
                seen.append(look(parameters))
            cuda.synchronize()
        for step, looks in enumerate(seen):
            print(f"step {step}:", {name: one.value for name, one in looks.items()})
            assert looks["weight"].value == [float(step)] * 4
            assert looks["bias"].value == [float(step)]
        waits = sum(one.call == "cuStreamWaitEvent" for one in cuda.calls)
        print(f"{waits} waits between streams, none by the host")


def find() -> tuple[str, Callable[[], None]]:
    """Choose a GPU with torch and CuPy, else the simulated device."""
    try:
        import cupy
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name(), lambda: on_gpu(torch, cupy)
    except ImportError:
        pass
    return "the simulated device", simulated


if __name__ == "__main__":
    where, train = find()
    print(f"cai_bridge on {where}")
    train()
