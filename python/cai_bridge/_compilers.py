"""`adapt(op=, like=)`: functions of another library in programs that a compiler traced.

A compiler runs a program without its data. So it must know what results look like (`like=`) and
what is written (the schema of `op=`), and must never get a result in an argument's memory.
"""

from __future__ import annotations

import functools

from ._compiled import ADAPTED, check_writes
from ._core import _imported, _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._compiled import Wanted

__all__ = ["compiled"]


def compiled(wanted: Wanted, op: str | None) -> Any:
    """Return the function for callers; it is a PyTorch operator if `op` names one."""
    _check(wanted)
    made = wanted.wraps(_untyped(wanted)) if op is None else _operator(wanted, op)
    ADAPTED.add(made)
    return made


def _operator(wanted: Wanted, op: str) -> Any:
    try:
        from . import _compiled_torch  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"op: got {_shown(op):.80}, and PyTorch is not installed; allowed: None, or an "
            "operator's name with PyTorch, whose it becomes",
            name=error.name,
        ) from error
    return _compiled_torch.operator(wanted, op, _untyped)


def _check(wanted: Wanted) -> None:
    import inspect  # noqa: PLC0415

    both = wanted.function, type(wanted.function).__call__
    if any(map(inspect.iscoroutinefunction, both)):
        raise TypeError(
            "function: got a coroutine function; allowed: with op= or like=, functions whose work "
            "is done when they return"
        )
    if wanted.like is not None and not callable(wanted.like):
        raise TypeError(
            f"like: got {_shown(wanted.like):.80}; allowed: a function of what the arguments are "
            "like, as lambda x, by: x"
        )
    if wanted.into:
        check_writes(wanted.library, "into", "True")


def _untyped(wanted: Wanted) -> Callable[..., Any]:
    """Return the function for JAX's arrays, and for everything else that is not a tensor."""

    @functools.cache
    def plain() -> Any:
        return wanted.adapt(wanted.function)

    @functools.cache
    def jaxs() -> Any:
        try:
            from . import _compiled_jax  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"like: got an array of a JAX without {error.name}; allowed: one that has it",
                name=error.name,
            ) from error
        return _compiled_jax.function(wanted)

    @functools.cache
    def torchs(backward: Callable[..., Any]) -> Any:
        from . import _gradients  # noqa: PLC0415

        of = wanted.function, backward, wanted.to, wanted.adapt
        return _gradients.differentiable(*of).apply

    def called(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        if _has(given, "jax", "Array"):
            return jaxs()(*args, **kwargs)
        if wanted.into:
            raise TypeError(
                f"into: got a call with {', '.join(type(one).__name__ for one in given)}; allowed: "
                "PyTorch's tensors, with op=, or JAX's arrays, whose libraries make the results"
            )
        backward = wanted.backward
        if backward is not None and not kwargs and _has(given, "torch", "Tensor"):
            return torchs(backward)(*args)
        return plain()(*args, **kwargs)

    return called


def _has(given: tuple[Any, ...], library: str, kind: str) -> bool:
    """Return whether an array of the library is among the arguments, or JAX's tracer of one."""
    if (module := _imported(library)) is None:
        return False
    array = getattr(module, kind)
    return any(isinstance(one, array) for one in given)
