"""`adapt`: makes a function for one library's arrays take any library's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

from . import _libraries
from ._calls import Call, binder, is_callback
from ._core import _shown

__all__ = ["adapt"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, overload

    from ._protocols import SupportsCudaStream

    P = ParamSpec("P")
    R = TypeVar("R")
    R_co = TypeVar("R_co", covariant=True)
    Named: TypeAlias = ModuleType | str | type | _libraries.Library
    Stream: TypeAlias = int | SupportsCudaStream | Callable[[], Any] | None
    Gradient: TypeAlias = Callable[..., Any] | None
    Likes: TypeAlias = Callable[..., Any] | None

    class Adapted(Protocol[R_co]):
        """What `adapt` returns: it takes arrays of any library where the function takes its own."""

        def __call__(self, *arguments: object, **named: object) -> R_co: ...

else:
    Any = object  # for `typing.get_type_hints`

if TYPE_CHECKING:

    @overload
    def adapt(
        function: Callable[P, R],
        to: Named = "cai",
        *,
        stream: Stream = None,
        readonly: bool | None = None,
        returns: Named | Literal["like"] | None = "like",
        backward: Gradient = None,
        op: str | None = None,
        like: Likes = None,
        into: bool = False,
    ) -> Adapted[R]: ...

    @overload
    def adapt(
        function: None = None,
        to: Named = "cai",
        *,
        stream: Stream = None,
        readonly: bool | None = None,
        returns: Named | Literal["like"] | None = "like",
        backward: Gradient = None,
        op: str | None = None,
        like: Likes = None,
        into: bool = False,
    ) -> Callable[[Callable[P, R]], Adapted[R]]: ...


def adapt(
    function: Callable[..., Any] | None = None,
    to: Any = "cai",
    *,
    stream: Any = None,
    readonly: bool | None = None,
    returns: Any = "like",
    backward: Callable[..., Any] | None = None,
    op: str | None = None,
    like: Callable[..., Any] | None = None,
    into: bool = False,
) -> Any:
    """Make a function for one library's arrays take any library's, and return the caller's.

    Also a decorator: ``@adapt(to="cupy")``. GPU arrays among the arguments, and trees of them, are
    converted for the call. All other arguments pass unchanged, as does the ``self`` of a method. A
    container with arrays is passed as a copy, so a change that the function makes to the container
    is lost.

    After the call has returned or raised, the caller has the memory back: the stream of each array
    waits for the function's work. This also holds if the function keeps or returns an argument, or
    an array that the bridge made from one. An array that is of the function's library already is
    not converted, and nothing waits for its sake.

    Parameters
    ----------
    function : callable
        A function, a method or a coroutine function. Generators are refused, here or when the call
        returns one by itself, since they would go on working after the memory went back.
    to : module, str or type, optional
        The library whose arrays the function takes, as in `convert`.
    stream : None, int, stream object or callable, optional
        The stream that the function works on, as in `convert`, or a callable without arguments
        that returns it at each call. Results are ready after that stream's work.
    readonly : bool, optional
        As in `convert`. With False you vouch that the function only reads, which JAX's arrays
        require. NumPy's arrays are copies, and read-only by default, since writes to them would be
        lost. Leave it out with `op` or `like`, which say what the function writes.
    returns : str, module, type or None, optional
        The library of the results: ``"like"`` means the library of the first array among the
        arguments. Otherwise name a library as in `convert`, or pass None to return the results
        unchanged, and hand them over yourself. They are unchanged as well if the library of the
        first array is unknown. Results on the host stay there: with ``to="numpy"`` the caller
        always gets NumPy's arrays.
    backward : callable, optional
        The gradient, which makes the function a part of PyTorch's autograd. The bridge calls it
        with the gradients of the results, then the arguments. It returns a gradient or None for
        each argument, and takes arrays of `to`, too. The function's arguments must then be
        positional, and its results an array or a tuple of arrays. Gradients may have strides of 0,
        like the gradient of a sum. ``torch.func.grad``, ``vmap`` and ``jacrev`` work; forward mode
        (``jvp``) is an error. For second derivatives pass an adapted function with a ``backward=``
        of its own, whose gradients are those of the first gradients and then of the arguments.
        Without it they are an error. With ``to="numpy"`` the function gets tensors on the host as
        NumPy's arrays, too.
    op : str, optional
        The name of a PyTorch operator to make of the function, alone (``"mylib::scale"``) or with a
        schema: ``"mylib::scale(Tensor x, float by) -> Tensor"``. It works in
        ``torch.compile(fullgraph=True)``, ``torch.export`` and ``torch.func``. Arguments are
        tensors and plain values. ``Tensor(a!)`` with ``-> ()`` marks what the function writes. Such
        a write is refused if it would lose a gradient, or if elements share memory. A result must
        have memory of its own: a result in an argument's memory is refused.
    like : callable, optional
        What the results look like. It is called with the arguments, in which an array has only its
        `shape` and the name of its `dtype`. It returns one of these arrays, ``(shape, dtype)``, or
        a tuple of them. By default results are like the first array. With `op` or `like` the
        function works in `jax.jit`, too. It must then keep none of the arrays that it is given; JAX
        writes no arguments.
    into : bool, optional
        With `op` or `like`: the function has parameters for the results behind the others, writes
        to these and returns None. PyTorch and JAX allocate them, also inside a CUDA graph, which is
        best for kernels. Without it JAX's results are copied, and PyTorch splits a graph at the
        call.

    Returns
    -------
    callable
        A function with the name, signature and docstring of `function`. For a type checker it takes
        any arguments and returns what `function` is annotated with, so annotate the result with
        what the callers have.

    Raises
    ------
    TypeError, ValueError
        `function` cannot be adapted, `stream` is not a stream, `readonly` not a bool, or `op` not a
        schema. The returned function raises what `convert` raises, with the name of the argument.
        With `op` or `like` it raises ValueError for results that differ from `like`, BufferError
        for results in an argument's memory, and RuntimeError for a gradient that would be lost.

    Examples
    --------
    A function of CuPy's arrays that takes and returns tensors::

        @adapt(to="cupy")
        def scaled(x, by):
            return x * by

        y = scaled(tensor, 2.0)  # a torch.Tensor
    """
    again = functools.partial(
        adapt,
        to=to,
        stream=stream,
        readonly=readonly,
        returns=returns,
        backward=backward,
        op=op,
        like=like,
        into=into,
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

    # Calling an object runs its class's ``__call__``.
    both = function, type(function).__call__
    if any(map(inspect.isgeneratorfunction, both)) or any(map(inspect.isasyncgenfunction, both)):
        raise TypeError(
            "function: got a generator function; allowed: functions, methods and coroutines"
        )
    # A call may have no array, so check these two arguments now.
    _libraries.find(to).converter.admit(None if is_callback(stream) else stream, readonly)
    is_like = isinstance(returns, str) and returns == "like"
    if not (is_like or returns is None):
        _libraries.find(returns, "returns")
    is_traced = not (op is None and like is None)
    if backward is not None and not callable(backward):
        raise TypeError(f"backward: got {_shown(backward):.80}; allowed: None or a callable")
    if not is_like and (is_traced or backward is not None):
        asked = "op= or like=" if is_traced else "backward="
        raise TypeError(f"returns: got {_shown(returns):.80}; allowed: 'like', if {asked} is given")
    if into and not is_traced:
        raise TypeError(f"into: got {_shown(into):.80}; allowed: False, without op= and like=")
    if is_traced:
        return _traced(function, to, stream, readonly, (op, like, into, backward))
    if backward is not None:
        return _differentiable(function, backward, to, stream)
    call = Call(function, to, stream, readonly, returns)
    adapts = _awaited if any(map(inspect.iscoroutinefunction, both)) else _called
    kept = 1 if _is_method(function, call.names) else 0
    call.binds = binder(function, kept)
    return adapts(function, call, kept)


def _names(function: Any) -> tuple[str, ...]:
    """List the attributes that a wrapper copies from a function; fewer for `type` from 3.12 on."""
    # An object may have any attribute, but a function's attributes have these types.
    kinds = {
        "__name__": str,
        "__qualname__": str,
        "__type_params__": tuple,
        "__annotations__": dict,
    }
    return tuple(
        name
        for name in functools.WRAPPER_ASSIGNMENTS
        if name not in kinds or isinstance(getattr(function, name, kinds[name]()), kinds[name])
    )


def _called(function: Any, call: Call, kept: int) -> Callable[..., Any]:
    @functools.wraps(function, assigned=_names(function))
    def called(*args: Any, **kwargs: Any) -> Any:
        with call.converted(args, kwargs, kept) as now:
            return now.give(function(*now.left.pop(0), **now.left.pop(0)))

    return called


def _awaited(function: Any, call: Call, kept: int) -> Callable[..., Any]:
    @functools.wraps(function, assigned=_names(function))
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        with call.converted(args, kwargs, kept) as now:
            return now.give(await function(*now.left.pop(0), **now.left.pop(0)))

    return awaited


def _is_method(function: Any, names: list[str]) -> bool:
    """Return whether a function is written as a method: in a class, with `self` first."""
    name = getattr(function, "__qualname__", "")
    around = name.rpartition(".")[0] if isinstance(name, str) else ""
    return names[:1] == ["self"] and around != "" and not around.endswith("<locals>")


def _traced(
    function: Callable[..., Any], to: Any, stream: Any, readonly: Any, asked: tuple[Any, ...]
) -> Any:
    from . import _compiled, _compilers

    if readonly is not None:
        raise TypeError(
            f"readonly: got {_shown(readonly):.80}; allowed: None, with op= or like=, by which you "
            "say what the function writes"
        )
    op, like, into, backward = asked
    plain = functools.partial(adapt, to=to, stream=stream, readonly=False)
    wraps = functools.wraps(function, assigned=_names(function))
    wanted = _compiled.Wanted(function, to, plain, wraps, like, into, backward, stream)
    return _compilers.compiled(wanted, op)


def _differentiable(
    function: Callable[..., Any], backward: Callable[..., Any], to: Any, stream: Any
) -> Any:
    try:
        from . import _gradients
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "backward: got a callable, and PyTorch is not installed; allowed: None, or a callable "
            "with PyTorch, whose autograd calls it",
            name=error.name,
        ) from error

    plain = functools.partial(adapt, to=to, stream=stream)
    adapted = _gradients.differentiable(function, backward, to, plain)
    apply = _gradients.undisturbed(adapted.apply)

    @functools.wraps(function, assigned=_names(function))
    def called(*inputs: Any) -> Any:
        return apply(*inputs)

    _gradients.DIFFERENTIABLE[called] = adapted
    return called
