"""What the bridge has to know of a library to make its arrays."""

from __future__ import annotations

import functools
import importlib
import logging
from typing import Any, ClassVar

from cai_bridge._core import CaiView, DLPackView, _convert

LOG = logging.getLogger("cai_bridge")


class Library:
    """How a library's arrays are recognised, and made of views.

    Subclass it, and `register` an instance.

    Attributes
    ----------
    name : str
        The module by whose name, or the name of whose parts, the library is found.
    arrays : tuple of str
        Its types of arrays, as ``"module:type"``.
    view : type
        Which view `make` takes: `CaiView` or `DLPackView`.
    writes : bool
        Whether it may write to what it is given, so that read-only memory is refused.
    """

    name: str
    arrays: ClassVar[tuple[str, ...]] = ()
    view: ClassVar[type] = CaiView
    writes: ClassVar[bool] = True

    def current_stream(self, device: int) -> Any:
        """Give the stream that the library works on now on a GPU, as `to_cai` takes it.

        None where there is no such stream: then what `make` makes has to order its work itself.
        """
        return None

    def make(self, view: CaiView | DLPackView, stream: Any) -> Any:
        """Make an array of a view, which it has to hold, and which is usable by now.

        `stream` is what the caller said, or what `current_stream` did.
        """
        raise NotImplementedError

    # --- what the bridge calls --------------------------------------------------------------------

    @functools.cached_property
    def types(self) -> tuple[type, ...]:
        """Its types of arrays."""
        found = []
        for name in self.arrays:
            module, _, attribute = name.partition(":")
            found.append(getattr(importlib.import_module(module), attribute))
        return tuple(found)

    def convert(self, xs: list[Any], stream: Any, readonly: bool | None) -> list[Any]:
        """Make arrays of others, usable on `stream` or the current one: all, or none."""
        streams: dict[int, Any] = {}

        def current(device: int) -> Any:
            streams[device] = self.current_stream(device)
            return streams[device]

        views = _convert(xs, self.view, stream, current, readonly, self.writes)
        made: list[Any] = []
        try:
            for view in views:
                made.append(self.make(view, streams.get(view.device[1], stream)))
        except Exception as error:
            error._cai_bridge_item = len(made)  # type: ignore[attr-defined]
            raise
        return made


class ByTable(Library):
    """A library whose type has DLPack's exchange API, the quickest way to make its arrays."""

    def convert(self, xs: list[Any], stream: Any, readonly: bool | None) -> list[Any]:
        return _convert(xs, self.types[0], stream, None, readonly, self.writes)


class Quick:
    """A route through a library's insides, checked against the public one at first."""

    def __init__(self, library: str, quick: Any, public: Any, same: Any) -> None:
        self.library, self.quick, self.public, self.same = library, quick, public, same
        self.chosen: Any = None

    def __call__(self, view: Any, stream: Any) -> Any:
        return (self.chosen or self._choose(view, stream))(view, stream)

    def _choose(self, view: Any, stream: Any) -> Any:
        try:
            works = self.same(self.quick(view, stream), self.public(view, stream))
            why = "its array is another than the public one's"
        except Exception as error:
            works, why = False, f"{type(error).__name__}: {error}"
        if not works:
            LOG.debug("%s: the public route is taken: %s", self.library, why)
        self.chosen = self.quick if works else self.public
        return self.chosen


__all__ = ["ByTable", "CaiView", "DLPackView", "Library", "Quick"]
