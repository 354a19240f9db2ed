"""What the bridge has to know of a library to make its arrays."""

from __future__ import annotations

import functools
import importlib
import logging
from typing import Any, ClassVar

from cai_bridge._core import CaiView, DLPackView, _Maker

LOG = logging.getLogger("cai_bridge")


class Library:
    """How a library's arrays are recognised, and made of views.

    Subclass it, and `register` an instance.

    Attributes
    ----------
    name : str
        The module by whose name, or the name of whose parts, the library is found; without dots.
    arrays : tuple of str
        Its types of arrays, as ``"module:type"``.
    view : type or None
        Which view `make` takes: `CaiView` or `DLPackView`. None for a library whose first type of
        arrays has DLPack's exchange API, which makes them quickest and names the current stream.
    writes : bool
        Whether it may write to what it is given, so that read-only memory is refused.
    readonly : bool or None
        What ``readonly=`` is where nobody says: False for a library that never writes and that
        cannot be told that it must not.
    """

    name: str
    arrays: ClassVar[tuple[str, ...]] = ()
    view: ClassVar[type | None] = CaiView
    writes: ClassVar[bool] = True
    readonly: ClassVar[bool | None] = None

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

    # --- what the bridge asks ---------------------------------------------------------------------

    @functools.cached_property
    def types(self) -> tuple[type, ...]:
        """Its types of arrays."""
        found = []
        for name in self.arrays:
            module, _, attribute = name.partition(":")
            found.append(getattr(importlib.import_module(module), attribute))
        return tuple(found)

    @functools.cached_property
    def maker(self) -> _Maker:
        """What makes its arrays, which has asked the library for all that it has to know."""
        return _Maker(self)


class Quick:
    """A route through a library's insides, checked against the public one at first."""

    def __init__(self, library: str, quick: Any, public: Any, same: Any) -> None:
        self.library, self.quick, self.public, self.same = library, quick, public, same
        self.chosen: Any = None

    def __call__(self, view: Any, stream: Any) -> Any:
        # Two arrays of nothing have little to be compared by.
        if not view.size:
            return self.public(view, stream)
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


class Routed(Library):
    """A library whose arrays are made by one of two routes, as `routes` gives them."""

    def routes(self) -> Quick:
        """Give the two routes; the library is imported for that."""
        raise NotImplementedError

    def make(self, view: CaiView | DLPackView, stream: Any) -> Any:
        # From here on arrays are made by the route itself.
        routes = self.routes()
        made = routes(view, stream)
        self.make = routes.chosen or self.make  # type: ignore[method-assign]
        return made


__all__ = ["CaiView", "DLPackView", "Library", "Quick", "Routed"]
