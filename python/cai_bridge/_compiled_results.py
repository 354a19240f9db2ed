"""Checks of an operator's results: compiled programs rely on their shape, dtype and memory."""

from __future__ import annotations

import torch

from ._compiled import Like, check_alike, specs
from ._core import _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._compiled_schema import Schema

__all__ = [
    "check_none",
    "check_shapes",
    "check_written",
    "checked",
    "filled",
    "new",
    "promised",
    "quick",
]

CONTIGUOUS = torch.contiguous_format
NONE, CERTAIN = 0, 1
"""PyTorch's sure answers about a tensor's overlap with itself. A third is "too hard to tell"."""


def check_none(schema: Schema, result: Any, by: str) -> None:
    """Refuse a result from a function that writes its arguments."""
    if result is not None:
        raise TypeError(
            f"{schema.name}: got a result, {_shown(result):.80}; allowed: None, as {by}"
        )


def check_written(schema: Schema, args: tuple[Any, ...]) -> None:
    """Refuse to write if elements share memory, as PyTorch's own operators do."""
    for at in schema.places:
        if not schema.written[at]:
            continue
        x, name = args[at], schema.names[at]
        if _overlaps_itself(x):
            raise BufferError(
                f"{schema.name}: {name}: got a tensor with several elements in one place, of the "
                f"shape {tuple(x.shape)} and the strides {x.stride()}; allowed: memory of its own "
                "for each element that is written: pass x.clone()"
            )
        for other in schema.places:
            if (
                other != at
                and _first(x, [args[other]]) is not None
                and not _is_same(x, args[other])
            ):
                raise BufferError(
                    f"{schema.name}: {name}: got memory of the argument {schema.names[other]}; "
                    "allowed: for an argument that is written memory of its own: pass a clone()"
                )


def _overlaps_itself(x: Any) -> bool:
    told = torch._debug_has_internal_overlap(x)
    if told in {NONE, CERTAIN}:
        return bool(told)
    # In the order of the strides, each dimension must step over everything inside it.
    reach = 0
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _is_same(x: Any, y: Any) -> bool:
    """Return whether two tensors have each element at the same address, as in `f(x, x)`."""
    return bool(
        (x.data_ptr(), x.shape, x.stride(), x.dtype) == (y.data_ptr(), y.shape, y.stride(), y.dtype)
    )


def check_shapes(schema: Schema, args: tuple[Any, ...]) -> None:
    """Refuse tensors of several shapes if nothing says what the results look like."""
    places = schema.places
    check_alike([args[at].shape for at in places], [schema.names[at] for at in places])


def promised(schema: Schema, args: tuple[Any, ...], like: Any, into: bool) -> Any:
    """Return results without values, for a program that is being traced."""
    if schema.writes:
        return None
    if into and like is None:
        check_shapes(schema, args)
    made = new(schema, args, like)
    return made[0] if len(made) == 1 else tuple(made)


def new(schema: Schema, args: tuple[Any, ...], like: Any) -> list[Any]:
    """Allocate the results on the device of the first tensor."""
    first = args[schema.tensors.index(True)]
    if like is None and schema.results == 1:
        return [torch.empty_like(first, memory_format=CONTIGUOUS)]
    given, found = _specs(schema, args, like)
    made = []
    for one in found:
        # A result like an argument is made faster from the argument.
        at = next((at for at, x in enumerate(given) if x is one), None)
        if at is None or args[at].device != first.device:
            empty = torch.empty(one.shape, dtype=_dtype(one.dtype), device=first.device)
        else:
            empty = torch.empty_like(args[at], memory_format=CONTIGUOUS)
        made.append(empty)
    return made


def filled(gradients: list[Any], args: tuple[Any, ...], tensors: tuple[Any, ...]) -> list[Any]:
    """Make gradients that an operator may return: zeros for None, and no memory of an argument."""
    given = [one for one in args if isinstance(one, torch.Tensor)]
    made: list[Any] = []
    for gradient, x in zip(gradients, tensors, strict=True):
        if gradient is None:
            made.append(torch.zeros_like(x, memory_format=CONTIGUOUS))
        elif isinstance(gradient, torch.Tensor) and _first(gradient, [*given, *made]) is not None:
            made.append(gradient.clone())
        else:
            made.append(gradient)
    return made


