"""`adapt(op=)` with a real PyTorch, on CPUs: in its compilers, `torch.func` and export.

NumPy stands for a library of arrays on a GPU: its arrays are over the tensors' memory.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_gradients import SECOND, TRANSFORMS, both, boths_gradient, cube, cubes_gradient

from cai_bridge import adapt, convert

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")
func = torch.func

# PyTorch's own, of what it imports at first use.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin:UserWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning"),
]

BACKENDS = ["eager", "aot_eager", "inductor"]
CUBE = "(Tensor x, float by=2.0) -> Tensor"
made = adapt(cube, "numpy", op=f"cai_test::cube{CUBE}", backward=cubes_gradient)


def second(of_gradient: Any, gradient: Any, x: Any, by: float) -> Any:
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
def written(x: Any, by: float, y: Any) -> None:
    np.multiply(by, x**3, out=y)


@adapt(to="numpy", op="cai_test::add_(Tensor(a!) x, Tensor y) -> ()")
def add_(x: Any, y: Any) -> None:
    x += y


@pytest.fixture(autouse=True)
def nothing_is_compiled() -> None:
    torch._dynamo.reset()


@pytest.fixture
def x() -> Any:
    return torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]], dtype=torch.float64)


def same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other)


def compiled(f: Callable[..., Any], backend: str, **how: Any) -> Callable[..., Any]:
    return torch.compile(f, backend=backend, fullgraph=True, **how)


def around(f: Callable[..., Any]) -> Callable[..., Any]:
    """Work of PyTorch's before and behind, which a compiler would fuse."""
    return lambda x: (f(x.sin() + 1.0, 2.0) * 3.0).cos()


def gradient(f: Callable[..., Any], x: Any) -> Any:
    x = x.detach().clone().requires_grad_()
    f(x).sum().backward()
    return x.grad


