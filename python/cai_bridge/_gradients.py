"""`adapt(backward=)`: a function as part of PyTorch's autograd and of `torch.func`.

There is one `torch.autograd.Function` for the function, and one for its gradients. Each has
`setup_context` and a rule for `vmap`, as `torch.func` requires, and no `jvp`: in forward mode
PyTorch raises its `NotImplementedError`.
"""

from __future__ import annotations

import inspect
import itertools
import weakref
from types import FunctionType

import torch

from . import _libraries
from ._core import _detached, _imported, convert

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    Tensors = Callable[..., Any]
    """A function of tensors and plain values that returns tensors."""

__all__ = [
    "DIFFERENTIABLE",
    "differentiable",
    "function_of",
    "of_tensors",
    "refusing",
    "tensor_of",
    "undisturbed",
]

SECOND = (
    "backward: got a second derivative to compute; allowed: first ones, or a function for "
    "backward= that is adapted itself, with a backward= of its own"
)

DIFFERENTIABLE: weakref.WeakKeyDictionary[Any, type] = weakref.WeakKeyDictionary()
"""The autograd Functions of adapted functions with a gradient, by the adapted function."""


def differentiable(function: Tensors, backward: Tensors, to: Any, adapt: Tensors) -> Any:
    """Return the autograd Function of `function`, whose gradients `backward` computes."""
    second = DIFFERENTIABLE.get(backward) if isinstance(backward, FunctionType) else None
    if second is None:
        back = undisturbed(of_tensors(backward, to, adapt))
        second = function_of(lambda *inputs: _followed(back(*inputs)), refusing(SECOND))
    call = undisturbed(of_tensors(function, to, adapt))
    return function_of(lambda *inputs: _followed(call(*inputs)), second.apply)  # type: ignore[attr-defined]


def refusing(words: str) -> Tensors:
    """Return a gradient function that raises `RuntimeError(words)`."""

    def refused(*_: Any) -> NoReturn:
        raise RuntimeError(words)

    return refused


def undisturbed(function: Tensors) -> Tensors:
    """Keep Dynamo from tracing a call's frames: it fails an assertion on read-only NumPy arrays."""
    quiet: Tensors | None = None

    def called(*inputs: Any) -> Any:
        nonlocal quiet
        if _callback() is None:
            return function(*inputs)
        if quiet is None:
            quiet = torch.compiler.disable(function)
        return quiet(*inputs)

    return called


def _imports_dynamo() -> Any:
    """Return whether Dynamo may watch frames, for a PyTorch without a function that tells."""
    return _imported("torch._dynamo")


_frames = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
_callback: Tensors = getattr(_frames, "get_eval_frame_callback", _imports_dynamo)
"""The callback that watches each new frame of this thread; None if there is none."""


def of_tensors(function: Tensors, to: Any, adapt: Tensors, written: Sequence[bool] = ()) -> Tensors:
    """Adapt a function for tensors, including host tensors if the library has host arrays.

    `written` tells which of its arguments the function writes.
    """
    inner, library = adapt(function, returns="torch"), _libraries.find(to)
    if library._from_host is None:
        return lambda *inputs: inner(*map(_detached, inputs))
    is_numpy = library.name == "numpy"

    def taken(x: Any, is_written: bool) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        x = x.detach()
        if x.device.type == "cpu":
            # `adapt` does the same for memory on a GPU if the library is NumPy.
            return convert(x, to, readonly=not is_written if is_numpy else None)
        if is_written and is_numpy:
            raise ValueError(
                f"to: got 'numpy' for a function that writes to an array on {x.device}, of which "
                "NumPy has a copy; allowed: a library of arrays on GPUs"
            )
        return x

    def called(*inputs: Any) -> Any:
        pairs = itertools.zip_longest(inputs, written[: len(inputs)], fillvalue=False)
        made = inner(*itertools.starmap(taken, pairs))
        return type(made)(map(tensor_of, made)) if type(made) in {tuple, list} else tensor_of(made)

    return called


