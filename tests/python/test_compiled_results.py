"""What an operator returns and writes, with a real PyTorch, on CPUs: what is right, and refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_operators import (
    BACKENDS,
    MARKS,
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


def test_a_result_behind_a_sliced_arguments_first_elements_is_refused() -> None:
    base = torch.rand(2, 4)
    rest = base.view(-1)[4:].view(2, 2)
    f = adapt(lambda x: rest, "torch", op="cai_test::rest(Tensor x) -> Tensor")
    with pytest.raises(BufferError, match="got memory of the argument x"):
        f(base[:, ::2])


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
    "none": (lambda x: None, TypeError, "result 0: got None; allowed: an array, or into=True"),
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