WHAT: dict[str, Callable[..., Any]] = {
    "value": lambda c, f, x: c(around(f))(x),
    "gradient": lambda c, f, x: gradient(c(around(f)), x),
    "transposed": lambda c, f, x: c(around(f))(x.t()),
    "every second": lambda c, f, x: gradient(c(around(f)), x[:, ::2]),
    "dynamic": lambda c, f, x: [c(around(f), dynamic=True)(x[:, :n]) for n in (1, 2, 3)],
    "float32": lambda c, f, x: c(around(f))(x.float()),
    "no elements": lambda c, f, x: c(around(f))(x[:0]),
    "default": lambda c, f, x: c(lambda x: f(x + 1.0, by=2.0) + 1.0)(x),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", [*WHAT.values()], ids=[*WHAT])
@pytest.mark.parametrize("adapted", [made, written], ids=["returns", "into"])
def test_a_compiled_program_is_right(adapted: Any, what: Any, backend: str, x: Any) -> None:
    same(
        what(lambda f, **how: compiled(f, backend, **how), adapted, x),
        what(lambda f, **_: f, cube, x),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_of_two_results_has_its_gradient(backend: str, x: Any) -> None:
    def of(f: Any) -> Any:
        return lambda x: sum(part.sin() for part in f(x, 2.0))

    same(gradient(compiled(of(made_pair), backend), x), gradient(of(both), x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_schema_says_that_is_written_is_written(backend: str, x: Any) -> None:
    def f(x: Any, add: Any) -> Any:
        y = x.sin()
        add(y, x)
        return y * 2.0

    same(compiled(f, backend)(x, add_), (x.sin() + x) * 2.0)


def test_a_write_counts_for_autograd(x: Any) -> None:
    y = x.clone().requires_grad_()
    held = y.sin()
    used = held.square()
    with torch.no_grad():
        add_(held, x)
    assert held._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        used.sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_leaves_the_operator_alone(backend: str, x: Any) -> None:
    with torch.autocast("cpu"):
        seen = compiled(lambda x: made(x, 2.0), backend)(x.float())
    same(seen, cube(x.float(), 2.0))


@pytest.mark.parametrize("transform", [*TRANSFORMS])
@pytest.mark.parametrize("adapted", [made, written], ids=["returns", "into"])
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_torch_func_is_right(adapted: Any, transform: str, backend: Any, x: Any) -> None:
    of = TRANSFORMS[transform]
    if backend and transform == "vmap of grad":
        # PyTorch 2.15 cannot compile that of any `torch.autograd.Function`.
        with pytest.raises(torch._dynamo.exc.TorchDynamoException, match="vmap over ApplyTemplate"):
            compiled(of(adapted), backend)(x)
    else:
        same((compiled(of(adapted), backend) if backend else of(adapted))(x), of(cube)(x))


@pytest.mark.parametrize("transform", [*SECOND.values()], ids=[*SECOND])
def test_a_second_derivative_is_right_or_an_error(transform: Any, x: Any) -> None:
    same(transform(made_twice)(x), transform(cube)(x))
    with pytest.raises(
        RuntimeError, match=r"^cai_test::cube_backward: got a second derivative to compute; allowed"
    ):
        transform(made)(x)


def test_a_gradient_without_a_backward_is_an_error(x: Any) -> None:
    with pytest.raises(
        RuntimeError, match=r"^cai_test::second: got a gradient to compute; allowed: backward="
    ):
        gradient(lambda x: second_op(x, x, x, 2.0)[0], x)


def test_forward_mode_is_an_error_never_tangents_of_zeros(x: Any) -> None:
    for forward in (
        lambda: func.jvp(lambda x: made(x, 2.0), (x,), (x,)),
        lambda: func.jacfwd(lambda x: made(x, 2.0))(x),
        lambda: func.hessian(lambda x: made_twice(x, 2.0).sum())(x),
    ):
        with pytest.raises(NotImplementedError, match="must implement the jvp function"):
            forward()


def test_pytorchs_own_checks_pass(x: Any) -> None:
    from torch.utils.checkpoint import checkpoint

    x = (x + 4.0).requires_grad_()
    ops = torch.ops.cai_test
    for op, args in (
        (ops.cube, (x, 2.0)),
        (ops.cube, (x, 3.0)),
        (ops.into, (x, 3.0)),
        (ops.cube_backward, (x.detach(), x.detach(), 2.0)),
        (ops.both, (x, 2.0)),
        (ops.add_, (x.detach().clone(), x.detach())),
    ):
        torch.library.opcheck(op.default, args)
    assert torch.autograd.gradcheck(lambda x: made(x, 2.0), x)
    assert torch.autograd.gradgradcheck(lambda x: made_twice(x, 2.0), x)
    same(
        gradient(lambda x: checkpoint(made, x, 2.0, use_reentrant=False), x),
        gradient(lambda x: cube(x, 2.0), x),
    )


def test_an_exported_program_is_saved_and_loaded(x: Any) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return made(x.sin(), 3.0) + written(x)

    wanted = cube(x.sin(), 3.0) + cube(x, 2.0)
    program, file = torch.export.export(Model(), (x,)), io.BytesIO()
    same(program.module()(x), wanted)
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    same(loaded(x), wanted)
    # Trained on, by the operator's own gradient.
    same(gradient(loaded, x), gradient(lambda x: cube(x.sin(), 3.0) + cube(x, 2.0), x))


def test_a_graph_of_cuda_is_split_unless_pytorch_allocates_the_results() -> None:
    unsafe = torch.Tag.cudagraph_unsafe
    ops = torch.ops.cai_test
    assert unsafe in ops.cube.default.tags
    assert unsafe not in ops.into.default.tags


def test_reduce_overhead_is_right(x: Any) -> None:
    f = compiled(lambda x: made(x.sin(), 2.0) + written(x, 2.0), "inductor", mode="reduce-overhead")
    for _ in range(3):
        same(f(x), cube(x.sin(), 2.0) + cube(x, 2.0))


# results


ALIASES: dict[str, tuple[Callable[..., Any], str]] = {
    "itself": (lambda x: x, "Tensor"),
    "a part": (lambda x: x[:, 1:], "Tensor"),
    "reshaped": (lambda x: x.reshape(-1), "Tensor"),
    "the second of two": (lambda x: (x + 1, x), "(Tensor, Tensor)"),
    "one result twice": (lambda x: (x + 1,) * 2, "(Tensor, Tensor)"),
}


def like_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give what the results of a function of one argument are like, by calling it."""

    def like(x: Any) -> Any:
        found = function(torch.empty(tuple(x.shape)))
        several = found if isinstance(found, tuple) else (found,)
        return tuple((tuple(one.shape), x.dtype) for one in several)

    return like


@pytest.mark.parametrize("backend", [None, *BACKENDS])
@pytest.mark.parametrize("case", [*ALIASES])
def test_a_result_in_memory_of_an_argument_is_refused(case: str, backend: Any, x: Any) -> None:
    function, results = ALIASES[case]
    # PyTorch's own tensors stand for CuPy's: NumPy's would be read-only, and so copied.
    op = f"cai_test::aliased{results.count('Tensor')}(Tensor x) -> {results}"
    aliased = adapt(function, "torch", op=op, like=like_of(function))

    def program(x: Any) -> Any:
        made = aliased(x.sin())
        return sum(made) if isinstance(made, tuple) else made + 1.0

    whose = "result 0" if "twice" in case else "the argument x"
    with pytest.raises(BufferError, match=rf": got memory of {whose}; allowed: memory of its own"):
        (program if backend is None else compiled(program, backend))(x)


def reusing(alias: Callable[..., Any]) -> Callable[..., Any]:
    """A program in which inductor has another use for the argument's memory."""

    def program(x: Any) -> Any:
        y = x.sin()
        made = alias(y)
        return made, (y + 1) @ x, (y * 2).sum(), y + 3

    return program


def test_by_hand_the_same_is_silently_wrong() -> None:
    """What the refusal is for: `torch.library.custom_op` over another library's view."""

    @torch.library.custom_op("cai_test::by_hand", mutates_args=())
    def by_hand(x: torch.Tensor) -> torch.Tensor:
        # The storage is another object, so PyTorch's check for aliases does not see it.
        return torch.utils.dlpack.from_dlpack(convert(x, "numpy"))

    by_hand.register_fake(torch.empty_like)
    x = torch.rand(64, 64)
    same(reusing(by_hand)(x)[0], x.sin())
    assert not torch.allclose(compiled(reusing(by_hand), "inductor")(x)[0], x.sin())
    aliased = adapt(lambda x: x[:], "torch", op="cai_test::alias(Tensor x) -> Tensor")
    with pytest.raises(BufferError, match="got memory of the argument x"):
        compiled(reusing(aliased), "inductor")(x)


def test_what_numpy_may_not_write_is_copied(x: Any) -> None:
    reversed_ = adapt(lambda x: x[::-1], "numpy", op="cai_test::reversed(Tensor x) -> Tensor")
    seen = compiled(lambda x: reversed_(x.sin()) + 1.0, "inductor")(x)
    same(seen, x.sin().flip(0) + 1.0)


def test_a_function_that_writes_what_the_schema_does_not_say_is_refused(x: Any) -> None:
    wrong = adapt(
        lambda x: np.add(x, 1.0, out=x), "numpy", op="cai_test::writes(Tensor x) -> Tensor"
    )
    with pytest.raises(ValueError, match="read-only"):
        wrong(x)


WRONG_RESULTS: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "shape": (lambda x: x[:1] + 1, ValueError, r"result 0: got float64 \(1, 3\) on cpu; allowed: "),
    "dtype": (lambda x: (x + 1).astype("f4"), ValueError, r"result 0: got float32 \(2, 3\) on cpu"),
    "none": (lambda x: None, TypeError, "result 0: got None; allowed: an array"),
    "two": (lambda x: (x + 1, x + 2), ValueError, "got 2 results; allowed: 1, as op= says"),
}


@pytest.mark.parametrize("backend", [None, "inductor"])
@pytest.mark.parametrize("case", [*WRONG_RESULTS])
def test_a_result_that_programs_are_not_compiled_for_is_refused(
    case: str, backend: Any, x: Any
) -> None:
    function, error, said = WRONG_RESULTS[case]
    wrong = adapt(function, "numpy", op="cai_test::wrong(Tensor x) -> Tensor")
    with pytest.raises(error, match=f"^cai_test::wrong: {said}"):
        (wrong if backend is None else compiled(wrong, backend))(x)


def test_a_result_in_another_order_is_made_contiguous(x: Any) -> None:
    turned = adapt(
        lambda x: np.asfortranarray(x + 1), "numpy", op="cai_test::turned(Tensor x) -> Tensor"
    )
    assert turned(x).is_contiguous()
    same(compiled(lambda x: turned(x).view(-1), "inductor")(x), (x + 1).view(-1))


GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "none is zeros": (lambda x, y: x * 2, lambda g, x, y: (2 * g, None)),
    "the gradient itself, twice": (lambda x, y: x + y, lambda g, x, y: (g, g)),
}


@pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
@pytest.mark.parametrize(("forward", "backward"), [*GRADIENTS.values()], ids=[*GRADIENTS])
def test_a_gradient_may_be_none_or_the_gradient(
    forward: Any, backward: Any, backend: Any, x: Any
) -> None:
    op = "cai_test::two(Tensor x, Tensor y) -> Tensor"
    two = adapt(forward, "torch", op=op, backward=backward)

    def gradients(f: Any) -> Any:
        inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        f(*inputs).square().sum().backward()
        return [torch.zeros_like(x) if one.grad is None else one.grad for one in inputs]

    same(gradients(two if backend is None else compiled(two, backend)), gradients(forward))


def test_what_a_kernel_of_indices_is_given_has_no_gradient(x: Any) -> None:
    taken = adapt(
        lambda x, at: x[at],
        "numpy",
        op="cai_test::taken(Tensor x, Tensor at) -> Tensor",
        like=lambda x, at: (at.shape + x.shape[1:], x.dtype),
        backward=lambda g, x, at: (np.eye(len(x))[at].T @ g, None),
    )
    at = torch.tensor([1, 1, 0])
    same(gradient(lambda x: taken(x, at), x), gradient(lambda x: x[at], x))


# what is asked for

WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no name": ({"op": "cube"}, ValueError, "op: got 'cube'; allowed: 'namespace::name', alone or"),
    "no text": ({"op": 3}, ValueError, "op: got 3; allowed: 'namespace::name'"),
    "no schema": (
        {"op": "t::a(Tenor x) -> Tensor"},
        ValueError,
        "op: got 't::a.Tenor x. -> Tensor",
    ),
    "a list": ({"op": "t::a(Tensor[] x) -> Tensor"}, ValueError, "op: got "),
    "optional": ({"op": "t::a(Tensor? x) -> Tensor"}, ValueError, "op: got "),
    "by name": ({"op": "t::a(Tensor x, *, int y) -> Tensor"}, ValueError, "op: got y behind "),
    "no tensor": ({"op": "t::a(int x) -> Tensor"}, ValueError, "op: got .*; allowed: one Tensor"),
    "an alias": ({"op": "t::a(Tensor(a) x) -> Tensor(a)"}, ValueError, "op: got -> Tensor.a.; all"),
    "nothing": ({"op": "t::a(Tensor x) -> ()"}, ValueError, "op: got .*; allowed: a result, or"),
    "both": (
        {"op": "t::a(Tensor(a!) x) -> Tensor"},
        ValueError,
        "op: got .*; allowed: results, or",
    ),
    "a float": ({"op": "t::a(Tensor x) -> float"}, ValueError, "op: got -> float; allowed: -> Ten"),
    "a backward of what writes": (
        {"op": "t::a(Tensor(a!) x) -> ()", "backward": cube},
        ValueError,
        "backward: got a callable for a function that writes x; allowed: None",
    ),
    "into and writes": (
        {"op": "t::a(Tensor(a!) x) -> ()", "into": True},
        ValueError,
        "into: got True for a function without results",
    ),
    "into of jax": (
        {"op": "t::a(Tensor x) -> Tensor", "into": True, "to": "jax"},
        ValueError,
        "into: got True with to='jax', which never writes",
    ),
    "into alone": ({"into": True}, TypeError, "into: got True; allowed: False, without op="),
    "like": ({"op": "t::a", "like": 3}, TypeError, "like: got 3; allowed: a function of what"),
    "readonly": ({"op": "t::a", "readonly": True}, TypeError, "readonly: got True; allowed"),
    "returns": (
        {"op": "t::a", "returns": "cupy"},
        TypeError,
        "returns: got 'cupy'; allowed: 'like'",
    ),
    "another's backward": (
        {"op": "cai_test::a(Tensor x) -> Tensor", "backward": second_op},
        ValueError,
        r"backward: got cai_test::second\(.*; allowed: an operator that takes and returns as many",
    ),
}


@pytest.mark.parametrize("case", [*WRONG])
def test_what_is_asked_for_is_refused_by_adapt_itself(case: str) -> None:
    how, error, said = WRONG[case]
    with pytest.raises(error, match=f"^{said}"):
        adapt(cube, **{"to": "numpy", **how})


def test_a_function_whose_parameters_tell_nothing_needs_a_schema() -> None:
    with pytest.raises(ValueError, match=r"^op: got 't::a' for a function whose parameters do not"):
        adapt(lambda *x: x[0], "numpy", op="t::a")

    async def later(x: Any) -> Any:
        return x

    with pytest.raises(TypeError, match=r"^function: got a coroutine function; allowed: with op="):
        adapt(later, "numpy", op="t::a")


def test_the_schema_is_made_of_the_parameters() -> None:
    def scaled(x: Any, by: float, times: int = 2, up: bool = True) -> Any:
        return x * by

    f = adapt(scaled, "numpy", op="cai_test::scaled")
    assert f.__name__ == "scaled"
    schema = str(torch.ops.cai_test.scaled.default._schema)
    assert schema == (
        "cai_test::scaled(Tensor x, float by, SymInt times=2, bool up=True) -> Tensor"
    )
    same(f(torch.ones(2), by=3.0), torch.full((2,), 3.0))
    for wrong, said in (({}, "by: got no argument"), ({"by": 1.0, "on": 2}, "on: got an argument")):
        with pytest.raises(TypeError, match=f"^{said}"):
            f(torch.ones(2), **wrong)


def test_a_size_may_be_an_argument(x: Any) -> None:
    def rows(x: Any, count: int = 1) -> Any:
        return np.repeat(x[:1], count, axis=0)

    f = adapt(
        rows,
        "numpy",
        op="cai_test::rows",
        like=lambda x, count: ((count, x.shape[1]), x.dtype),
        backward=lambda g, x, count: (
            np.pad(g.sum(0, keepdims=True), ((0, len(x) - 1), (0, 0))),
            None,
        ),
    )
    program = compiled(lambda x: f(x, x.shape[0] + 1), "aot_eager", dynamic=True)
    for rows_ in (1, 2):
        wanted = x[:1].expand(rows_ + 1, 3)
        same(program(x[:rows_]), wanted)
        wanted = torch.zeros(rows_, 3, dtype=torch.float64)
        wanted[0] = rows_ + 1
        same(gradient(program, x[:rows_]), wanted)


def test_defaults_of_every_type_are_left_out_of_the_backward() -> None:
    op = """cai_test::many(Tensor x, str a="b, c", int[2] p=[0, 1], float f=1e-3) -> Tensor"""
    f = adapt(
        lambda x, a, p, f: x * f,
        "numpy",
        op=op,
        backward=lambda g, x, a, p, f: (g * f, None, None, None),
    )
    same(gradient(f, torch.ones(2)), torch.full((2,), 1e-3))


@pytest.mark.parametrize("name", ["sin", "add"])  # the second has overloads alone
def test_another_librarys_operator_is_not_defined_again(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^op: got 'aten::{name}', which is another library's"):
        adapt(cube, "numpy", op=f"aten::{name}(Tensor self) -> Tensor")


def test_an_operator_may_be_defined_again(x: Any) -> None:
    for by in (2.0, 3.0):
        f = adapt(lambda x, by=by: x * by, "numpy", op="cai_test::again(Tensor x) -> Tensor")
        same(compiled(f, "aot_eager")(x), x * by)
    with pytest.raises(
        ValueError, match=r"which is there with \(Tensor x\) -> Tensor and into=False"
    ):
        adapt(written_to, "numpy", op="cai_test::again(Tensor x) -> Tensor", into=True)


def written_to(x: Any, y: Any) -> None:
    y[...] = x


@pytest.mark.parametrize(
    ("like", "said"),
    [
        (lambda x: None, "like: got one that returned None; allowed: "),
        (lambda x: ((2, 3), "float"), "float64 "),
        (lambda x: ((2, 3), "float3"), "like: got one that returned the dtype 'float3'"),
        (lambda x: (x, x), "like: got one that returned 2 results; allowed: 1, as op= says"),
    ],
)
def test_what_results_are_like_is_said_by_shapes_and_names(like: Any, said: str, x: Any) -> None:
    f = adapt(lambda x: x + 1, "numpy", op="cai_test::likes(Tensor x) -> Tensor", like=like)
    with pytest.raises((TypeError, ValueError)) as refused:
        f(x)
    assert said in str(refused.value)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int8", "bool"])
def test_other_types_go_through(dtype: str, x: Any) -> None:
    same_again = adapt(lambda x: x.copy(), "numpy", op="cai_test::copy(Tensor x) -> Tensor")
    small = x.to(getattr(torch, dtype))
    seen = compiled(lambda x: same_again(x).to(torch.float64), "inductor")(small)
    same(seen, small.to(torch.float64))


def test_arrays_of_others_go_the_plain_way() -> None:
    assert made(np.full(2, 2.0), 1.0).tolist() == [8.0, 8.0]
    with pytest.raises(TypeError, match=r"^into: got a call with ndarray, float; allowed: PyTorch"):
        written(np.ones(2), 1.0)


# without op=

plain = adapt(lambda x: x * 2.0, "numpy", backward=lambda gradient, x: gradient * 2.0)
BREAKS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "convert": (lambda x: torch.as_tensor(convert(x.sin(), "numpy")) + 1, lambda x: x.sin() + 1),
    "a copy": (
        lambda x: torch.as_tensor(convert(x.sin(), "numpy", copy=True)) + 1,
        lambda x: x.sin() + 1,
    ),
    "its own": (lambda x: convert(x.sin(), "torch") + 1, lambda x: x.sin() + 1),
    "a tree": (
        lambda x: torch.as_tensor(convert({"a": [x.sin(), 3]}, "numpy")["a"][0]) + 1,
        lambda x: x.sin() + 1,
    ),
    "adapt": (lambda x: adapt(lambda x: x * 2.0, "numpy")(x.sin()) + 1, lambda x: x.sin() * 2 + 1),
    "backward=": (lambda x: plain(x.sin()) + 1, lambda x: x.sin() * 2 + 1),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(("program", "wanted"), [*BREAKS.values()], ids=[*BREAKS])
def test_without_an_operator_the_graph_breaks_and_is_right(
    program: Any, wanted: Any, backend: str, x: Any
) -> None:
    same(torch.compile(program, backend=backend)(x), wanted(x))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(program, backend)(x)


def test_with_a_gradient_it_breaks_as_well(x: Any) -> None:
    same(
        gradient(torch.compile(lambda x: plain(x.sin()) + 1.0), x),
        gradient(lambda x: x.sin() * 2.0 + 1.0, x),
    )


def test_a_disabled_convert_breaks_the_graph_once(x: Any) -> None:
    from torch._dynamo.utils import counters

    quiet = torch.compiler.disable(convert)
    counters.clear()
    f = torch.compile(lambda x: torch.as_tensor(quiet(x.sin(), "numpy")) + 1, backend="eager")
    same(f(x), x.sin() + 1)
    assert sum(counters["graph_break"].values()) == 1
    assert counters["stats"]["unique_graphs"] == 2
