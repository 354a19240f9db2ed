"""`cai_bridge` views of another producer's arrays, as a producer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal

from cai_bridge import from_cai, to_cai

from ..adapter import ProducerAdapter
from ..lab import Lab, Late
from ..stand_in import DLPACK, EXCHANGE, speaks


class BridgedProducer(ProducerAdapter):
    """Hands out views in place of the arrays.

    Parameters
    ----------
    inner : ProducerAdapter
        The producer of the arrays.
    door : str
        ``"cai"`` for views of `to_cai`, ``"dlpack"`` for views of `from_cai`. If the arrays speak
        DLPack, `from_cai` gets a `to_cai` view, since the arrays' own dicts may name no stream.
    """

    def __init__(self, inner: ProducerAdapter, door: Literal["cai", "dlpack"]) -> None:
        if door not in ("cai", "dlpack"):
            raise ValueError(f"door: got {door!r}; allowed: 'cai' or 'dlpack'")
        self._inner = inner
        self._door = door
        self.dtypes, self.immutable = inner.dtypes, inner.immutable
        self.name = f"{'to_cai' if door == 'cai' else 'from_cai'}({inner.name})"

    def view(self, array: Any, **arguments: Any) -> Any:
        """Make a view, on the library's current stream."""
        if self._door == "cai":
            return to_cai(array, **arguments)
        by_dlpack = speaks(array, DLPACK) or speaks(array, EXCHANGE)
        source = to_cai(array) if by_dlpack else array
        return from_cai(source, **arguments)

    def _like(self, view: Any, array: Any) -> Any:
        """Make a view that is read-only if the other view is."""
        return self.view(array, readonly=True) if view.readonly else self.view(array)

    def stream(self) -> Any:
        """Make a stream of the library."""
        return self._inner.stream()

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the library's current one."""
        return self._inner.on(stream)

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Make a view that holds the only reference to its array."""
        return self.view(self._inner.make(shape, dtype))

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        """Make a view of an array of one value."""
        return self.view(self._inner.full(shape, dtype, value))

    def fill(self, array: Any, value: float) -> None:
        """Queue a write to the array behind the view."""
        self._inner.fill(array.owner, value)

    def strided(self, array: Any) -> Any:
        """Make a view of every second column of the array."""
        return self._like(array, self._inner.strided(array.owner))

    def sliced(self, array: Any) -> Any:
        """Make a view of all rows but the first."""
        return self._like(array, self._inner.sliced(array.owner))

    def reversed(self, array: Any) -> Any:
        """Make a view of the rows in reverse order."""
        return self._like(array, self._inner.reversed(array.owner))

    def index(self, array: Any, key: tuple[slice, ...]) -> Any:
        """Make a view of a slice of the array."""
        return self._like(array, self._inner.index(array.owner, key))

    def permuted(self, array: Any, axes: tuple[int, ...]) -> Any:
        """Make a view of the array with its axes in another order."""
        return self._like(array, self._inner.permuted(array.owner, axes))

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Make a view of the array with repeated axes."""
        return self._like(array, self._inner.broadcast(array.owner, shape))

    def copy(self, array: Any) -> Any:
        """Make a view of a copy of the array."""
        return self.view(self._inner.copy(array.owner))

    def renewed(self, array: Any) -> Any:
        """Make another view of the array, which covers later work as well."""
        return self._like(array, array.owner)

    def readonly(self, array: Any) -> Any:
        """Make a read-only view of a view."""
        return self.view(array, readonly=True)

    def lazy(self) -> Iterator[tuple[str, Any, Any]]:
        """Make views of the library's lazy arrays, where `to_cai` or `from_cai` takes them."""
        for name, array, values in self._inner.lazy():
            try:
                view = self.view(array)
            except BufferError as refused:
                view = refused
            yield name, view, values

    def late(self, lab: Lab, value: float, words: int | None = None) -> Late:
        """Make the view after the write is queued: it is ready on the stream of that time."""
        return self._viewed(self._inner.late(lab, value, words))

    def late_on_two(self, lab: Lab, value: float, streams: int = 2) -> Late:
        """Make the view after all writes are queued."""
        return self._viewed(self._inner.late_on_two(lab, value, streams))

    def _viewed(self, late: Late) -> Late:
        with self._inner.on(late.stream):
            view = self.view(late.array)
        return Late(view, late.stream, late.value, late.hold, late.keep)
