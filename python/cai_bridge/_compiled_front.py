"""The function in front of an operator: it takes what callers pass, and reports wrong calls."""

from __future__ import annotations

import torch

from ._compiled_direct import direct, is_followed, is_forward

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._compiled_schema import Schema

__all__ = ["WRITTEN_FORWARD", "front"]

FORWARD = (
    "got a tangent in forward mode (jvp, jacfwd, hessian); allowed: reverse mode, as in "
    "torch.func.vjp and jacrev, which backward= is for"
)
WRITTEN_FORWARD = (
    "got a tangent in forward mode for a function that writes its arguments; allowed: tensors "
    "without tangents"
)


def front(made: Any, untyped: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function in front of an operator; `untyped` serves calls without tensors."""
    # Only plain values and tensors, since Dynamo traces this function.
    names, defaults, is_tensor = made.schema.names, made.schema.defaults, torch.Tensor
    overload = made.overload
    call = overload if made.function is None else made.function.apply
    count, defined, is_direct = len(names), made.defined, direct(made.schema)
    is_compiling = torch.compiler.is_compiling
    forward = f"{made.schema.name}: {WRITTEN_FORWARD if made.schema.writes else FORWARD}"

    def adapted(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != count:
            if len(args) > count and not is_compiling():
                raise TypeError(_too_many(made.schema, args))
            args = _filled(names, defaults, args, kwargs)
        if not is_compiling() and is_direct(args):
            return defined.alone(*args)
        for one in args:
            if isinstance(one, is_tensor):
                # An autograd Function costs as much again as the operator.
                if is_compiling():
                    if is_forward():
                        raise NotImplementedError(forward)
                    return call(*args)
                if not is_followed(args):
                    return overload(*args)
                return _followed(call, args, forward)
        return untyped(*args)

    return adapted


def _followed(call: Callable[..., Any], args: tuple[Any, ...], forward: str) -> Any:
    try:
        return call(*args)
    except NotImplementedError as error:
        # PyTorch's own message asks for a `jvp` function.
        if is_forward() and " jvp " in str(error):
            raise NotImplementedError(forward) from error
        raise


def _too_many(schema: Schema, args: tuple[Any, ...]) -> str:
    return (
        f"{schema.name}: got {len(args)} arguments; allowed: {len(schema.names)}: "
        f"{', '.join(schema.names)}, without the results"
    )


def _filled(
    names: tuple[str, ...], defaults: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Return all arguments as positional ones."""
    filled, first = list(args), len(names) - len(defaults)
    for number in range(len(args), len(names)):
        name = names[number]
        if name in kwargs:
            filled.append(kwargs[name])
        elif number >= first:
            filled.append(defaults[number - first])
        else:
            raise TypeError(f"{name}: got no argument; allowed: one for each of {', '.join(names)}")
    for name in kwargs:
        if name not in names[len(args) :]:
            raise TypeError(
                f"{name}: got an argument by that name; allowed: one for each of {', '.join(names)}"
            )
    return tuple(filled)
