"""`adapt(op=)`: a function as a PyTorch operator, which PyTorch's compilers do not look into.

Compiled and exported programs contain the operator. `torch.library` knows what it returns, its
gradient, and its rule for `vmap`. In front of the operator is a `torch.autograd.Function`: without
it `torch.func.grad` raises, and forward mode silently returns tangents of zeros.
"""

from __future__ import annotations

import weakref
from types import FunctionType
from typing import NamedTuple

import torch

from . import _compiled_results as results
from ._compiled import check_takes, check_writes
from ._compiled_calls import implementation, with_tensors
from ._compiled_direct import any_requires_grad, below_autograd, is_dual
from ._compiled_front import WRITTEN_FORWARD, front
from ._compiled_schema import Schema, backwards, parsed
from ._gradients import each, function_of, refusing, undisturbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._compiled import Wanted

__all__ = ["operator"]


class Operator(NamedTuple):
    """An operator, and the autograd Function in front of it, if it returns something."""

    defined: Defined
    schema: Schema
    overload: Any
    function: Any


SECOND = (
    "got a second derivative to compute; allowed: first ones, or a function for backward= that is "
    "adapted with an op= and a backward= of its own"
)

WRITTEN = (
    "got a gradient to compute for a function that writes its arguments; allowed: tensors that "
    "require none (x.detach()), torch.no_grad(), or a function that returns its results, with "
    "backward="
)

_DEFINED: dict[str, Defined] = {}
"""The operators by name."""
_OPERATORS: weakref.WeakKeyDictionary[Any, Operator] = weakref.WeakKeyDictionary()
"""The operators by adapted function."""


def operator(
    wanted: Wanted, op: Any, untyped: Callable[[Wanted], Callable[..., Any]]
) -> Callable[..., Any]:
    """Register the operator, and return the function in front of it and of `untyped`."""
    schema = parsed(op, wanted.function, 1 if wanted.into else 0)
    if schema.writes:
        check_writes(wanted.library, "op", f"a function that writes {_first_written(schema)}")
    if wanted.into and schema.writes:
        raise ValueError("into: got True for a function without results; allowed: False")
    if wanted.backward is not None and schema.writes:
        raise ValueError(
            f"backward: got a callable for a function that writes {_first_written(schema)}; "
            "allowed: None, or a function that returns its results"
        )
    _check_takes(wanted, schema)
    back = None if wanted.backward is None else _backward(wanted, schema)
    made = _registered(wanted, schema, implementation(wanted, schema), back)
    adapted: Callable[..., Any] = wanted.wraps(
        front(made, untyped(wanted._replace(writes=schema.writes)))
    )
    _OPERATORS[adapted] = made
    return adapted


def _check_takes(wanted: Wanted, schema: Schema) -> None:
    outputs = [f"result {number}" for number in range(schema.results)] if wanted.into else []
    hint = ""
    if outputs:
        hint = ", which the function writes with into=True"
    elif schema.results:
        hint = "; into=True, if it has parameters for the results behind these"
    check_takes(wanted.function, "function", [*schema.names, *outputs], hint)


def _first_written(schema: Schema) -> str:
    return schema.names[schema.written.index(True)]


class Defined:
    """An operator known to PyTorch, with its present implementation: it may be adapted again.

    Its definition stays: a call of a removed operator would crash.
    """

    def __init__(self, schema: Schema, into: bool) -> None:
        self.schema, self.into = schema, into
        self.implementation: Callable[..., Any]
        """The operator's implementation, for tensors below autograd."""
        self.alone = undisturbed(self._alone)
        """The implementation for calls that nothing follows."""
        self.like: Any
        self.function: Any = None
        space, _, name = schema.name.partition("::")
        # A graph does not own memory that CuPy allocates in a capture, so PyTorch splits its graph
        # here.
        tags = [torch.Tag.pt2_compliant_tag]
        if not into and hasattr(torch.Tag, "cudagraph_unsafe"):
            tags.append(torch.Tag.cudagraph_unsafe)
        # `aten::add` has only overloads. A further one beside them would break every compiled
        # program.
        if torch._C._jit_get_schemas_for_operator(schema.name):
            raise ValueError(
                f"op: got {schema.name!r}, which is another library's; allowed: a name of your own"
            )
        self.library = torch.library.Library(space, "FRAGMENT")
        self.library.define(name + schema.text, tags=tags)
        self.overload = getattr(getattr(torch.ops, space), name).default
        self.library.impl(name, undisturbed(self._called), "CompositeExplicitAutograd")
        torch.library.register_fake(schema.name, self._fake, lib=self.library)
        if schema.writes:
            self._refuse_gradients()
        else:
            self._follow()

    def _called(self, *args: Any) -> Any:
        return self.implementation(*self.schema.filled(args))

    def _alone(self, *args: Any) -> Any:
        # The function may use tensors of its own.
        with below_autograd():
            return self.implementation(*args)

    def _fake(self, *args: Any) -> Any:
        return results.promised(self.schema, self.schema.filled(args), self.like, self.into)

    def _refuse_gradients(self) -> None:
        """Refuse gradients and tangents: PyTorch would lose them at memory that is written."""
        name, overload = self.schema.name, self.overload
        below = torch._C._after_autograd_keyset

        def checked(keyset: Any, *args: Any) -> Any:
            if torch.is_grad_enabled() and any_requires_grad(args):
                raise RuntimeError(f"{name}: {WRITTEN}")
            if any(map(is_dual, args)):
                raise NotImplementedError(f"{name}: {WRITTEN_FORWARD}")
            with below_autograd():
                return overload.redispatch(keyset & below, *args)

        self.library.impl(name.partition("::")[2], checked, "Autograd", with_keyset=True)

    def _follow(self) -> None:
        """Register the gradient for callers of `torch.ops`, such as an exported program."""

        def backward(ctx: Any, *gradients: Any) -> Any:
            return self.function.backward(ctx, *gradients)

        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            self.function.setup_context(ctx, inputs, output)

        def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
            return each(self.overload, info.batch_size, in_dims, args)

        name, library = self.schema.name, self.library
        torch.library.register_autograd(name, backward, setup_context=setup_context, lib=library)
        torch.library.register_vmap(name, vmap, lib=library)


