"""What an operator returns and writes, with a real PyTorch, on CPUs: what is right, and refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_operators import (
    BACKENDS,
    MARKS,
    add_,
    compiled,
    gradient,
    nothing_is_compiled,
    same,
    x,
)

from cai_bridge import adapt, convert

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")
pytestmark = MARKS
__all__ = ["nothing_is_compiled", "x"]

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
    "device": (
        lambda x: torch.empty(2, 3, device="meta", dtype=torch.float64),
        ValueError,
        r"result 0: got float64 \(2, 3\) on meta; allowed: float64 \(2, 3\) on cpu",
    ),
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


# what is written


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


def grown(x: Any, y: Any) -> Any:
    """Write to `x`, in a function that PyTorch may follow."""
    x = x.clone()
    add_(x, y)
    return x


VMAPS = "^Batching rule not implemented for cai_test::add_"
LOST: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "of what is written": (
        lambda x: add_(x.clone().requires_grad_().sin(), x),
        RuntimeError,
        "a gradient",
    ),
    "of a leaf": (lambda x: add_(x.clone().requires_grad_(), x), RuntimeError, "a gradient"),
    "of what is read": (
        lambda x: add_(x.clone(), x.clone().requires_grad_()),
        RuntimeError,
        "a gradient",
    ),
    "by its name": (
        lambda x: torch.ops.cai_test.add_(x.clone(), x.clone().requires_grad_()),
        RuntimeError,
        "a gradient",
    ),
    "func.grad": (
        lambda x: torch.func.grad(lambda y: grown(x, y).sum())(x),
        RuntimeError,
        "a gradient",
    ),
    "func.vmap": (lambda x: torch.func.vmap(grown)(x, x), RuntimeError, ""),
    "func.jvp": (
        lambda x: torch.func.jvp(lambda y: grown(x, y), (x,), (x,)),
        NotImplementedError,
        "a tangent",
    ),
}


@pytest.mark.parametrize("case", [*LOST])
def test_a_gradient_that_a_write_would_lose_is_refused(case: str, x: Any) -> None:
    call, error, lost = LOST[case]
    said = f"^cai_test::add_: got {lost} .*; allowed: tensors " if lost else VMAPS
    with pytest.raises(error, match=said):
        call(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_so_is_one_in_a_compiled_program(backend: str, x: Any) -> None:
    program = compiled(lambda y: grown(y.sin(), y) * 2.0, backend)
    with pytest.raises(Exception, match="cai_test::add_: got a gradient to compute"):
        program(x.clone().requires_grad_())
    same(program(x), (x.sin() + x) * 2.0)


def test_by_hand_a_written_gradient_is_silently_lost(x: Any) -> None:
    """What the refusal is for."""

    @torch.library.custom_op("cai_test::add_by_hand", mutates_args=("x",))
    def add_by_hand(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y)

    y = x.clone().requires_grad_()
    z = x.clone()
    add_by_hand(z, y * 3.0)
    assert not z.requires_grad


def test_what_nobody_follows_is_written(x: Any) -> None:
    leaf = x.clone().requires_grad_()
    with torch.no_grad():
        add_(leaf, x)
    same(leaf.detach(), x * 2)
    with torch.inference_mode():
        made = x + 1
        add_(made, x)
    same(made + 0, x * 2 + 1)


SHARED: dict[str, tuple[Callable[[Any], tuple[Any, Any]], str]] = {
    "expanded": (lambda x: (x[0].expand(2, 3), x), "several elements in one place"),
    "overlapping rows": (
        lambda x: (x.as_strided((2, 3), (2, 1)), x.clone()),
        "several elements in one place",
    ),
    "a part that is read": (
        lambda x: (x.view(-1)[1:], x.view(-1)[:-1]),
        "memory of the argument y",
    ),
}


@pytest.mark.parametrize(
    ("case", "backend"),
    # PyTorch's compilers copy first what else is read of the memory.
    [
        (case, backend)
        for case in SHARED
        for backend in (None, *BACKENDS)
        if "read" not in case or backend in {None, "eager"}
    ],
)
def test_a_write_where_elements_share_a_place_is_refused(case: str, backend: Any, x: Any) -> None:
    arguments, said = SHARED[case]

    def program(x: Any) -> None:
        add_(*arguments(x))

    with pytest.raises(BufferError, match=f"^cai_test::add_: x: got .*{said}.*; allowed: "):
        (program if backend is None else compiled(program, backend))(x.clone())


APART: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "itself": lambda x: (x, x),
    "every second": lambda x: (x.view(-1)[::2], x.view(-1)[1::2].clone()),
    "transposed": lambda x: (x.t(), x.t().clone()),
    "rows apart": lambda x: (x.as_strided((2, 2), (3, 1)), x.new_ones(2, 2)),
    "no elements": lambda x: (x[:0].expand(0, 3), x[:0]),
}


@pytest.mark.parametrize("case", [*APART])
def test_a_write_elsewhere_is_right(case: str, x: Any) -> None:
    seen, wanted = x.clone(), x.clone()
    add_(*APART[case](seen))
    written, read = APART[case](wanted)
    written += read
    same(seen, wanted)
