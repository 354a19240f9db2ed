"""`Library`: the facts that the bridge needs to make a library's arrays."""

from __future__ import annotations

import functools
import importlib

from cai_bridge._core import CaiView, DLPackView, _Converter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar
else:
    # For `typing.get_type_hints`: importing `typing` would take most of an import's time.
    Any = object

    class ClassVar:
        def __class_getitem__(cls, kind: Any) -> Any:
            return kind


def log(text: str, *shown: object) -> None:
    """Log at debug level."""
    import logging

    logging.getLogger("cai_bridge").debug(text, *shown)


class Library:
    """How the bridge recognises a library's arrays, and makes them from views.

    Subclass it, and `register` an instance.

    Attributes
    ----------
    name : str
        The library's top-level module, by which `convert` finds it; without dots.
    arrays : tuple of type or str
        Its array types: each a type, or its name as ``"module:type"``, whose module is imported
        when it is needed.
    view : type or None
        The view that `make` takes: `CaiView` or `DLPackView`. None if the first type of `arrays`
        has DLPack's exchange API, which makes the arrays fastest and names the current stream.
    writes : bool
        Whether the library may write to its arrays. If so, read-only memory is refused.
    readonly : bool or None
        The default of ``readonly=``: False for a library that never writes and has no read-only
        arrays.
    """

    name: str
    arrays: ClassVar[tuple[type | str, ...]] = ()
    view: ClassVar[type | None] = CaiView
    writes: ClassVar[bool] = True
    readonly: ClassVar[bool | None] = None
    # The function that makes its arrays of host arrays, as "module:name"; None for GPU libraries.
    _from_host: ClassVar[str | None] = None
    # Whether all its arrays are on the host: GPU arrays are copied.
    _host_alone: ClassVar[bool] = False
    # The protocol that must be able to express its arrays: "cai", "dlpack", "numpy" or "any". None:
    # the protocol of `view`.
    _words: ClassVar[str | None] = None
    # The limits of its arrays. Other arrays are changed to fit, or refused before the library is
    # asked. Strides: "any", "not negative", or "compact" with the axes in any order. None: unknown,
    # so any, but not negative if the exchange API makes its arrays.
    _strides: ClassVar[str | None] = None
    # Whether it takes only GPU memory: managed and pinned memory is handed out as the GPU's own.
    _gpu_memory_alone: ClassVar[bool] = False
    # Its element types, as DLPack's (code, bits, lanes); None: any.
    _element_types: ClassVar[frozenset[tuple[int, int, int]] | None] = None
    # Whether it takes versioned capsules, which have flags.
    _versioned: ClassVar[bool] = True
    # Whether `current_stream` is only a default: each call may name another, as Numba's kernels do.
    _streams_by_call: ClassVar[bool] = False

    def current_stream(self, device: int) -> Any:
        """Return the stream that the library works on now on a GPU, as `to_cai` takes it.

        The library must keep the stream alive as long as it works on it. The bridge also asks if
        nobody named an array's user, for example at the end of its view.

        None if there is no such stream: then the array from `make` must order its work itself.
        """
        return None

    def _stream_in_use(self, device: int) -> Any:
        """Return the current stream, if nobody named the memory's user. Must not start the GPU.

        Asked only if the library is imported and its Rust file says so.
        """
        return self.current_stream(device)

    def make(self, view: Any, stream: Any) -> Any:
        """Make an array from a view of the class `view`. The array must hold the view.

        The memory is ready on the stream.

        `stream` is the caller's, or else that of `current_stream`.
        """
        raise NotImplementedError

    def _make_by_dict(self, view: Any, stream: Any) -> Any:
        """Make an array of items that only a dict can express: dates, records, swapped bytes."""
        return self.make(view, stream)

    # --- called by the bridge ------------------------------------------------------------------

    @functools.cached_property
    def types(self) -> tuple[type, ...]:
        """Its array types."""
        found = []
        for name in self.arrays:
            if isinstance(name, type):
                found.append(name)
                continue
            module, _, attribute = name.partition(":")
            imported = importlib.import_module(module)
            kind = getattr(imported, attribute, None)
            if not isinstance(kind, type):
                self._refuse_other(imported)
                raise TypeError(
                    f"arrays: got {name!r:.80}, which is no type, for the library {self.name!r}; "
                    'allowed: "module:type", of types that their modules have'
                )
            found.append(kind)
        return tuple(found)

    def _refuse_other(self, module: Any) -> None:
        """Refuse a module that hides a known library, such as a folder of the same name."""
        is_whole = not getattr(module.__spec__, "_initializing", False)
        if type(self).__module__.startswith("cai_bridge.") and is_whole:
            place = getattr(module, "__file__", None) or next(iter(module.__path__), "nowhere")
            raise ImportError(
                f"to: got the module {module.__name__!r} of {place}, which is not the library; "
                f"allowed: the library {self.name!r}: rename what hides it there, or run the "
                "program elsewhere"
            )

    @functools.cached_property
    def converter(self) -> _Converter:
        """The converter of its arrays, which asks the library for its facts once."""
        return _Converter(self)


class Quick:
    """A route through a library's insides, checked against the public one at first."""

    def __init__(self, library: str, quick: Any, public: Any, same: Any) -> None:
        self.library, self.quick, self.public, self.same = library, quick, public, same
        self.chosen: Any = None

    def __call__(self, view: Any, stream: Any) -> Any:
        # Two empty arrays have too little to compare.
        if not view.size:
            return self.public(view, stream)
        return (self.chosen or self._choose(view, stream))(view, stream)

    def _choose(self, view: Any, stream: Any) -> Any:
        try:
            works = self.same(self.quick(view, stream), self.public(view, stream))
            why = "its array differs from the public route's"
        except Exception as error:
            works, why = False, f"{type(error).__name__}: {error}"
        if not works:
            log("%s: the bridge uses the public route: %s", self.library, why)
        self.chosen = self.quick if works else self.public
        return self.chosen


class Routed(Library):
    """A library whose arrays are made by one of the two `routes`."""

    def routes(self) -> Quick:
        """Return the two routes, which imports the library."""
        raise NotImplementedError

    def make(self, view: Any, stream: Any) -> Any:
        # From here on the chosen route makes the arrays.
        routes = self.routes()
        made = routes(view, stream)
        self.make = routes.chosen or self.make  # type: ignore[method-assign]
        return made


__all__ = ["Any", "CaiView", "DLPackView", "Library", "Quick", "Routed", "log"]