def _registered(
    wanted: Wanted,
    schema: Schema,
    function: Callable[..., Any],
    back: Operator | None,
    refusal: str = "got a gradient to compute; allowed: backward=, or arguments that require none",
) -> Operator:
    defined = _DEFINED.get(schema.name)
    if defined is None:
        defined = _DEFINED[schema.name] = Defined(schema, wanted.into)
    elif (defined.schema, defined.into) != (schema, wanted.into):
        raise ValueError(
            f"op: got {schema.name}{schema.text} with into={wanted.into}, which is there with "
            f"{defined.schema.text} and into={defined.into}; allowed: the same again, or another "
            "name"
        )
    defined.implementation, defined.like = function, wanted.like
    overload = defined.overload
    if schema.writes:
        return Operator(defined, schema, overload, None)
    refused = refusing(f"{schema.name}: {refusal}")
    gradient = refused if back is None else _expanding(back, schema.tensors)
    defined.function = function_of(overload, gradient, schema.names)
    return Operator(defined, schema, overload, defined.function)


def _expanding(back: Operator, tensors: tuple[bool, ...]) -> Callable[..., Any]:
    """Return the gradient of each argument; the operator has only those of the tensors."""
    overload, apply = back.overload, back.function.apply

    def gradients(*args: Any) -> Any:
        # Inside a backward Dynamo can trace the operator, but not an autograd Function.
        made = overload(*args) if torch.compiler.is_compiling() else apply(*args)
        if isinstance(made, torch.Tensor):
            made = (made,)
        found, at = [], 0
        for is_tensor in tensors:
            found.append(made[at] if is_tensor else None)
            at += is_tensor
        return tuple(found)

    return gradients


def _backward(wanted: Wanted, schema: Schema) -> Operator:
    """Return the operator of the gradients: the caller's own, or one made of a function."""
    backward: Any = wanted.backward
    found = _OPERATORS.get(backward) if isinstance(backward, FunctionType) else None
    text = backwards(schema)
    if found is not None:
        takes = len(schema.names) + schema.results
        if len(found.schema.names) != takes or found.schema.results != sum(schema.tensors):
            raise ValueError(
                f"backward: got {found.schema.name}{found.schema.text}; allowed: an operator that "
                f"takes and returns as many as {text}"
            )
        return found
    of = parsed(text, backward, 0)
    inner = with_tensors(wanted, backward, of.places)

    def likes(*args: Any) -> Any:
        return tuple(_of_tensors(args[schema.results :], schema))

    def gradients(*args: Any) -> Any:
        made = inner(*args)
        made = made if isinstance(made, tuple | list) else (made,)
        if len(made) != len(schema.names):
            raise ValueError(
                f"backward: got {len(made)} gradients; allowed: {len(schema.names)}, one for each "
                "argument"
            )
        kept = results.filled(_of_tensors(made, schema), args, likes(*args))
        return results.checked(of, kept, args, likes)

    own = wanted._replace(like=likes, into=False)
    return _registered(own, of, gradients, None, SECOND)


def _of_tensors(values: Any, schema: Schema) -> list[Any]:
    """Return the values that belong to the tensors among the arguments."""
    return [one for one, is_tensor in zip(values, schema.tensors, strict=True) if is_tensor]
