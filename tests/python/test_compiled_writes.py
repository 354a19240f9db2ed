"""Operators that write their arguments, with a real PyTorch, on CPUs: what is lost is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from compiled_operators import BACKENDS, MARKS, add_, compiled, nothing_is_compiled, same, x

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")
pytestmark = MARKS
__all__ = ["nothing_is_compiled", "x"]


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
