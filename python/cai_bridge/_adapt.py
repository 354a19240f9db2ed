"""`adapt`: a function of one library's arrays for callers who have another's."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType, ModuleType
from typing import Any

from . import _libraries, _trees
from ._convert import convert_leaves, detached
from ._core import CaiView, DLPackView, _unraisable

__all__ = ["adapt"]


def adapt(
    function: Callable[..., Any] | None = None,
    to: Any = "cai",
    *,
    stream: Any = None,
    readonly: bool | None = None,
    returns: Any = "like",
    backward: Callable[..., Any] | None = None,
) -> Any:
    """Make a function for one library's arrays take any library's, and return the caller's.

    Also a decorator: ``@adapt(to="cupy")``. Arguments that are arrays on a GPU, or trees of them,
    are converted for the call; all others pass as they are. When the call has returned, or raised,
    the memory is the caller's again: the stream of each array waits for the function's work, also
    where the function keeps or returns what it was given, or what it made of a view that it was
    given.

    Parameters
    ----------
    function : callable
        A function, a method or a coroutine function. Generators are refused, here or when the call
        returns one: they would go on working after the memory went back.
    to : module, str or type, optional
        The library whose arrays the function takes, as in `convert`.
    stream : None, int, stream object or callable, optional
        The stream that the function works on, as in `convert`, or a callable without arguments
        that returns it at each call. Results are ready after that stream's work.
    readonly : bool, optional
        As in `convert`: with False you vouch that the function only reads, as JAX's arrays
        require. NumPy's arrays are copies, and read-only by default, since what the function
        writes to them would be lost.
    returns : str, module, type or None, optional
        The library of the results: ``"like"`` the first array among the arguments, another
        library as in `convert`, or None to return them unchanged.
    backward : callable, optional
        The gradient, which makes the function a part of PyTorch's autograd. The bridge calls it
        with the gradients of the results and then the arguments; it returns a gradient, or None,
        for each argument. It takes arrays of `to`, too. Arguments are then positional, and
        gradients may have strides of 0, as the gradient of a sum has.

    Returns
    -------
    callable
        A function with the name, signature and docstring of `function`.

    Raises
    ------
    TypeError
        `function` cannot be adapted. The returned function raises what `convert` raises, with the
        name of the argument.
    """
    again = functools.partial(
        adapt, to=to, stream=stream, readonly=readonly, returns=returns, backward=backward
    )
    if function is None:
        return again
    if isinstance(function, staticmethod | classmethod):
        return type(function)(again(function.__func__))
    if not callable(function):
        hint = ""
        if isinstance(function, str | ModuleType):
            hint = "; the library goes by its name: adapt(to='cupy')"
        raise TypeError(f"function: got {type(function).__name__}; allowed: a callable{hint}")
    import inspect

    # An object is called by what its class has.
    both = function, type(function).__call__
    if any(map(inspect.isgeneratorfunction, both)) or any(map(inspect.isasyncgenfunction, both)):
        raise TypeError(
            "function: got a generator function; allowed: functions, methods and coroutines"
        )
    _libraries.find(to)
    if returns not in ("like", None):
        try:
            _libraries.find(returns)
        except TypeError as error:
            raise TypeError(str(error).replace("to:", "returns:", 1)) from None
    if backward is not None:
        if returns != "like":
            raise TypeError(f"returns: got {returns!r:.80}; allowed: 'like', if backward= is given")
        return _differentiable(function, backward, to, stream)
    call = _Call(function, to, stream, readonly, returns)
    if any(map(inspect.iscoroutinefunction, both)):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            with call.converted(args, kwargs) as now:
                return now.give(await function(*now.args(), **now.kwargs()))

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with call.converted(args, kwargs) as now:
            return now.give(function(*now.args(), **now.kwargs()))

    return called


class _Call:
    """What is done before and after every call of a function."""

    def __init__(
        self, function: Any, to: Any, stream: Any, readonly: bool | None, returns: Any
    ) -> None:
        self.library, self.stream, self.returns = _libraries.find(to), stream, returns
        self.makes_views = self.library.view in self.library.types
        self.readonly = True if readonly is None and self.library.name == "numpy" else readonly
        self.names = _names(function)

    def converted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Now:
        """Convert all arguments at once, for the ``with`` block of one call."""
        asked = self.stream
        stream = asked() if callable(asked) and not hasattr(asked, "__cuda_stream__") else asked
        now = _Now(stream)
        how = self.names, stream, self.readonly, now.lent
        plain = self.library.maker.arguments((args, kwargs), *how)
        if plain is not None:
            now.left[:], first, made = plain
            arrays = [first]
        else:
            arrays, made = self._by_plans(args, kwargs, now)
        now.like = self._like(arrays)
        if self.makes_views:
            now.views = [weakref.ref(one) for one in made if isinstance(one, (CaiView, DLPackView))]
        return now

    def _by_plans(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], now: _Now
    ) -> tuple[list[Any], list[Any]]:
        """Convert arguments of all kinds. Gives their arrays, and what was made of them."""
        leaves = _trees.Leaves()
        by_place = [
            _trees.plan(x, _trees.parameter(self.names, number), leaves)
            for number, x in enumerate(args)
        ]
        by_name = {name: _trees.plan(x, name, leaves) for name, x in kwargs.items()}
        made = convert_leaves(
            leaves, self.library, stream=now.stream, readonly=self.readonly, lent=now.lent
        )
        new = iter(made)
        now.left += [tuple(again(new) for again in by_place)]
        now.left += [{name: again(new) for name, again in by_name.items()}]
        return leaves.arrays, made

    def _like(self, arrays: list[Any]) -> _libraries.Library | None:
        if self.returns != "like":
            return None if self.returns is None else _libraries.find(self.returns)
        return _libraries.of_array(arrays[0]) if arrays else None


class _Now:
    """One call: its arguments, which are handed out once, and what comes of its result.

    The function alone holds the arguments: what it drops has ended when it returns. What is left is
    given back when the ``with`` block is over.
    """

    def __init__(self, stream: Any) -> None:
        self.like: _libraries.Library | None = None
        self.stream = stream
        self.left: list[Any] = []
        self.lent: list[Any] = []
        self.views: list[weakref.ref[CaiView | DLPackView]] = []

    def __enter__(self) -> _Now:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # The traceback keeps them, for as long as somebody keeps that.
        alive = [one() for one in self.views] if kind is not None else []
        self.left.clear()
        failed: BaseException | None = None
        for end in [*(view.release for view in alive if view is not None), *self.lent]:
            try:
                end()
            except BaseException as error:
                # The others' memory goes back all the same.
                failed = failed or error
        if failed is None:
            return
        if kind is None or not isinstance(failed, Exception):
            raise failed
        # What the function raised goes before.
        _unraisable(failed)

    def args(self) -> tuple[Any, ...]:
        return self.left.pop(0)  # type: ignore[no-any-return]

    def kwargs(self) -> dict[str, Any]:
        return self.left.pop(0)  # type: ignore[no-any-return]

    def give(self, result: Any) -> Any:
        """Convert what came of the call, which was made on its stream if there is one."""
        if type(result) in _trees.PLAIN:
            return result
        _refuse_unfinished(result)
        if self.like is None:
            return result
        if self.stream is None:
            made = self.like.maker.result(result, "the result")
            if made is not None:
                return made
        leaves = _trees.Leaves()
        rebuild = _trees.plan(result, "the result", leaves)
        if not leaves.arrays:
            return result
        return rebuild(iter(convert_leaves(leaves, self.like, made_on=self.stream)))


def _refuse_unfinished(result: Any) -> None:
    """Refuse a result whose work is still to come; a generator or a coroutine is closed."""
    kind = type(result)
    # What `contextlib.contextmanager` makes holds one.
    inner = result.gen if kind.__module__ == "contextlib" and hasattr(result, "gen") else result
    if not isinstance(inner, (GeneratorType, CoroutineType, AsyncGeneratorType)):
        if not hasattr(kind, "__await__"):
            return
    elif isinstance(inner, AsyncGeneratorType):
        with contextlib.suppress(StopIteration):
            inner.aclose().send(None)
    else:
        inner.close()
    raise TypeError(
        f"function: got one that returned a {kind.__name__}; allowed: functions whose work is done "
        "when they return, and coroutine functions"
    )


def _names(function: Any) -> list[str]:
    """Name the parameters that take arguments by their places, as far as the function says."""
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    by_place = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [one.name for one in parameters if one.kind in by_place]


def _differentiable(function: Any, backward: Any, to: Any, stream: Any) -> Any:
    import torch
    from torch.autograd.function import once_differentiable

    forwards = adapt(function, to, stream=stream, returns=torch.Tensor)
    backwards = adapt(backward, to, stream=stream, returns=torch.Tensor)

    class Adapted(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            are_tensors = [isinstance(one, torch.Tensor) for one in inputs]
            ctx.save_for_backward(*itertools.compress(inputs, are_tensors))
            ctx.others = [
                None if is_tensor else one
                for one, is_tensor in zip(inputs, are_tensors, strict=True)
            ]
            ctx.are_tensors = are_tensors
            return forwards(*map(detached, inputs))

        @staticmethod
        @once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, *gradients: Any) -> Any:
            tensors = iter(ctx.saved_tensors)
            inputs = [
                detached(next(tensors)) if is_tensor else other
                for other, is_tensor in zip(ctx.others, ctx.are_tensors, strict=True)
            ]
            return backwards(*map(detached, gradients), *inputs)

    @functools.wraps(function)
    def called(*inputs: Any) -> Any:
        return Adapted.apply(*inputs)

    return called
