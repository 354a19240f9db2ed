"""`adapt(like=)` with a real JAX, on CPUs: functions of another library inside `jax.jit`."""

import numpy as np
import pytest

from cai_bridge import adapt

jax = pytest.importorskip("jax", reason="JAX is not installed: make test-clients installs it")
jnp = jax.numpy

BY = 2.0


def cube(x, by):
    return by * x**3


def like_x(x, *_):
    return x


def cubes_gradient(gradient, x, by):
    return 3 * by * gradient * x**2, None


returned = adapt(cube, "numpy", like=like_x, backward=cubes_gradient)


@adapt(to="numpy", like=like_x, into=True, backward=cubes_gradient)
def written(x, by, y):
    np.multiply(by, x**3, out=y)


first = adapt(
    lambda gradient, x, by: 3 * by * gradient * x**2,
    "numpy",
    like=lambda gradient, x, by: x,
    backward=lambda over, gradient, x, by: (
        3 * by * over * x**2,
        6 * by * over * gradient * x,
        None,
    ),
)
twice = adapt(cube, "numpy", backward=first, like=like_x)


@pytest.fixture(autouse=True)
def on_the_cpu():
    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(True):
        yield


@pytest.fixture
def x():
    return jnp.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]])


def same(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), one, other)


WHAT = {
    "call": lambda f: lambda x: f(x, BY),
    "jit": lambda f: jax.jit(lambda x: jnp.cos(f(jnp.sin(x), BY))),
    "grad": lambda f: jax.grad(lambda x: f(jnp.sin(x), BY).sum()),
    "jit of grad": lambda f: jax.jit(jax.grad(lambda x: f(jnp.sin(x), BY).sum())),
    "vmap": lambda f: jax.vmap(lambda x: f(x, BY), in_axes=1),
    "vmap of grad": lambda f: jax.vmap(jax.grad(lambda x: f(x, BY).sum())),
    "jacrev": lambda f: jax.jacrev(lambda x: f(x, BY)),
    "scan": lambda f: lambda x: jax.lax.scan(lambda sum_, row: (sum_ + f(row, BY), row), x[0], x),
    "remat": lambda f: jax.grad(lambda x: jax.checkpoint(lambda x: f(x, BY))(x).sum()),
    "donated": lambda f: lambda x: jax.jit(lambda x: f(x, BY), donate_argnums=0)(x + 0),
    "by name": lambda f: jax.jit(lambda x: f(x, by=BY)),
    "no elements": lambda f: lambda x: f(x[:0], BY),
}


@pytest.mark.parametrize("what", [*WHAT])
@pytest.mark.parametrize("adapted", [returned, written], ids=["returns", "into"])
def test_a_compiled_program_is_right(adapted, what, x):
    same(WHAT[what](adapted)(x), WHAT[what](cube)(x))


def test_a_second_derivative_is_right_or_an_error(x):
    def squares(f):
        return jax.grad(lambda x: (jax.grad(lambda x: f(x, BY).sum())(x) ** 2).sum())

    same(squares(twice)(x), squares(cube)(x))
    with pytest.raises(ValueError, match="do not support JVP"):
        squares(returned)(x)


def test_forward_mode_and_a_gradient_without_a_backward_are_errors(x):
    with pytest.raises(TypeError, match=r"forward-mode .* custom_vjp"):
        jax.jvp(lambda x: returned(x, BY), (x,), (x,))
    plain = adapt(cube, "numpy", like=like_x)
    with pytest.raises(ValueError, match="do not support JVP"):
        jax.grad(lambda x: plain(x, BY).sum())(x)


def test_a_program_belongs_to_its_process(x):
    with pytest.raises(NotImplementedError, match="callback"):
        jax.export.export(jax.jit(lambda x: returned(x, BY)))(x).serialize()


def test_other_types_and_numpys_arrays(x):
    add = adapt(lambda x, y: x + y, "numpy", like=like_x)
    same(jax.jit(lambda x: add(x, np.ones((2, 3))))(x), x + 1)
    for dtype in ("bfloat16", "float8_e4m3fn", "int8", "complex64", "bool"):
        small = x.astype(dtype)
        made = add(small, small)
        assert made.dtype == dtype
        same(*(one.astype("complex64") for one in (made, small + small)))


def test_nothing_is_copied(x):
    seen = []

    @adapt(to="numpy", like=like_x, into=True)
    def noted(x, y):
        seen.append((x.ctypes.data, x.flags.writeable, y.ctypes.data, y.flags.writeable))
        y[...] = x

    made = jax.jit(noted)(x)
    assert seen == [(x.unsafe_buffer_pointer(), False, made.unsafe_buffer_pointer(), True)]


