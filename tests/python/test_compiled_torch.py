"""`adapt(op=)` with a real PyTorch, on CPUs: in its compilers, `torch.func` and export.

What an operator returns and writes is right, or refused.
"""

import io

import numpy as np
import pytest
from compiled_operators import (
    BACKENDS,
    MARKS,
    add_,
    around,
    compiled,
    gradient,
    made,
    made_pair,
    made_twice,
    nothing_is_compiled,
    second_op,
    written,
)
from test_gradients import SECOND, TRANSFORMS, both, cube, same, x

from cai_bridge import adapt, convert

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")
func = torch.func
pytestmark = MARKS
__all__ = ["nothing_is_compiled", "x"]


def program_of(f, backend):
    return f if backend is None else compiled(f, backend)


def operator(name, function, like=None, **how):
    """An operator of the tensor `x`, of PyTorch's own tensors, which stand for CuPy's arrays."""
    return adapt(function, "torch", op=f"cai_test::{name}", like=like, **how)


WHAT = {
    "value": lambda c, f, x: c(around(f))(x),
    "gradient": lambda c, f, x: gradient(c(around(f)), x),
    "transposed": lambda c, f, x: c(around(f))(x.t()),
    "every second": lambda c, f, x: gradient(c(around(f)), x[:, ::2]),
    "dynamic": lambda c, f, x: [c(around(f), dynamic=True)(x[:, :n]) for n in (1, 2, 3)],
    "float32": lambda c, f, x: c(around(f))(x.float()),
    "autocast": lambda c, f, x: torch.autocast("cpu")(c(lambda x: f(x, 2.0)))(x.float()),
    "no elements": lambda c, f, x: c(around(f))(x[:0]),
    "default": lambda c, f, x: c(lambda x: f(x + 1.0, by=2.0) + 1.0)(x),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", [*WHAT.values()], ids=[*WHAT])
@pytest.mark.parametrize("adapted", [made, written], ids=["returns", "into"])
def test_a_compiled_program_is_right(adapted, what, backend, x):
    same(
        what(lambda f, **how: compiled(f, backend, **how), adapted, x),
        what(lambda f, **_: f, cube, x),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_of_two_results_has_its_gradient(backend, x):
    def of(f):
        return lambda x: sum(part.sin() for part in f(x, 2.0))

    same(gradient(compiled(of(made_pair), backend), x), gradient(of(both), x))
    same(*(func.vmap(lambda x, f=f: f(x, 2.0), in_dims=1)(x) for f in (made_pair, both)))


RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
LIMITS = {
    "grad": ("must override the setup_context", (2, 12)),
    "jacrev": ("must override the setup_context", (2, 12)),
    "vmap of grad": ("must override the setup_context|vmap over ApplyTemplate", None),
}
"""What PyTorch cannot compile of any operator with a gradient, and up to which release."""


@pytest.mark.parametrize("transform", [*TRANSFORMS])
@pytest.mark.parametrize("adapted", [made, written], ids=["returns", "into"])
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_torch_func_is_right(adapted, transform, backend, x):
    of = TRANSFORMS[transform]
    said, until = LIMITS.get(transform, ("", (0, 0))) if backend else ("", (0, 0))
    if until is None or until > RELEASE:
        with pytest.raises(torch._dynamo.exc.TorchDynamoException, match=said):
            compiled(of(adapted), backend)(x)
    else:
        same(program_of(of(adapted), backend)(x), of(cube)(x))


@pytest.mark.parametrize("transform", [*SECOND.values()], ids=[*SECOND])
def test_a_second_derivative_is_right_or_an_error(transform, x):
    same(transform(made_twice)(x), transform(cube)(x))
    said = r"^cai_test::cube_backward: got a second derivative to compute; allowed"
    with pytest.raises(RuntimeError, match=said):
        transform(made)(x)


def test_a_gradient_without_a_backward_is_an_error(x):
    said = r"^cai_test::second: got a gradient to compute; allowed: backward="
    with pytest.raises(RuntimeError, match=said):
        gradient(lambda x: second_op(x, x, x, 2.0)[0], x)


def test_forward_mode_is_an_error_never_tangents_of_zeros(x):
    def dual():
        with torch.autograd.forward_ad.dual_level():
            return made(torch.autograd.forward_ad.make_dual(x, x), 2.0)

    for forward in (
        dual,
        lambda: func.jvp(lambda x: made(x, 2.0), (x,), (x,)),
        lambda: func.jacfwd(lambda x: made(x, 2.0))(x),
        lambda: func.hessian(lambda x: made_twice(x, 2.0).sum())(x),
        lambda: func.jvp(func.vmap(lambda x: made(x, 2.0)), (x,), (x,)),
        torch.compile(lambda: func.jvp(lambda x: made(x, 2.0), (x,), (x,)), backend="eager"),
        lambda: func.jvp(torch.compile(lambda x: made(x, 2.0), backend="eager"), (x,), (x,)),
    ):
        with pytest.raises(NotImplementedError, match=r"^cai_test::cube2?: got a tangent in forw"):
            forward()


def test_past_the_adapted_function_forward_mode_is_pytorchs(x):
    """Tangents of zeros, as the page says: where PyTorch mends that, the page has to be."""
    forward = func.jvp(lambda x: torch.ops.cai_test.cube(x, 2.0), (x,), (x,))
    same(forward, (cube(x, 2.0), torch.zeros_like(x)))


def test_pytorchs_own_checks_pass(x):
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


def test_an_exported_program_is_saved_loaded_and_trained_on(x):
    class Model(torch.nn.Module):
        def forward(self, x):
            return made(x.sin(), 3.0) + written(x)

    def wanted(x):
        return cube(x.sin(), 3.0) + cube(x, 2.0)

    program, file = torch.export.export(Model(), (x,)), io.BytesIO()
    same(program.module()(x), wanted(x))
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    same(loaded(x), wanted(x))
    same(gradient(loaded, x), gradient(wanted, x))


def test_a_graph_of_cuda_is_split_unless_pytorch_allocates_the_results(x):
    unsafe, ops = torch.Tag.cudagraph_unsafe, torch.ops.cai_test
    assert unsafe in ops.cube.default.tags
    assert unsafe not in ops.into.default.tags
    f = compiled(lambda x: made(x.sin(), 2.0) + written(x, 2.0), "inductor", mode="reduce-overhead")
    for _ in range(3):
        same(f(x), cube(x.sin(), 2.0) + cube(x, 2.0))


def adapted_inside(x):
    f = adapt(lambda x: x * 2.0, "numpy")
    return f(x)


plain = adapt(lambda x: x * 2.0, "numpy", backward=lambda gradient, x: gradient * 2.0)
BREAKS = {
    "convert": (lambda x: torch.as_tensor(convert(x, "numpy")), 1),
    "a copy": (lambda x: torch.as_tensor(convert(x, "numpy", copy=True)), 1),
    "its own": (lambda x: convert(x, "torch"), 1),
    "a tree": (lambda x: torch.as_tensor(convert({"a": [x, 3]}, "numpy")["a"][0]), 1),
    "adapt": (adapted_inside, 2),
    "backward=": (plain, 2),
}


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(("f", "times"), [*BREAKS.values()], ids=[*BREAKS])
def test_without_an_operator_the_graph_breaks_and_is_right(f, times, backend, x):
    def program(x):
        return f(x.sin()) + 1

    same(torch.compile(program, backend=backend)(x), x.sin() * times + 1)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(program, backend)(x)


ALIASES = {
    "itself": lambda x: x,
    "a part": lambda x: x[:, 1:],
    "reshaped": lambda x: x.reshape(-1),
    "the second of two": lambda x: (x + 1, x),
    "one result twice": lambda x: (x + 1,) * 2,
}


def like_of(function):
    """Give what the results of a function of one argument are like, by calling it."""

    def like(x):
        found = function(torch.empty(tuple(x.shape)))
        several = found if isinstance(found, tuple) else (found,)
        return tuple((tuple(one.shape), x.dtype) for one in several)

    return like


@pytest.mark.parametrize("backend", [None, *BACKENDS])
@pytest.mark.parametrize("case", [*ALIASES])
def test_a_result_in_memory_of_an_argument_is_refused(case, backend, x):
    function, two = ALIASES[case], "two" in case or "twice" in case
    schema = "aliased2(Tensor x) -> (Tensor, Tensor)" if two else "aliased(Tensor x) -> Tensor"
    aliased = operator(schema, function, like_of(function))

    def program(x):
        made = aliased(x.sin())
        return sum(made) if two else made + 1.0

    whose = "result 0" if "twice" in case else "the argument x"
    with pytest.raises(BufferError, match=rf": got memory of {whose}; allowed: memory of its own"):
        program_of(program, backend)(x)


def test_a_result_behind_a_sliced_arguments_first_elements_is_refused():
    base = torch.rand(2, 4)
    rest = operator("rest(Tensor x) -> Tensor", lambda x: base.view(-1)[4:].view(2, 2))
    with pytest.raises(BufferError, match="got memory of the argument x"):
        rest(base[:, ::2])


def test_what_numpy_may_not_write_is_copied_and_not_written(x):
    reversed_ = adapt(lambda x: x[::-1], "numpy", op="cai_test::reversed(Tensor x) -> Tensor")
    same(compiled(lambda x: reversed_(x.sin()) + 1.0, "inductor")(x), x.sin().flip(0) + 1.0)
    wrong = adapt(lambda x: np.add(x, 1, out=x), "numpy", op="cai_test::writes(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="read-only"):
        wrong(x)


WRONG_RESULTS = {
    "shape": (lambda x: x[:1] + 1, r"result 0: got float64 \(1, 3\) on cpu; allowed: "),
    "dtype": (lambda x: (x + 1).float(), r"result 0: got float32 \(2, 3\) on cpu"),
    "device": (
        lambda x: torch.empty(2, 3, device="meta", dtype=torch.float64),
        r"result 0: got float64 \(2, 3\) on meta; allowed: float64 \(2, 3\) on cpu",
    ),
    "none": (lambda x: None, "result 0: got None; allowed: an array, or into=True"),
    "two": (lambda x: (x + 1, x + 2), "got 2 results; allowed: 1, as op= says"),
}


@pytest.mark.parametrize("backend", [None, "inductor"])
@pytest.mark.parametrize("case", [*WRONG_RESULTS])
def test_a_result_that_programs_are_not_compiled_for_is_refused(case, backend, x):
    function, said = WRONG_RESULTS[case]
    wrong = operator("wrong(Tensor x) -> Tensor", function)
    error = TypeError if case == "none" else ValueError
    with pytest.raises(error, match=f"^cai_test::wrong: {said}"):
        program_of(wrong, backend)(x)


def test_a_result_in_another_order_is_made_contiguous(x):
    op = "cai_test::turned(Tensor x) -> Tensor"
    turned = adapt(lambda x: np.asfortranarray(x + 1), "numpy", op=op)
    assert turned(x).is_contiguous()
    same(compiled(lambda x: turned(x).view(-1), "inductor")(x), (x + 1).view(-1))


GRADIENTS = {
    "none is zeros": (lambda x, y: x * 2, lambda g, x, y: (2 * g, None)),
    "the gradient itself, twice": (lambda x, y: x + y, lambda g, x, y: (g, g)),
}


@pytest.mark.parametrize("backend", [None, "aot_eager", "inductor"])
@pytest.mark.parametrize(("forward", "backward"), [*GRADIENTS.values()], ids=[*GRADIENTS])
def test_a_gradient_may_be_none_or_the_gradient(forward, backward, backend, x):
    two = operator("two(Tensor x, Tensor y) -> Tensor", forward, backward=backward)

    def gradients(f):
        inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
        f(*inputs).square().sum().backward()
        return [torch.zeros_like(x) if one.grad is None else one.grad for one in inputs]

    same(gradients(program_of(two, backend)), gradients(forward))


def test_what_a_kernel_of_indices_is_given_has_no_gradient(x):
    taken = adapt(
        lambda x, at: x[at],
        "numpy",
        op="cai_test::taken(Tensor x, Tensor at) -> Tensor",
        like=lambda x, at: (at.shape + x.shape[1:], x.dtype),
        backward=lambda g, x, at: (np.eye(len(x))[at].T @ g, None),
    )
    at = torch.tensor([1, 1, 0])
    same(gradient(lambda x: taken(x, at), x), gradient(lambda x: x[at], x))


LIKES = {
    "like: got one that returned None; allowed: ": lambda x: None,
    "float64 ": lambda x: ((2, 3), "float"),
    "like: got one that returned the dtype 'float3'": lambda x: ((2, 3), "float3"),
    "like: got one that returned 2 results; allowed: 1, as op= says": lambda x: (x, x),
}


@pytest.mark.parametrize("said", LIKES)
def test_what_results_are_like_is_said_by_shapes_and_names(said, x):
    f = operator("likes(Tensor x) -> Tensor", lambda x: x + 1, LIKES[said])
    with pytest.raises((TypeError, ValueError), match=said):
        f(x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int8", "bool"])
def test_other_types_go_through(dtype, x):
    same_again = adapt(lambda x: x.copy(), "numpy", op="cai_test::copy(Tensor x) -> Tensor")
    small = x.to(getattr(torch, dtype))
    seen = compiled(lambda x: same_again(x).to(torch.float64), "inductor")(small)
    same(seen, small.to(torch.float64))


def grown(x, y):
    """Write to `x`, in a function that PyTorch may follow."""
    x = x.clone()
    add_(x, y)
    return x


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_schema_says_that_is_written_is_written(backend, x):
    program = compiled(lambda y: grown(y.sin(), y) * 2.0, backend)
    with pytest.raises(Exception, match="cai_test::add_: got a gradient to compute"):
        program(x.clone().requires_grad_())
    same(program(x), (x.sin() + x) * 2.0)


def test_a_write_counts_for_autograd(x):
    held = x.clone().requires_grad_().sin()
    used = held.square()
    with torch.no_grad():
        add_(held, x)
    assert held._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        used.sum().backward()


A_GRADIENT = (RuntimeError, "^cai_test::add_: got a gradient .*; allowed: tensors ")
A_TANGENT = (NotImplementedError, "^cai_test::add_: got a tangent .*; allowed: tensors ")
NO_RULE = (RuntimeError, "^Batching rule not implemented for cai_test::add_")


def tracked(x):
    return x.clone().requires_grad_()


LOST = {
    "of what is written": (lambda x: add_(tracked(x).sin(), x), A_GRADIENT),
    "of a leaf": (lambda x: add_(tracked(x), x), A_GRADIENT),
    "of what is read": (lambda x: add_(x.clone(), tracked(x)), A_GRADIENT),
    "by its name": (lambda x: torch.ops.cai_test.add_(x.clone(), tracked(x)), A_GRADIENT),
    "func.grad": (lambda x: func.grad(lambda y: grown(x, y).sum())(x), A_GRADIENT),
    "func.vmap": (lambda x: func.vmap(grown)(x, x), NO_RULE),
    "func.jvp": (lambda x: func.jvp(lambda y: grown(x, y), (x,), (x,)), A_TANGENT),
}


@pytest.mark.parametrize("case", [*LOST])
def test_a_gradient_that_a_write_would_lose_is_refused(case, x):
    call, (error, said) = LOST[case]
    with pytest.raises(error, match=said):
        call(x)


def test_what_nobody_follows_is_written(x):
    leaf = tracked(x)
    with torch.no_grad():
        add_(leaf, x)
    same(leaf.detach(), x * 2)
    with torch.inference_mode():
        made = x + 1
        add_(made, x)
    same(made + 0, x * 2 + 1)


SHARED = {
    "expanded": lambda x: (x[0].expand(2, 3), x),
    "overlapping rows": lambda x: (x.as_strided((2, 3), (2, 1)), x.clone()),
    "a part that is read": lambda x: (x.view(-1)[1:], x.view(-1)[:-1]),
}


@pytest.mark.parametrize("backend", [None, *BACKENDS])
@pytest.mark.parametrize("case", SHARED)
def test_a_write_where_elements_share_a_place_is_refused(case, backend, x):
    if "read" in case and backend not in {None, "eager"}:
        return  # PyTorch's compilers copy first what else is read of the memory
    said = "memory of the argument y" if "read" in case else "several elements in one place"
    with pytest.raises(BufferError, match=f"^cai_test::add_: x: got .*{said}.*; allowed: "):
        program_of(lambda x: add_(*SHARED[case](x)), backend)(x.clone())


APART = {
    "itself": lambda x: (x, x),
    "every second": lambda x: (x.view(-1)[::2], x.view(-1)[1::2].clone()),
    "transposed": lambda x: (x.t(), x.t().clone()),
    "rows apart": lambda x: (x.as_strided((2, 2), (3, 1)), x.new_ones(2, 2)),
    "no elements": lambda x: (x[:0].expand(0, 3), x[:0]),
}


@pytest.mark.parametrize("case", [*APART])
def test_a_write_elsewhere_is_right(case, x):
    seen, wanted = x.clone(), x.clone()
    add_(*APART[case](seen))
    written, read = APART[case](wanted)
    written += read
    same(seen, wanted)