def quick(schema: Schema, like: Any) -> Callable[[Any, tuple[Any, ...]], bool]:
    """Return a quick check, three times as fast as `checked`. False if it cannot be sure."""
    if like is not None or schema.results != 1:
        return lambda made, args: False  # noqa: ARG005
    places, first_at, tensor = schema.places, schema.tensors.index(True), torch.Tensor

    def is_right(made: Any, args: tuple[Any, ...]) -> bool:
        first = args[first_at]
        if (
            type(made) is not tensor
            or made.shape != first.shape
            or made.dtype is not first.dtype
            or made.device != first.device
            or not made.is_contiguous()
        ):
            return False
        start = made.data_ptr()
        end = start + made.nbytes
        for at in places:
            x = args[at]
            if not x.is_contiguous():
                return False
            low = x.data_ptr()
            if low < end and start < low + x.nbytes:
                return False
        return True

    return is_right


def checked(schema: Schema, made: Any, args: tuple[Any, ...], like: Any) -> Any:
    """Refuse results that compiled programs were not made for, and return them contiguous."""
    several = made if isinstance(made, tuple | list) else (made,)
    if like is None and schema.results == 1:
        found = [args[schema.tensors.index(True)]]
    else:
        _, found = _specs(schema, args, like)
    if len(several) != len(found):
        raise ValueError(
            f"{schema.name}: got {len(several)} results; allowed: {len(found)}, as op= says"
        )
    given, device = [*args], args[schema.tensors.index(True)].device
    for number, (one, spec) in enumerate(zip(several, found, strict=True)):
        _check(schema, number, one, spec, device)
        if (at := _first(one, given)) is not None:
            whose = [
                *(f"the argument {name}" for name in schema.names),
                *map("result {}".format, range(number)),
            ]
            raise BufferError(
                f"{schema.name}: result {number}: got memory of {whose[at]}; allowed: memory of "
                "its own, which a compiled program does not use for anything else: return a copy"
            )
        given.append(one)
    taken = [one if one.is_contiguous() else one.contiguous() for one in several]
    return taken[0] if len(taken) == 1 else tuple(taken)


def _check(schema: Schema, number: int, result: Any, spec: Any, device: Any) -> None:
    """Compare a result with `spec`: a shape and dtype, or a tensor that the result is like."""
    if not isinstance(result, torch.Tensor):
        hint = ", or into=True for a function that writes its results" if result is None else ""
        raise TypeError(
            f"{schema.name}: result {number}: got {_shown(result):.80}; allowed: an array{hint}"
        )
    dtype = spec.dtype if isinstance(spec.dtype, torch.dtype) else _dtype(spec.dtype)
    if result.shape != tuple(spec.shape) or result.dtype != dtype or result.device != device:
        raise ValueError(
            f"{schema.name}: result {number}: got {_name(result.dtype)} {tuple(result.shape)} on "
            f"{result.device}; allowed: {_name(dtype)} {tuple(spec.shape)} on {device}, as like= "
            "says, for which programs are compiled"
        )


def _first(x: Any, others: list[Any]) -> int | None:
    """Return the number of the first tensor that shares memory with `x`."""
    low, high = _span(x)
    for number, one in enumerate(others):
        if isinstance(one, torch.Tensor):
            start, end = _span(one)
            if start < high and low < end:
                return number
    return None


def _span(x: Any) -> tuple[int, int]:
    """Return a tensor's address range; an empty range if it has no elements."""
    start = x.data_ptr()
    if x.is_contiguous() or not x.numel():
        return start, start + x.nbytes
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return start, start + (last + 1) * x.element_size()


def _specs(schema: Schema, args: tuple[Any, ...], like: Any) -> tuple[list[Any], list[Like]]:
    """Return what the arguments look like, and what the results look like."""
    given = [Like(x.shape, _name(x.dtype)) if isinstance(x, torch.Tensor) else x for x in args]
    found = specs(like, given)[0]
    if len(found) != schema.results:
        raise ValueError(
            f"like: got one that returned {len(found)} results; allowed: {schema.results}, as op= "
            f"says: {schema.text}"
        )
    return given, found


_NAMED: dict[torch.dtype, str] = {}
_DTYPES: dict[str, torch.dtype] = {}


def _name(dtype: torch.dtype) -> str:
    if dtype not in _NAMED:
        _NAMED[dtype] = str(dtype)[6:]
    return _NAMED[dtype]


def _dtype(name: Any) -> torch.dtype:
    if (known := _DTYPES.get(name)) is not None:
        return known
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(
            f"like: got one that returned the dtype {name!r:.80}; allowed: a name such as 'float32'"
        )
    _DTYPES[name] = found
    return found
