"""Finds adapters by a library's name or by ``module:factory``, or makes one from a function."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from .adapter import ConsumerAdapter, ProducerAdapter, Streams

_A = TypeVar("_A", bound=Streams)
SPOKEN = ("__dlpack__", "__cuda_array_interface__", "__dlpack_c_exchange_api__")


class _Made(ProducerAdapter):
    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    @property
    def source(self) -> Any:
        return self._make

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self._make(shape, dtype)


class _Taken(ConsumerAdapter):
    def __init__(self, take: Callable[[Any], Any]) -> None:
        self._take = take

    @property
    def source(self) -> Any:
        return self._take

    def take(self, x: Any) -> Any:
        return self._take(x)


def as_producer(source: Any, name: str | None = None) -> ProducerAdapter:
    """Return an adapter from a `ProducerAdapter`, a subclass, or a function that makes arrays."""
    allowed = "a ProducerAdapter, or a function of a shape and the name of an element type"
    return _named(_adapted(source, ProducerAdapter, _Made, ("make", allowed)), source, name)


def as_consumer(source: Any, name: str | None = None) -> ConsumerAdapter:
    """Return an adapter from a `ConsumerAdapter`, a subclass, or a function that takes arrays."""
    allowed = "a ConsumerAdapter, or a function of an array"
    adapter = _adapted(source, ConsumerAdapter, _Taken, ("consume", allowed))
    for door in adapter.doors:
        if door not in ("cai", "dlpack"):
            raise ValueError(f"doors: got {door!r}; allowed: 'cai' and 'dlpack'")
    return _named(adapter, source, name)


def _adapted(
    source: Any, kind: type[_A], of_function: Callable[[Any], _A], refusal: tuple[str, str]
) -> _A:
    """Return an adapter of a kind. `refusal` has the argument's name, and the allowed values."""
    argument, allowed = refusal
    if isinstance(source, kind):
        return source
    if isinstance(source, type) and issubclass(source, kind):
        return _made_of(argument, source)
    spoken = array_class(source)
    if spoken:
        raise TypeError(
            f"{argument}: got {_kind(source)}, which is a class of arrays: it has {spoken}; "
            f"allowed: {allowed}"
        )
    # An adapter of the other role may be callable, and is not a function.
    own = source if isinstance(source, type) else type(source)
    if callable(source) and not issubclass(own, Streams):
        return of_function(source)
    raise TypeError(f"{argument}: got {_kind(source)}; allowed: {allowed}")


def array_class(source: Any) -> str:
    """Return the protocol attribute that a class has; empty if it is no class of arrays."""
    if not isinstance(source, type):
        return ""
    return next((name for name in SPOKEN if inspect.getattr_static(source, name, None)), "")


def _kind(source: Any) -> str:
    return f"the class {source.__name__}" if isinstance(source, type) else type(source).__name__


def _made_of(argument: str, kind: type[_A]) -> _A:
    """Make an adapter of a class, whose constructor must need no arguments."""
    if not _can_be_made(kind):
        raise TypeError(f"{argument}: got {_kind(kind)}, which takes arguments; allowed: one of it")
    return kind()


def _can_be_made(kind: type) -> bool:
    try:
        inspect.signature(kind).bind()
    except TypeError:
        return False
    except ValueError:  # a class in C without a signature
        return True
    return True


def _named(adapter: _A, source: Any, name: str | None) -> _A:
    if isinstance(getattr(adapter, "dtypes", ()), str):
        raise TypeError("dtypes: got a str; allowed: a tuple of names")
    factory = type(source) if isinstance(source, Streams) else source
    own = getattr(factory, "__qualname__", type(factory).__name__)
    adapter.name = name or adapter.name or own.rpartition(".")[2]
    adapter.subject = adapter.subject or _subject(factory, own)
    return adapter


def _subject(factory: Any, own: str) -> str:
    """Return the factory's name as ``module:factory``; empty if it does not find the factory."""
    subject = f"{getattr(factory, '__module__', None)}:{own}"
    try:
        found = _find(subject, "") if not subject.startswith(("None:", "__main__:")) else None
    except ValueError:
        return ""
    usable = found is factory and (not isinstance(factory, type) or _can_be_made(factory))
    return subject if usable else ""


def producer_named(subject: str) -> ProducerAdapter:
    """Find a producer: a library that the kit knows, such as ``"torch"``, or ``module:factory``.

    ``"to_cai(torch)"`` and ``"from_cai(torch)"`` are `cai_bridge` views of its arrays.

    Raises
    ------
    ValueError
        There is no such library, module or factory.
    """
    bridge, _, inner = subject.partition("(")
    if bridge in _BRIDGED and inner.endswith(")"):
        from .libraries.bridged import BridgedProducer  # noqa: PLC0415

        bridged = BridgedProducer(producer_named(inner[:-1]), _BRIDGED[bridge])
        bridged.subject = subject
        return bridged
    adapter = as_producer(_find(subject, "Producer"), _library(subject))
    adapter.subject = subject
    return adapter


def consumer_named(subject: str) -> ConsumerAdapter:
    """Find a consumer: a library that the kit knows, such as ``"torch"``, or ``module:factory``.

    Raises
    ------
    ValueError
        There is no such library, module or factory.
    """
    adapter = as_consumer(_find(subject, "Consumer"), _library(subject))
    adapter.subject = subject
    return adapter


_BRIDGED: dict[str, Literal["cai", "dlpack"]] = {"to_cai": "cai", "from_cai": "dlpack"}

LIBRARIES: Sequence[str] = (
    *("torch", "jax", "cupy", "numba", "cuda.core", "tvm-ffi", "rmm"),
    "simulated",
)
"""The names of the libraries that the kit has adapters for."""


def _library(subject: str) -> str | None:
    return None if ":" in subject else subject


def _find(subject: str, kind: str) -> Any:
    module, colon, attribute = subject.partition(":")
    if not colon:
        if subject not in LIBRARIES:
            known = ", ".join(LIBRARIES)
            raise ValueError(f"subject: got {subject!r}; allowed: {known}, or module:factory")
        name = subject.replace(".", "_").replace("-", "_")
        module, attribute = f"cai_bridge.conformance.libraries.{name}", kind
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as missing:
        raise ValueError(f"subject: got {subject!r}, which does not import: {missing}") from missing
    for part in attribute.split("."):
        if not hasattr(found, part):
            if not colon:
                raise ValueError(f"subject: got {subject!r}, which is no {kind.lower()}")
            raise ValueError(f"subject: got {subject!r}, but {module} has no {attribute!r}")
        found = getattr(found, part)
    return found