def test_several_results_integers_and_zeros(x):
    f = adapt(
        lambda x, at: (x[at], at * 2),
        "numpy",
        like=lambda x, at: ((at.shape + x.shape[1:], x.dtype), at),
        backward=lambda g, _, x, at: (np.eye(len(x))[at].T @ g, None),
    )
    at = jnp.array([1, 1, 0])
    same(jax.jit(f)(x, at), (x[at], at * 2))
    same(jax.grad(lambda x: (f(x, at)[0] ** 2).sum())(x), jax.grad(lambda x: (x[at] ** 2).sum())(x))
    zero = adapt(lambda x: x * 0 + 1, "numpy", like=like_x, backward=lambda g, x: None)
    same(jax.grad(lambda x: zero(x).sum())(x), x * 0)


KEPT = []
KEEPING = {
    "the argument": lambda x, y: KEPT.append(x),
    "a part of it": lambda x, y: KEPT.append(x[1:][:, ::-1].T),
    "the result": lambda x, y: KEPT.append(y),
    "a tensor of it": lambda x, y: KEPT.append(np.from_dlpack(y)),
}


@pytest.mark.parametrize("case", [*KEEPING])
def test_who_keeps_what_is_xlas_is_refused(case, x):
    def keeps(x, y):
        y[...] = x
        KEEPING[case](x, y)

    f = adapt(keeps, "numpy", like=like_x, into=True)
    named = "array 0" if "argument" in case or "part" in case else "result 0"
    try:
        with pytest.raises(
            jax.errors.JaxRuntimeError, match=f"keeps: got one that kept its {named}"
        ):
            jax.block_until_ready(jax.jit(f)(x))
    finally:
        KEPT.clear()


def test_a_cycle_that_is_garbage_keeps_nothing(x):
    def around(x):
        cycle = [x]
        cycle.append(cycle)
        return x + 1

    same(adapt(around, "numpy", like=like_x)(x), x + 1)


WRONG = {
    "shape": (lambda x: x[:1], r"result 0: got float64 \(1, 3\); allowed: float64 \(2, 3\)"),
    "dtype": (lambda x: x.astype("f4"), r"result 0: got float32 \(2, 3\); allowed: float64"),
    "none": (lambda x: None, r"result 0: got None; allowed: float64 \(2, 3\), .*; or into=True"),
    "two": (lambda x: (x, x), "got 2 results; allowed: 1, as like= says"),
    "a write": (lambda x: x.fill(1), "read-only"),
    "its own": (lambda x: 1 / 0, "division by zero"),
}


@pytest.mark.parametrize("case", [*WRONG])
def test_what_goes_wrong_in_a_call_is_said(case, x):
    function, said = WRONG[case]
    f = adapt(function, "numpy", like=like_x)
    with pytest.raises(jax.errors.JaxRuntimeError, match=said):
        jax.block_until_ready(jax.jit(f)(x))


def test_what_cannot_be_traced_is_refused(x):
    two = adapt(lambda g, x, by: (g, g), "numpy", like=lambda g, x, by: (x, x))
    with pytest.raises(ValueError, match=r"^to: got 'jax' for a function in"):
        adapt(cube, "jax", like=like_x)(x, BY)
    with pytest.raises(TypeError, match=r"^like: got one that returned 3"):
        adapt(cube, "numpy", like=lambda x, by: 3)(x, BY)
    f = adapt(cube, "numpy", like=like_x, backward=two)
    with pytest.raises(ValueError, match=r"^backward: got 2 gradients; allowed: 1, of the arrays"):
        jax.grad(lambda x: f(x, BY).sum())(x)


def test_the_same_function_is_an_operator_of_pytorchs(x):
    torch = pytest.importorskip("torch", reason="make test-clients installs it")
    f = adapt(cube, "numpy", op="cai_test::of_both(Tensor x, float by) -> Tensor")
    same(jax.jit(lambda x: f(x, BY))(x), cube(x, BY))
    assert torch.equal(f(torch.ones(2), BY), torch.full((2,), BY))
    leaf = torch.ones(3, requires_grad=True)
    returned(leaf, BY).sum().backward()
    assert leaf.grad.tolist() == [3 * BY] * 3
    op = "cai_test::adds_(Tensor(a!) x, Tensor y) -> ()"
    adds = adapt(lambda x, y: np.add(x, y, out=x) and None, "numpy", op=op)
    with pytest.raises(ValueError, match=r"^op: got a function that writes its arguments, for JAX"):
        adds(x, x)
    op = "cai_test::jaxs(Tensor x, Tensor y) -> Tensor"
    guessed = adapt(lambda x, y, out: None, "numpy", op=op, into=True)
    with pytest.raises(ValueError, match=r"like: got None with into=True, .*: argument 0 has"):
        guessed(x, x[0])


def test_calls_outside_jit_are_compiled_once_for_each_plain_argument(x):
    traced = []

    def like(x, by):
        traced.append(by)
        return x

    f = adapt(cube, "numpy", like=like)
    for by in (1, True, 1.0, 1, True):
        same(f(x, by), cube(x, by))
    assert [*map(type, traced)] == [int, bool, float]
