"""The results of an operator: what compiled programs are made for, and nothing else."""

from __future__ import annotations

import torch

from ._compiled import Like, specs
from ._core import _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._compiled_schema import Schema

__all__ = ["check_none", "checked", "filled", "new", "promised"]


def check_none(schema: Schema, result: Any, by: str) -> None:
    """Refuse a result of a function that writes to what it is given."""
    if result is not None:
        raise TypeError(
            f"{schema.name}: got a result, {_shown(result):.80}; allowed: None, as {by}"
        )


def promised(schema: Schema, args: tuple[Any, ...], like: Any) -> Any:
    """Give results without values, for a program that is traced."""
    if schema.writes:
        return None
    made = new(schema, args, like)
    return made[0] if len(made) == 1 else tuple(made)


def new(schema: Schema, args: tuple[Any, ...], like: Any) -> list[Any]:
    """Allocate the results, on the device of the first tensor."""
    device = _device(schema, args)
    return [
        torch.empty(one.shape, dtype=_dtype(one.dtype), device=device)
        for one in _specs(schema, args, like)
    ]


def filled(gradients: list[Any], args: tuple[Any, ...], tensors: tuple[Any, ...]) -> list[Any]:
    """Give gradients an operator may return: zeros for None, and no memory of an argument."""
    given = [one for one in args if isinstance(one, torch.Tensor)]
    made: list[Any] = []
    for gradient, x in zip(gradients, tensors, strict=True):
        if gradient is None:
            made.append(torch.zeros_like(x, memory_format=torch.contiguous_format))
        elif isinstance(gradient, torch.Tensor) and _first(gradient, [*given, *made]) is not None:
            made.append(gradient.clone())
        else:
            made.append(gradient)
    return made


def checked(schema: Schema, made: Any, args: tuple[Any, ...], like: Any) -> Any:
    """Refuse results that compiled programs were not made for, and give them contiguous."""
    several = made if isinstance(made, tuple | list) else (made,)
    found = _specs(schema, args, like)
    if len(several) != len(found):
        raise ValueError(
            f"{schema.name}: got {len(several)} results; allowed: {len(found)}, as op= says"
        )
    given, device = [*args], _device(schema, args)
    for number, (one, spec) in enumerate(zip(several, found, strict=True)):
        said = f"{schema.name}: result {number}"
        _check(said, one, spec, device)
        if (at := _first(one, given)) is not None:
            whose = [
                *(f"the argument {name}" for name in schema.names),
                *map("result {}".format, range(number)),
            ]
            raise BufferError(
                f"{said}: got memory of {whose[at]}; allowed: memory of its own, which a compiled "
                "program does not use for anything else: return a copy"
            )
        given.append(one)
    taken = [one.contiguous() for one in several]
    return taken[0] if len(taken) == 1 else tuple(taken)


def _check(said: str, result: Any, spec: Like, device: Any) -> None:
    if not isinstance(result, torch.Tensor):
        raise TypeError(f"{said}: got {_shown(result):.80}; allowed: an array")
    if (
        tuple(result.shape) != tuple(spec.shape)
        or result.dtype != _dtype(spec.dtype)
        or result.device != device
    ):
        raise ValueError(
            f"{said}: got {str(result.dtype)[6:]} {tuple(result.shape)} on {result.device}; "
            f"allowed: {spec.dtype} {tuple(spec.shape)} on {device}, as like= says, for which "
            "programs are compiled"
        )


def _first(x: Any, others: list[Any]) -> int | None:
    """Give the number of the first tensor that shares memory with `x`."""
    low, high = _span(x)
    for number, one in enumerate(others):
        if isinstance(one, torch.Tensor):
            start, end = _span(one)
            if start < high and low < end:
                return number
    return None


def _span(x: Any) -> tuple[int, int]:
    """Give the addresses between which a tensor is; none if it has no elements."""
    start, count = x.data_ptr(), x.numel()
    if x.is_contiguous() or not count:
        return start, start + count * x.element_size()
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return start, start + (last + 1) * x.element_size()


def _device(schema: Schema, args: tuple[Any, ...]) -> Any:
    return args[schema.tensors.index(True)].device


def _specs(schema: Schema, args: tuple[Any, ...], like: Any) -> list[Like]:
    found = specs(like, [_like_of(one) for one in args])[0]
    if len(found) != schema.results:
        raise ValueError(
            f"like: got one that returned {len(found)} results; allowed: {schema.results}, as op= "
            f"says: {schema.text}"
        )
    return found


def _like_of(x: Any) -> Any:
    return Like(x.shape, str(x.dtype)[6:]) if isinstance(x, torch.Tensor) else x


def _dtype(name: str) -> Any:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(
            f"like: got one that returned the dtype {name!r:.80}; allowed: a name such as 'float32'"
        )
    return found
