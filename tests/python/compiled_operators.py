"""Operators that the tests of `adapt(op=)` share, and what they compare them by.

NumPy stands for a library of arrays on a GPU: its arrays are over the tensors' memory.
"""

import numpy as np
import pytest
from test_gradients import both, boths_gradient, cube, cubes_gradient

from cai_bridge import adapt

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")

# PyTorch's own, of what it imports at first use.
MARKS = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning"),
]

BACKENDS = ["eager", "aot_eager", "inductor"]
CUBE = "(Tensor x, float by=2.0) -> Tensor"
made = adapt(cube, "numpy", op=f"cai_test::cube{CUBE}", backward=cubes_gradient)


def second(of_gradient, gradient, x, by):
    return 3 * by * of_gradient * x**2, 6 * by * of_gradient * gradient * x


second_op = adapt(
    second,
    "numpy",
    op="cai_test::second(Tensor gg, Tensor g, Tensor x, float by) -> (Tensor, Tensor)",
    like=lambda gg, g, x, by: (g, x),
)
first_op = adapt(
    lambda gradient, x, by: 3 * by * gradient * x**2,
    "numpy",
    op="cai_test::first(Tensor g, Tensor x, float by) -> Tensor",
    backward=second_op,
)
made_twice = adapt(cube, "numpy", op=f"cai_test::cube2{CUBE}", backward=first_op)
made_pair = adapt(
    both,
    "numpy",
    op="cai_test::both(Tensor x, float by) -> (Tensor, Tensor)",
    like=lambda x, by: (x, x),
    backward=boths_gradient,
)


@adapt(to="numpy", op=f"cai_test::into{CUBE}", into=True, backward=cubes_gradient)
def written(x, by, y):
    np.multiply(by, x**3, out=y)


@adapt(to="numpy", op="cai_test::add_(Tensor(a!) x, Tensor y) -> ()")
def add_(x, y):
    x += y


@pytest.fixture(autouse=True)
def nothing_is_compiled():
    torch._dynamo.reset()


def compiled(f, backend, **how):
    return torch.compile(f, backend=backend, fullgraph=True, **how)


def around(f):
    """Work of PyTorch's before and behind, which a compiler would fuse."""
    return lambda x: (f(x.sin() + 1.0, 2.0) * 3.0).cos()


def gradient(f, x):
    x = x.detach().clone().requires_grad_()
    f(x).sum().backward()
    return x.grad
