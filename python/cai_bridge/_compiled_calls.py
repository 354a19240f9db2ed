"""An operator's implementation: it calls the adapted function with tensors, below autograd."""

from __future__ import annotations

import torch

from . import _compiled_results as results
from . import _libraries
from ._calls import Call
from ._core import _detached, convert
from ._gradients import of_tensors, tensor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._compiled import Wanted
    from ._compiled_schema import Schema

    Function = Callable[..., Any]

__all__ = ["implementation", "with_tensors"]


def implementation(wanted: Wanted, schema: Schema) -> Function:
    """Return the operator's implementation, for tensors below autograd."""
    outputs = schema.results if wanted.into else 0
    like, places = wanted.like, schema.places
    places = [*places, *range(len(schema.names), len(schema.names) + outputs)]
    written = (*schema.written, *[True] * outputs)
    inner = with_tensors(wanted, wanted.function, places, written)

    def writing(*args: Any) -> None:
        results.check_written(schema, args)
        results.check_none(schema, inner(*args), "op= says")
        for one, is_written in zip(args, schema.written, strict=True):
            if is_written:
                torch.autograd.graph.increment_version(one)

    guesses = like is None and sum(schema.tensors) > 1

    def into(*args: Any) -> Any:
        if guesses:
            results.check_shapes(schema, args)
        made = results.new(schema, args, like)
        if (got := inner(*args, *made)) is not None:
            results.check_none(schema, got, "into=True says")
        return made[0] if len(made) == 1 else tuple(made)

    is_right = results.quick(schema, like)

    def returning(*args: Any) -> Any:
        made = inner(*args)
        return made if is_right(made, args) else results.checked(schema, made, args, like)

    return writing if schema.writes else into if outputs else returning


def with_tensors(
    wanted: Wanted, function: Function, places: list[int], written: tuple[bool, ...] = ()
) -> Function:
    """Adapt a function for tensors; `places` says which of its arguments are tensors."""
    general = of_tensors(function, wanted.to, wanted.adapt, written)
    name = wanted.library.name
    if name == "numpy":
        return _of_numpy(function, places, written, general)
    if name == "torch":
        # With a stream the results must be ordered, which `adapt` does.
        return general if wanted.stream is not None else _of_torch(function)
    return _of_gpus(wanted, function, places, general)


def _of_torch(function: Function) -> Function:
    return lambda *inputs: _tensors(function(*map(_detached, inputs)))


def _of_numpy(
    function: Function, places: list[int], written: tuple[bool, ...], general: Function
) -> Function:
    asked = [(at, not (written and written[at])) for at in places]

    def called(*inputs: Any) -> Any:
        args = [*inputs]
        for at, readonly in asked:
            x = inputs[at]
            if not x.is_cpu:
                return general(*inputs)
            # `adapt` does the same for memory on a GPU if the library is NumPy.
            args[at] = convert(x.detach() if x.requires_grad else x, "numpy", readonly=readonly)
        return _tensors(function(*args))

    return called


def _of_gpus(wanted: Wanted, function: Function, places: list[int], general: Function) -> Function:
    call, torchs = Call(function, wanted.to, wanted.stream, False, None), _libraries.find("torch")
    types = call.library.types

    def called(*inputs: Any) -> Any:
        arrays = []
        for at in places:
            x = inputs[at]
            if not x.is_cuda:
                return general(*inputs)
            arrays.append(x.detach() if x.requires_grad else x)
        try:
            now = call.converted_alone(arrays)
        except Exception:
            now = None
        if now is None:
            # The error names the refused argument.
            return general(*inputs)
        with now:
            made = function(*_placed(inputs, places, now.left))
            if made is None:
                return None
            if now.stream is None and type(made) in types:
                # A single array needs no walk.
                return convert(made, torch.Tensor)
            now.like = torchs
            return now.give(made)

    return called


def _placed(inputs: tuple[Any, ...], places: list[int], arrays: list[Any]) -> list[Any]:
    """Put arrays into their places, and keep none: only the function may hold its arguments."""
    args = [*inputs]
    for at in reversed(places):
        args[at] = arrays.pop()
    return args


def _tensors(made: Any) -> Any:
    if made is None or type(made) is torch.Tensor:
        return made
    return type(made)(map(tensor_of, made)) if type(made) in {tuple, list} else tensor_of(made)
