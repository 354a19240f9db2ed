"""`adapt(op=)` with a real PyTorch, on CPUs: in its compilers, `torch.func` and export."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from compiled_operators import (
    BACKENDS,
    MARKS,
    around,
    compiled,
    gradient,
    made,
    made_pair,
    made_twice,
    nothing_is_compiled,
    same,
    second_op,
    written,
    x,
)
from test_gradients import SECOND, TRANSFORMS, both, cube

from cai_bridge import adapt, convert

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")
func = torch.func
pytestmark = MARKS
__all__ = ["nothing_is_compiled", "x"]

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


def test_so_has_a_batch_of_both(x: Any) -> None:
    def of(f: Any) -> Any:
        return func.vmap(lambda x: f(x, 2.0), in_dims=1)

    same(of(made_pair)(x), of(both)(x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_leaves_the_operator_alone(backend: str, x: Any) -> None:
    with torch.autocast("cpu"):
        seen = compiled(lambda x: made(x, 2.0), backend)(x.float())
    same(seen, cube(x.float(), 2.0))


RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
LIMITS: dict[str, tuple[str, tuple[int, int] | None]] = {
    "grad": ("must override the setup_context", (2, 12)),
    "jacrev": ("must override the setup_context", (2, 12)),
    "vmap of grad": ("must override the setup_context|vmap over ApplyTemplate", None),
}
"""What PyTorch cannot compile of any operator with a gradient, and up to which release."""


@pytest.mark.parametrize("transform", [*TRANSFORMS])
@pytest.mark.parametrize("adapted", [made, written], ids=["returns", "into"])
@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_torch_func_is_right(adapted: Any, transform: str, backend: Any, x: Any) -> None:
    of = TRANSFORMS[transform]
    if backend and (limit := LIMITS.get(transform)):
        said, until = limit
        if until is None or until > RELEASE:
            with pytest.raises(torch._dynamo.exc.TorchDynamoException, match=said):
                compiled(of(adapted), backend)(x)
            return
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
    def dual() -> Any:
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
        with pytest.raises(
            NotImplementedError, match=r"^cai_test::cube2?: got a tangent in forward"
        ):
            forward()


def test_past_the_adapted_function_forward_mode_is_pytorchs(x: Any) -> None:
    """Tangents of zeros, as the page says: where PyTorch mends that, the page has to be."""
    forward = func.jvp(lambda x: torch.ops.cai_test.cube(x, 2.0), (x,), (x,))
    same(forward, (cube(x, 2.0), torch.zeros_like(x)))


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
