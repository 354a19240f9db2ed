"""`adapt(like=)` in JAX: a function of another library inside `jax.jit`.

XLA calls the function through `jax.experimental.buffer_callback`, with XLA's memory and stream.
After the call XLA reuses the memory, so nobody may keep it.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from ._compiled import ADAPTED, Like, check_alike, specs
from ._compiled_buffers import Call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._compiled import Wanted

    Traced = Callable[["Plain", Any], Any]
    """Puts a call with some arrays into the traced program."""

__all__ = ["function"]

LARGEST = 256
"""How many compiled calls outside `jax.jit` are cached, by their plain arguments."""


class Plain(NamedTuple):
    """A call's arguments without its arrays."""

    places: tuple[int, ...]
    """The positions of the arrays among all arguments."""
    others: tuple[tuple[int, type, Any], ...]
    """Each other argument with its position and its type, since 1 and True are equal."""

    @classmethod
    def of(cls, args: tuple[Any, ...]) -> Plain:
        are_arrays = [isinstance(one, jax.Array | np.ndarray) for one in args]
        others = [(at, type(one), one) for at, one in enumerate(args) if not are_arrays[at]]
        return cls(tuple(at for at, is_array in enumerate(are_arrays) if is_array), tuple(others))

    def around(self, arrays: Any) -> list[Any]:
        """Return all arguments, with these arrays in their places."""
        found = dict(zip(self.places, arrays, strict=True))
        found |= {at: one for at, _, one in self.others}
        return [found[at] for at in range(len(found))]

    def behind(self, gradients: int) -> Plain:
        """Return the gradient's arguments: first the results' gradients, then these arguments."""
        places = (*range(gradients), *(at + gradients for at in self.places))
        return Plain(places, tuple((at + gradients, kind, x) for at, kind, x in self.others))


def function(wanted: Wanted) -> Callable[..., Any]:
    """Return the function for JAX's arrays, inside and outside `jax.jit`."""
    if wanted.library.readonly is False:
        raise ValueError(
            f"to: got {wanted.library.name!r} for a function in jax.jit, which writes its results "
            "to memory of XLA's; allowed: a library that writes"
        )
    if wanted.writes:
        raise ValueError(
            "op: got a function that writes its arguments, for JAX's arrays, which never change; "
            "allowed: a function that returns its results"
        )
    traced: Traced = functools.partial(_called, wanted)
    if wanted.backward is not None:
        traced = functools.partial(_differentiable, wanted, wanted.backward)

    @functools.lru_cache(LARGEST)
    def compiled(plain: Plain) -> Any:
        return jax.jit(lambda *arrays: traced(plain, arrays))

    def called(*args: Any, **kwargs: Any) -> Any:
        args = _by_place(wanted, args, kwargs) if kwargs else args
        plain = Plain.of(args)
        arrays = [jnp.asarray(args[at]) for at in plain.places]
        try:
            hash(plain)
        except TypeError:
            return traced(plain, arrays)
        if any(isinstance(one, jax.core.Tracer) for one in arrays):
            return traced(plain, arrays)
        return compiled(plain)(*arrays)

    return called


def _by_place(wanted: Wanted, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    import inspect  # noqa: PLC0415

    bound = inspect.signature(wanted.function).bind_partial(*args, **kwargs)
    if bound.kwargs:
        raise TypeError(
            f"{next(iter(bound.kwargs))}: got an argument by its name alone; allowed: arguments "
            "that have a place"
        )
    return bound.args


def _called(wanted: Wanted, plain: Plain, arrays: Any) -> Any:
    likes = [Like(one.shape, str(one.dtype)) for one in arrays]
    if wanted.into and wanted.like is None:
        check_alike([one.shape for one in likes], [f"argument {at}" for at in plain.places])
    found, is_one = specs(wanted.like, plain.around(likes))
    results = [jax.ShapeDtypeStruct(one.shape, jnp.dtype(one.dtype)) for one in found]
    work = Call(wanted, plain.around, len(arrays))
    call = buffer_callback(
        lambda context, outputs, *inputs: work.run(context, inputs, outputs),
        results,
        vmap_method="sequential",
    )
    made = call(*arrays)
    return made[0] if is_one else tuple(made)


def _differentiable(wanted: Wanted, back: Any, plain: Plain, arrays: Any) -> Any:
    is_adapted = isinstance(back, FunctionType) and back in ADAPTED

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def made(*arrays: Any) -> Any:
        return _called(wanted, plain, arrays)

    def forward(*arrays: Any) -> Any:
        return made(*arrays), arrays

    def backward(arrays: Any, gradients: Any) -> tuple[Any, ...]:
        several = gradients if isinstance(gradients, tuple) else (gradients,)
        if is_adapted:
            found = back(*several, *plain.around(arrays))
        else:
            found = _called(
                _gradient(wanted, back, plain), plain.behind(len(several)), (*several, *arrays)
            )
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != len(arrays):
            raise ValueError(
                f"backward: got {len(found)} gradients; allowed: {len(arrays)}, of the arrays "
                "among the arguments"
            )
        return tuple(map(_tangent, found, arrays))

    made.defvjp(forward, backward)
    return made(*arrays)


def _tangent(gradient: Any, array: Any) -> Any:
    """Return a gradient as JAX expects it: for integers, zeros of the dtype `float0`."""
    if jnp.issubdtype(array.dtype, jnp.inexact):
        return gradient
    return np.zeros(array.shape, jax.dtypes.float0)


def _gradient(wanted: Wanted, back: Callable[..., Any], plain: Plain) -> Wanted:
    """Describe a call of the gradient, which returns a gradient for each array."""
    count = len(plain.places) + len(plain.others)

    def gradients(*args: Any) -> Any:
        found = back(*args)
        found = found if isinstance(found, tuple | list) else (found,)
        if len(found) != count:
            raise ValueError(
                f"backward: got {len(found)} gradients; allowed: {count}, one for each argument"
            )
        return tuple(found[at] for at in plain.places)

    def likes(*args: Any) -> Any:
        arguments = args[-count:]
        return tuple(arguments[at] for at in plain.places)

    return wanted._replace(
        function=gradients, like=likes, into=False, backward=None, is_gradient=True
    )