def tensor_of(x: Any) -> Any:
    """Return a host array as a tensor over its memory, or as a copy if the memory is read-only."""
    if isinstance(x, torch.Tensor) or not hasattr(x, "__dlpack__"):
        # A NumPy scalar, which NumPy's reductions return, becomes a tensor as well.
        return torch.as_tensor(x) if hasattr(x, "__array_interface__") else x
    try:
        return convert(x, torch.Tensor)
    except BufferError:
        return convert(x, torch.Tensor, copy=True)


def function_of(call: Tensors, back: Tensors, names: Sequence[str] = ()) -> type:
    """Make the autograd Function of `call`; `back` takes its gradients, then its inputs.

    `names` fixes the number of inputs, which Dynamo counts (PyTorch 2.11).

    Dynamo traces these methods. It understands neither unions of types nor descriptors.
    """

    class Adapted(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(*inputs: Any) -> Any:
            return call(*inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
            ctx.are_tensors = [isinstance(one, torch.Tensor) for one in inputs]
            ctx.save_for_backward(*[one for one in inputs if isinstance(one, torch.Tensor)])
            ctx.others = [None if isinstance(one, torch.Tensor) else one for one in inputs]

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            tensors = iter(ctx.saved_tensors)
            inputs = [
                next(tensors) if is_tensor else other
                for other, is_tensor in zip(ctx.others, ctx.are_tensors, strict=True)
            ]
            made = back(*map(_computed, gradients), *inputs)
            made = made if isinstance(made, (tuple, list)) else (made,)
            if len(made) != len(inputs):
                raise ValueError(
                    f"backward: got {len(made)} gradients; allowed: {len(inputs)}, one for each "
                    "argument"
                )
            # A call of an operator leaves out defaults, which are not tensors.
            pairs = zip(made, ctx.needs_input_grad, strict=False)
            return tuple([one if is_needed else None for one, is_needed in pairs])

        @staticmethod
        def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
            return each(Adapted.apply, info.batch_size, in_dims, inputs)

    # PyTorch looks the signature up in each call.
    Adapted.forward.__signature__ = _signature(names)  # type: ignore[attr-defined]
    return Adapted


def _computed(gradient: Any) -> Any:
    """Compute a pending conjugate or negative, which autograd leaves lazy. None stays None."""
    return None if gradient is None else gradient.resolve_conj().resolve_neg()


def _signature(names: Sequence[str]) -> inspect.Signature:
    one = inspect.Parameter
    parameters = [one(name, one.POSITIONAL_ONLY) for name in names]
    return inspect.Signature(parameters or [one("inputs", one.VAR_POSITIONAL)])


def _followed(made: Any) -> Any:
    """Refuse results that autograd would not follow."""
    if isinstance(made, (list, dict)):
        raise TypeError(
            f"function: got one that returned a {type(made).__name__}; allowed: with backward=, an "
            "array or a tuple of arrays, which PyTorch's autograd follows"
        )
    return made


def each(call: Tensors, size: int, in_dims: Any, inputs: Any) -> Any:
    """Call a function for each item of a batch; return its results and their batch dimensions."""
    if not size:
        raise ValueError(
            "vmap: got a batch of 0 items; allowed: 1 or more, since the function tells what its "
            "results are like"
        )
    made = [
        call(
            *(
                one if at is None else one.select(at, item)
                for one, at in zip(inputs, in_dims, strict=True)
            )
        )
        for item in range(size)
    ]
    if not isinstance(made[0], tuple):
        return _stacked(made)
    parts = [_stacked(part) for part in zip(*made, strict=True)]
    return tuple(part for part, _ in parts), tuple(at for _, at in parts)


def _stacked(made: Any) -> tuple[Any, int | None]:
    return (torch.stack(made), 0) if isinstance(made[0], torch.Tensor) else (made[0], None)
