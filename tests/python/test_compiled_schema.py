"""What `adapt(op=)` is asked for: schemas, made of parameters or said, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled_operators import (
    MARKS,
    compiled,
    gradient,
    made,
    nothing_is_compiled,
    same,
    second_op,
    written,
    x,
)
from test_gradients import cube

from cai_bridge import adapt

torch = pytest.importorskip("torch", reason="no PyTorch: make test-clients installs it")
pytestmark = MARKS
__all__ = ["nothing_is_compiled", "x"]

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
        {"op": "cai_test::a(Tensor x, float by) -> Tensor", "backward": second_op},
        ValueError,
        r"backward: got cai_test::second\(.*; allowed: an operator that takes and returns as many",
    ),
}


CUBE = "cai_test::b(Tensor x, float by) -> Tensor"
MISTAKEN: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "into without a result": (
        lambda x, by: None,
        {"op": CUBE, "into": True},
        r"too many positional arguments; allowed: one that takes 3 arguments: x, by, result 0, "
        "which the function writes with into=True",
    ),
    "a result without into": (
        lambda x, by, y: None,
        {"op": CUBE},
        "missing a required argument: 'y'; allowed: one that takes 2 arguments: x, by; into=True, ",
    ),
    "a write without an argument": (
        lambda: None,
        {"op": "cai_test::c(Tensor(a!) x) -> ()"},
        "too many positional arguments; allowed: one that takes 1 arguments: x",
    ),
}


@pytest.mark.parametrize("case", [*MISTAKEN])
def test_a_function_that_takes_other_arguments_than_the_schema_says_is_refused(case: str) -> None:
    function, how, said = MISTAKEN[case]
    with pytest.raises(TypeError, match=f"^function: got one that cannot be called so: {said}"):
        adapt(function, "numpy", **how)


def test_what_is_passed_behind_the_arguments_is_refused(x: Any) -> None:
    for f in (written, made):
        with pytest.raises(
            TypeError, match="got 3 arguments; allowed: 2: x, by, without the results"
        ):
            f(x, 2.0, x)


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_results_that_a_kernel_writes_are_not_guessed_from_several_shapes(
    backend: Any, x: Any
) -> None:
    def function(x: Any, y: Any, out: Any) -> None:
        np.multiply(x, y, out=out)

    def called(op: str, y: Any, like: Any = None) -> Any:
        op = f"cai_test::{op}(Tensor x, Tensor y) -> Tensor"
        f = adapt(function, "numpy", op=op, into=True, like=like)
        return (f if backend is None else compiled(f, backend))(x, y)

    error = ValueError if backend is None else torch._dynamo.exc.TorchDynamoException
    for wrong in (x[0], torch.cat([x, x])):
        with pytest.raises(
            error, match=r"like: got None with into=True, and arrays of several shapes: x has"
        ):
            called("guessed", wrong)
    same(called("guessed", x + 1), x * (x + 1))
    same(called("guessed", torch.tensor(2.0).double()), x * 2)
    same(called("said", x[0], lambda x, y: x), x * x[0])


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
        adapt(cube, "numpy", op=f"aten::{name}(Tensor self, float by) -> Tensor")


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


def test_arrays_of_others_go_the_plain_way() -> None:
    assert made(np.full(2, 2.0), 1.0).tolist() == [8.0, 8.0]
    with pytest.raises(TypeError, match=r"^into: got a call with ndarray, float; allowed: PyTorch"):
        written(np.ones(2), 1.0)
