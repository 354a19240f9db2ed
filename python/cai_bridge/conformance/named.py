"""Finding adapters: by a library's name, by ``module:factory``, or of a plain function."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from .adapter import ConsumerAdapter, ProducerAdapter, Streams

_A = TypeVar("_A", bound=Streams)


class _Made(ProducerAdapter):
    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self._make(shape, dtype)


class _Taken(ConsumerAdapter):
    def __init__(self, take: Callable[[Any], Any]) -> None:
        self._take = take

    def take(self, x: Any) -> Any:
        return self._take(x)


def as_producer(source: Any, name: str | None = None) -> ProducerAdapter:
    """Make an adapter of a `ProducerAdapter`, of a subclass, or of a function that makes arrays."""
    adapter: ProducerAdapter
    if isinstance(source, ProducerAdapter):
        adapter = source
    elif isinstance(source, type) and issubclass(source, ProducerAdapter):
        adapter = source()
    elif callable(source):
        adapter = _Made(source)
    else:
        raise TypeError(
            f"make: got {type(source).__name__}; allowed: a ProducerAdapter, or a function of a "
            "shape and the name of an element type"
        )
    return _named(adapter, source, name)


def as_consumer(source: Any, name: str | None = None) -> ConsumerAdapter:
    """Make an adapter of a `ConsumerAdapter`, of a subclass, or of a function that takes arrays."""
    adapter: ConsumerAdapter
    if isinstance(source, ConsumerAdapter):
        adapter = source
    elif isinstance(source, type) and issubclass(source, ConsumerAdapter):
        adapter = source()
    elif callable(source):
        adapter = _Taken(source)
    else:
        raise TypeError(
            f"consume: got {type(source).__name__}; allowed: a ConsumerAdapter, or a function of "
            "an array"
        )
    return _named(adapter, source, name)


def _named(adapter: _A, source: Any, name: str | None) -> _A:
    factory = source if isinstance(source, type) or not isinstance(source, Streams) else None
    own = getattr(factory or type(adapter), "__name__", "?")
    module = getattr(factory or type(adapter), "__module__", "?")
    adapter.name = name or adapter.name or own
    adapter.subject = adapter.subject or f"{module}:{own}"
    return adapter


def producer_named(subject: str) -> ProducerAdapter:
    """Find a producer: a library that the kit knows, such as ``"torch"``, or ``module:factory``.

    ``"to_cai(torch)"`` and ``"from_cai(torch)"`` are the views of `cai_bridge` over its arrays.

    Raises
    ------
    ValueError
        No such library, module or factory.
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
        No such library, module or factory.
    """
    adapter = as_consumer(_find(subject, "Consumer"), _library(subject))
    adapter.subject = subject
    return adapter


_BRIDGED: dict[str, Literal["cai", "dlpack"]] = {"to_cai": "cai", "from_cai": "dlpack"}

LIBRARIES: Sequence[str] = (
    *("torch", "jax", "cupy", "numba", "cuda.core", "tvm-ffi", "rmm"),
    "simulated",
)
"""The libraries that the kit has adapters for, by the names that it calls them."""


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
        raise ValueError(
            f"subject: got {subject!r}, but {missing}; allowed: what imports"
        ) from missing
    for part in attribute.split("."):
        if not hasattr(found, part):
            if not colon:
                raise ValueError(f"subject: got {subject!r}, which is no {kind.lower()}")
            raise ValueError(f"subject: got {subject!r}, but {module} has no {attribute!r}")
        found = getattr(found, part)
    return found
