"""What the kit must know about a library: how to make, fill, import and read an array.

Only a producer's `make` and a consumer's `take` are required. If an adapter lacks a member that a
requirement needs, the requirement is skipped, and the report names the member.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from cai_bridge import convert

from .lab import Hold, Lab, Late, handle_of
from .missing import missing
from .places import (
    BEFORE,
    NOT_SO,
    REVERSED,
    ROWS,
    SECOND_COLUMNS,
    called_with,
    expect_behind,
    place_of_items,
    shared_places,
    sliced_by,
)
from .requirement import NotApplicableError
from .stand_in import speaking_only


class Streams:
    """The streams of a library, for producers and consumers."""

    name: str = ""
    subject: str = ""

    @property
    def source(self) -> Any:
        """The class, or the function, that the adapter's author wrote."""
        return type(self)

    def stream(self) -> Any:
        """Make a stream of the library: an int, or an object with ``__cuda_stream__``.

        None if the library has no streams that a caller can name.
        """
        return None

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the library's current one, as a context manager.

        By default the stream itself is entered, as in CuPy. For None nothing changes.
        """
        if hasattr(stream, "__enter__"):
            return stream  # type: ignore[no-any-return]
        if stream is None:
            return contextlib.nullcontext()
        # Without this error the kit would judge work on the default stream instead.
        raise missing(self, "on(stream)", "and its streams are no context managers")

    def on_device(self, ordinal: int) -> AbstractContextManager[Any]:
        """Make a device the library's current one, as a context manager."""
        del ordinal
        raise missing(self, "on_device(ordinal)")

    def entered(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the current one; for None do nothing, whatever `on` does with None."""
        return contextlib.nullcontext() if stream is None else self.on(stream)


class ProducerAdapter(Streams):
    """A library as a producer; subclass it, and define at least `make`.

    Attributes
    ----------
    name : str
        The library's name in reports.
    dtypes : tuple of str
        The element types that `make` knows, by NumPy's or ``ml_dtypes``' names.
    immutable : bool
        Whether arrays are never written after they are made, as in JAX. The kit then writes to
        none.
    """

    dtypes: tuple[str, ...] = ("float32",)
    immutable: bool = False

    def make(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Make a C-contiguous array in GPU memory, with any values.

        Parameters
        ----------
        shape : tuple of int
            The extents, in items; may be empty, and hold zeros.
        dtype : str
            One of `dtypes`.
        """
        del shape, dtype
        raise missing(self, "make(shape, dtype)")

    def fill(self, array: Any, value: float) -> None:
        """Queue a write of one value to all items, on the library's current stream."""
        fill = getattr(array, "fill", None)
        if fill is None:
            raise missing(self, "fill(array, value)", "and the arrays have none")
        try:
            fill(value)
        except TypeError as error:
            raise missing(self, "fill(array, value)", f"and the arrays' own: {error}") from error

    def full(self, shape: tuple[int, ...], dtype: str, value: float) -> Any:
        """Make an array of one value, on the library's current stream.

        The default is `make` and `fill`; override it if the library's arrays cannot be written.
        """
        array = self.make(shape, dtype)
        self.fill(array, value)
        return array

    def strided(self, array: Any) -> Any:
        """Take every second column of a two-dimensional array; by default by indexing."""
        return sliced_by(self, "strided(array)", array, SECOND_COLUMNS[1])

    def sliced(self, array: Any) -> Any:
        """Take all rows but the first of a two-dimensional array; by default by indexing."""
        return sliced_by(self, "sliced(array)", array, ROWS[1])

    def reversed(self, array: Any) -> Any:
        """Take the rows of a two-dimensional array in reverse order; by default by indexing."""
        return sliced_by(self, "reversed(array)", array, REVERSED[1])

    def index(self, array: Any, key: tuple[slice, ...]) -> Any:
        """Take a slice of each axis; by default by indexing."""
        return sliced_by(self, "index(array, key)", array, key)

    def permuted(self, array: Any, axes: tuple[int, ...]) -> Any:
        """Put the axes of an array in another order; by default ``array.transpose(*axes)``."""
        return called_with(self, "permuted(array, axes)", array, ("permute", "transpose"), axes)

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Repeat axes of one item; by default ``array.broadcast_to(shape)``."""
        names = ("broadcast_to", "expand")
        return called_with(self, "broadcast(array, shape)", array, names, (shape,))

    def copy(self, array: Any) -> Any:
        """Queue a copy of an array on the current stream; by default ``array.copy()``."""
        return called_with(self, "copy(array)", array, ("clone", "copy"), ())

    def renewed(self, array: Any) -> Any:
        """Return the array to hand over after more work was queued on `array`.

        By default `array` itself. A view that is ready on the stream of its making must be made
        again.
        """
        return array

    def taken(self, array: Any, step: tuple[str, Any]) -> Any:
        """Apply one step of a layout; see `conformance.layouts`."""
        own = ((SECOND_COLUMNS, self.strided), (ROWS, self.sliced), (REVERSED, self.reversed))
        for known, take in own:
            if step == known:
                return take(array)
        kind, what = step
        calls: dict[str, Any] = {
            "index": self.index,
            "permute": self.permuted,
            "broadcast": self.broadcast,
        }
        return calls[kind](array, what)

    def readonly(self, array: Any) -> Any:
        """Return a read-only view of an array."""
        del array
        raise missing(self, "readonly(array)")

    def lazy(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield arrays with recorded operations that are not computed yet, such as a conjugate.

        Yields
        ------
        str, array, nested lists
            The operation, the array or the exception that refused it, and the array's values.
        """
        raise missing(self, "lazy()", "which gives arrays that are not computed yet")

    def late(self, lab: Lab, value: float, words: int | None = None) -> Late:
        """Make an array with a held-back write on one of the library's streams.

        Override it if the library's streams have no names.
        """
        stream = self.stream()
        if stream is None:
            raise missing(self, "stream()")
        words = words or lab.items
        array = self.make((words,), "float32")
        if lab.timed:
            # This compiles the fill, which may take longer than the hold lasts. The value must not
            # be 0, which some libraries write by another kernel.
            self.fill(array, BEFORE)
        lab.synchronize()
        place = place_of_items(array)
        with self.on(stream):
            hold = lab.hold(handle_of(stream))
            self.fill(array, value)
        expect_behind(lab, stream, hold, place, words, value)
        return Late(array, stream, value, hold)

    def late_on_two(self, lab: Lab, value: float, streams: int = 2) -> Late:
        """Make an array with writes to its parts on several streams, one of them held back."""
        made = [self.stream() for _ in range(streams)]
        if made[0] is None:
            raise missing(self, "stream()")
        words = lab.items // 2
        array = self.make((streams * words,), "float32")
        try:
            parts = [array[at * words : (at + 1) * words] for at in range(streams)]
        except NOT_SO as error:
            what = f"x[:{words}] raised {type(error).__name__}: {error}"
            raise NotApplicableError(what) from error
        places = shared_places(array, parts, words)
        if lab.timed:
            self.fill(array, BEFORE)
        lab.synchronize()
        # Only one stream is held back in each round, so waiting for a single stream is not enough.
        held, holds = lab.turn(streams), []
        for number, (stream, part) in enumerate(zip(made, parts, strict=True)):
            with self.on(stream):
                if number == held or not lab.timed:
                    holds.append(lab.hold(handle_of(stream)))
                self.fill(part, value)
            if number == held or not lab.timed:
                expect_behind(lab, stream, holds[-1], places[number], words, value)
        return Late(array, made[-1], value, holds[-1], keep=made)


class ConsumerAdapter(Streams):
    """A library as a consumer; subclass it, and define at least `take`.

    Attributes
    ----------
    name : str
        The library's name in reports.
    doors : tuple of str
        The protocols that it takes: ``"cai"``, ``"dlpack"``.
    dtypes : tuple of str
        The element types that it takes.
    library : object
        The library for `cai_bridge.convert`; None if `convert` does not know it.
    """

    doors: tuple[str, ...] = ("cai", "dlpack")
    dtypes: tuple[str, ...] = ("float32",)
    library: Any = None

    def take(self, x: Any) -> Any:  # noqa: ARG002 - the interface
        """Import another library's array without a copy, and return the library's own array."""
        raise missing(self, "take(x)")

    def take_by(self, door: str, x: Any) -> Any:
        """Import an array, which may speak both protocols, by the protocol `door`.

        By default `take` gets a stand-in that speaks only this protocol.
        """
        return self.take(speaking_only(door, x))

    def convert(self, x: Any, stream: Any, *, readonly: bool | None = None) -> Any:
        """Import an array by `cai_bridge.convert`; `stream` is a stream of the library, or None.

        By default `convert` gets no stream, as for a library with a current stream.
        """
        del stream
        return convert(x, self.library, readonly=readonly)

    def hold(self, lab: Lab, stream: Any) -> Hold:
        """Hold back the library's later work on one of its streams.

        Override it if the library's streams have no names.
        """
        if stream is None:
            raise missing(self, "stream()")
        return lab.hold(handle_of(stream))

    def copy(self, array: Any) -> Any:
        """Queue a read of all items on the library's current stream; return the copy.

        By default ``array.copy()``.
        """
        return self._own(array, "copy", "copy(array)", "and the arrays have none")

    def values(self, copied: Any) -> Any:
        """Wait for the result of `copy`, and return its items on the host, as nested lists.

        By default ``copied.tolist()``.
        """
        return self._own(copied, "tolist", "values(copied)", "and the arrays have no tolist")

    def _own(self, array: Any, method: str, member: str, why: str) -> Any:
        """Call a method of the array, in place of a member that the adapter lacks."""
        call = getattr(array, method, None)
        if call is None:
            raise missing(self, member, why)
        return call()

    def fill(self, array: Any, value: float) -> None:
        """Queue a write of one value to all items of an imported array."""
        del array, value
        raise missing(self, "fill(array, value)")
