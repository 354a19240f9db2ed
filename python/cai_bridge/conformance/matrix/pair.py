"""One producer and one consumer by one route, for all aspects."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from cai_bridge.testing import describe
from cai_bridge.testing._region import Region
from cai_bridge.testing._values import DTYPES, nested

from ..adapter import ConsumerAdapter, ProducerAdapter
from ..lab import Lab, flat
from ..requirement import NotApplicableError
from .result import Aspect
from .routes import Route

WORDS, FEW = 1 << 15, 64
"""The number of items of arrays with pending work, with and without timing."""


@dataclass(frozen=True)
class Pair:
    """Producer, consumer, route and lab."""

    producer: ProducerAdapter
    consumer: ConsumerAdapter
    route: Route
    lab: Lab

    @property
    def dtype(self) -> str:
        """The element type of arrays for which any type would do."""
        return "float32" if "float32" in self.producer.dtypes else self.producer.dtypes[0]

    @property
    def words(self) -> int:
        """The number of items of arrays with pending work."""
        return WORDS if self.lab.timed else FEW

    @contextlib.contextmanager
    def on(self, theirs: Any, mine: Any) -> Iterator[None]:
        """Make both libraries' streams current, as in a function that works with both."""
        with _on(self.producer, theirs), _on(self.consumer, mine):
            yield

    def hand(self, array: Any, theirs: Any, mine: Any, *, writes: bool = False) -> Any:
        """Make the object that the consumer gets, on the producer's stream.

        If the bridge makes the consumer's array, this returns the array, and each library is on its
        own stream. Unless the consumer `writes`, read-only arrays are passed with
        ``readonly=False``, as users do.
        """
        if self.route.way == "convert":
            with self.on(theirs, mine):
                return self.consumer.convert(array, mine, readonly=None if writes else False)
        if self.route.tells and mine is None:
            raise NotApplicableError("the consumer's streams have no names")
        with _on(self.producer, theirs):
            return self.route.hand(array, mine)

    def take(self, handed: Any) -> Any:
        """Have the consumer import the object."""
        if self.route.way == "convert":
            return handed
        return self.consumer.take_by(self.route.door, handed)

    def passed_on(self, array: Any) -> Any:
        """Hand over an array with nothing pending, and have the consumer read it."""
        mine = self.consumer.stream()
        handed = self.hand(array, None, mine)
        with self.on(None, mine):
            taken = self.take(handed)
            return self.consumer.values(self.consumer.copy(taken))

    def made(self, dtype: str, shape: tuple[int, ...] = (12,)) -> Any:
        """Make an array with nothing pending."""
        array = self.producer.make(shape, dtype)
        self.lab.synchronize()
        return array


def _on(library: ProducerAdapter | ConsumerAdapter, stream: Any) -> AbstractContextManager[Any]:
    return contextlib.nullcontext() if stream is None else library.on(stream)


def place_of(array: Any, dtype: str) -> Region:
    """Find the items of a producer's array, by any of its protocols.

    The element type is `dtype`, since CAI has no names for some types.
    """
    for said in describe(array):
        if said.error is None and None not in (said.ptr, said.shape, said.strides):
            itemsize = DTYPES[dtype].itemsize
            return Region(said.ptr or 0, said.shape or (), said.strides or (), dtype, itemsize)
    raise NotApplicableError("no protocol says where the array is")


def samples(dtype: str, shape: tuple[int, ...], first: int = 1) -> Any:
    """Return values that are small, different, and exact in every type."""
    numbers = range(first, first + math.prod(shape))
    if dtype == "bool":
        return nested((n % 3 == 0 for n in numbers), shape)
    if dtype.startswith("complex"):
        return nested((complex(n, -n) for n in numbers), shape)
    return nested(iter(numbers), shape)


def same(left: Any, right: Any) -> bool:
    """Return whether two nested lists hold the same values."""
    return list(flat(left)) == list(flat(right))


def refusal(error: BaseException) -> Aspect:
    """Return an exception's text in one line, as a refusal."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return Aspect("refused", text if len(text) <= 300 else text[:299] + "…")
