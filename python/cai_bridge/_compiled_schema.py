"""The schema of `op=`: a PyTorch operator's arguments, writes and results."""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

import torch

from ._core import _shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Schema", "backwards", "parsed"]

# An int may be a size, which is symbolic while a program is traced.
_PLAIN = {bool: "bool", int: "SymInt", float: "float", str: "str"}
_DEFAULT = re.compile(r"""=("[^"]*"|'[^']*'|\[[^\]]*\]|[^,]+)""")


class Schema(NamedTuple):
    """An operator's arguments, by position, and its number of results."""

    name: str
    text: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    tensors: tuple[bool, ...]
    written: tuple[bool, ...]
    defaults: tuple[Any, ...]
    """The defaults of the last arguments."""
    results: int

    @property
    def writes(self) -> bool:
        return any(self.written)

    def filled(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add the defaults, which PyTorch's dispatcher leaves out even if a caller passed them."""
        missing = len(self.names) - len(args)
        return (*args, *self.defaults[-missing:]) if missing else args

    @property
    def places(self) -> list[int]:
        """The positions of the tensors among the arguments."""
        return [at for at, is_tensor in enumerate(self.tensors) if is_tensor]


def parsed(op: Any, function: Callable[..., Any], outputs: int) -> Schema:
    """Read a schema, or make one from the function; its last parameters may be outputs."""
    match = re.fullmatch(r"(\w+::\w+)\s*(\(.*\)\s*->\s*.+)?", op) if isinstance(op, str) else None
    if match is None:
        raise ValueError(
            f"op: got {_shown(op):.80}; allowed: 'namespace::name', alone or with a schema of "
            "torch.library behind it, as 'mylib::scale(Tensor x, float by) -> Tensor'"
        )
    name, text = match[1], match[2] or _inferred(function, match[1], outputs)
    try:
        schema = torch._C.parse_schema(name + text)
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"op: got {_shown(op):.200}; allowed: a schema of torch.library: {first}"
        ) from error
    return _checked(name, text, schema)


def _checked(name: str, text: str, schema: Any) -> Schema:
    for one in schema.arguments:
        if "Tensor" in str(one.type) and str(one.type) != "Tensor":
            raise ValueError(
                f"op: got {one.type} {one.name}; allowed: arguments of the type Tensor, and plain "
                "values"
            )
        if one.kwarg_only:
            raise ValueError(f"op: got {one.name} behind *; allowed: arguments by place")
    for one in schema.returns:
        if str(one.type) != "Tensor" or one.alias_info is not None:
            raise ValueError(
                f"op: got -> {text.rpartition('->')[2].strip()}; allowed: -> Tensor, a tuple of "
                "Tensor without an alias, or -> () for a function that writes its arguments"
            )
    tensors = tuple(str(one.type) == "Tensor" for one in schema.arguments)
    written = tuple(
        one.alias_info is not None and one.alias_info.is_write for one in schema.arguments
    )
    if not any(tensors):
        raise ValueError(f"op: got {text}; allowed: one Tensor at least among the arguments")
    if not (schema.returns or any(written)):
        raise ValueError(f"op: got {text}; allowed: a result, or Tensor(a!) that is written")
    if schema.returns and any(written):
        raise ValueError(
            f"op: got {text}; allowed: results, or Tensor(a!) with -> (), which PyTorch's "
            "compilers know"
        )
    return Schema(
        name,
        text,
        tuple(one.name for one in schema.arguments),
        # An argument of the type `ScalarType` is an int by its other type.
        tuple(str(one.real_type) for one in schema.arguments),
        tensors,
        written,
        tuple(one.default_value for one in schema.arguments if one.has_default_value()),
        len(schema.returns),
    )


def _inferred(function: Callable[..., Any], name: str, outputs: int) -> str:
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    by_place = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    if not parameters or any(one.kind not in by_place for one in parameters):
        raise ValueError(
            f"op: got {name!r} for a function whose parameters do not tell the schema; allowed: "
            f"all of it, as '{name}(Tensor x, float by) -> Tensor'"
        )
    parts = []
    for one in parameters[: len(parameters) - outputs]:
        has_default = one.default is not one.empty
        # An annotation may be text.
        named = {kind.__name__: plain for kind, plain in _PLAIN.items()}
        kind = named.get(one.annotation) if isinstance(one.annotation, str) else None
        kind = kind or _PLAIN.get(one.annotation) or _PLAIN.get(type(one.default))
        default = f"={one.default!r}" if has_default and kind is not None else ""
        parts.append(f"{kind or 'Tensor'} {one.name}{default}")
    return f"({', '.join(parts)}) -> Tensor"


def backwards(schema: Schema) -> str:
    """Return the schema of the gradient: it takes the results' gradients, then the arguments."""
    inside = schema.text.partition("(")[2].rpartition("->")[0].rpartition(")")[0]
    arguments = _DEFAULT.sub("", inside)
    gradients = ", ".join(f"Tensor grad_{number}" for number in range(schema.results))
    count = sum(schema.tensors)
    returns = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return f"{schema.name}_backward({gradients}, {arguments}) -> {returns}"
