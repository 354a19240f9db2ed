"""`adapt(backward=)` with a real PyTorch, on CPUs: under its autograd and `torch.func`."""

import pytest

from cai_bridge import adapt

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")
func = torch.func

# PyTorch's own, of its first vmap.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

BY = 2.0


def cube(x, by):
    return by * x**3


def cubes_gradient(gradient, x, by):
    return 3 * by * gradient * x**2, None


def second(gradient, _by, first, x, by):
    return 3 * by * gradient * x**2, 6 * by * gradient * first * x, None


def both(x, by):
    return by * x, x**3


def boths_gradient(first, other, x, by):
    return by * first + 3 * other * x**2, None


once = adapt(cube, "numpy", backward=cubes_gradient)
twice = adapt(cube, "numpy", backward=adapt(cubes_gradient, "numpy", backward=second))
pair = adapt(both, "numpy", backward=boths_gradient)


@pytest.fixture
def x():
    return torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]], dtype=torch.float64)


def penalty(f):
    """Give the gradient of the squares of a function's gradient."""

    def of(x):
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(f(x, BY).sum(), x, create_graph=True)
        # The last part has a gradient of its own: what is lost of the first is lost silently.
        return torch.autograd.grad((gradient**2).sum() + x.sum(), x)[0]

    return of


TRANSFORMS = {
    "grad": lambda f: func.grad(lambda x: f(x, BY).sum()),
    "vmap": lambda f: func.vmap(lambda x: f(x, BY)),
    "vmap of the last": lambda f: func.vmap(lambda x: f(x, BY), in_dims=1, out_dims=1),
    "vmap twice": lambda f: func.vmap(func.vmap(lambda x: f(x, BY))),
    "vmap of grad": lambda f: func.vmap(func.grad(lambda x: f(x, BY).sum())),
    "jacrev": lambda f: func.jacrev(lambda x: f(x, BY)),
}
SECOND = {
    "penalty": penalty,
    "grad of grad": lambda f: func.grad(
        lambda x: func.grad(lambda x: f(x, BY).sum())(x).pow(2).sum()
    ),
    "jacrev of jacrev": lambda f: func.jacrev(func.jacrev(lambda x: f(x, BY).sum())),
}


def same(one, other):
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("transform", [*TRANSFORMS.values()], ids=[*TRANSFORMS])
@pytest.mark.parametrize("adapted", [once, twice], ids=["once", "twice"])
def test_torch_func_is_right(adapted, transform, x):
    same(transform(adapted)(x), transform(cube)(x))


@pytest.mark.parametrize("transform", [*SECOND.values()], ids=[*SECOND])
def test_a_second_derivative_is_right_or_an_error(transform, x):
    same(transform(twice)(x), transform(cube)(x))
    said = r"^backward: got a second derivative to compute; allowed: first ones"
    with pytest.raises(RuntimeError, match=said):
        transform(once)(x)


def test_a_graph_of_the_gradient_that_nobody_uses_is_no_error(x):
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(once(x, BY).sum(), x, create_graph=True)
    same(gradient.detach(), 3 * BY * x.detach() ** 2)
    assert gradient.requires_grad


def test_checks_of_pytorchs_own_pass(x):
    x = (x + 4.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: once(x, BY), x)
    assert torch.autograd.gradgradcheck(lambda x: twice(x, BY), x)


def test_each_of_two_results_counts(x):
    for transform in (
        lambda f: func.grad(lambda x: sum(part.sum() for part in f(x, BY))),
        lambda f: func.vmap(lambda x: f(x, BY)),
    ):
        same(transform(pair)(x), transform(both)(x))


def forward_mode(x):
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        return once(forward_ad.make_dual(x, x), BY)


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: func.jvp(lambda x: once(x, BY), (x,), (x,)),
        func.jacfwd(lambda x: once(x, BY)),
        func.hessian(lambda x: twice(x, BY).sum()),
        forward_mode,
    ],
    ids=["jvp", "jacfwd", "hessian", "forward_ad"],
)
def test_forward_mode_is_an_error(forward, x):
    with pytest.raises(NotImplementedError, match="must implement the jvp function"):
        forward(x)


@pytest.mark.parametrize("made", [lambda x: [x], lambda x: {"a": x}], ids=["list", "dict"])
def test_results_that_autograd_would_not_follow_are_refused(made, x):
    with pytest.raises(TypeError, match=r"^function: got one that returned a (list|dict); allowed"):
        adapt(made, "numpy", backward=lambda g, x: g)(x)


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"^vmap: got a batch of 0 items; allowed: 1 or more"):
        func.vmap(lambda x: once(x, BY))(torch.zeros(0, 3))


def test_tensors_on_the_host_are_numpys_arrays_for_numpy():
    import numpy as np

    seen = []

    def forward(x):
        seen.append((type(x), x.flags.writeable, x.ctypes.data))
        return np.broadcast_to(x.sum(), (2,))  # read-only, so it is copied

    f = adapt(forward, "numpy", backward=lambda g, x: np.full_like(x, g.sum()))
    x = torch.ones(3, requires_grad=True)
    made = f(x)
    made.sum().backward()
    assert seen == [(np.ndarray, False, x.data_ptr())]
    assert made.tolist() == [3.0, 3.0]
    assert x.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize("op", [None, "cai_test::doubled(Tensor x) -> Tensor"])
@pytest.mark.parametrize("lazy", [lambda z: z.conj(), lambda z: z.conj().imag], ids=["conj", "neg"])
def test_a_gradient_that_is_not_computed_yet_is_right(lazy, op):
    doubled = adapt(lambda x: x * 2, "numpy", op=op, backward=lambda g, x: g * 2)
    given = lazy(torch.tensor([1 + 2j, 3 - 1j]))
    assert given.is_conj() or given.is_neg()
    x = torch.ones_like(given).resolve_conj().requires_grad_()
    same(torch.autograd.grad(doubled(x), x, given)[0], given * 2)
