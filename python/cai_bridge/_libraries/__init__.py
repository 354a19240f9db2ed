"""The libraries that arrays are converted for, a file each, found by name on first use."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, NoReturn

from cai_bridge._core import CaiView, DLPackView, _Maker

from ._library import Library

__all__ = ["Library", "find", "of_array", "register"]

GROUP = "cai_bridge.libraries"
"""The entry points that libraries add themselves by: a `Library` each, or what makes one."""

FILES = {
    "cai": "_views:CAI",
    "dlpack": "_views:DLPACK",
    "torch": "_torch:TORCH",
    "tvm_ffi": "_tvm_ffi:TVM_FFI",
    "cupy": "_cupy:CUPY",
    "numba": "_numba:NUMBA",
    "jax": "_jax:JAX",
    "jaxlib": "_jax:JAX",
    "cuda": "_cuda_core:CUDA_CORE",
    "warp": "_warp:WARP",
    "rmm": "_rmm:RMM",
    "numpy": "_numpy:NUMPY",
}

_registered: dict[str, Library] = {}
FOUND: dict[Any, _Maker] = {}
"""What was looked up before: `convert` looks here first."""


def register(library: Library) -> None:
    """Teach `convert` and `adapt` a library.

    Parameters
    ----------
    library : Library
        How its arrays are recognised and made. It replaces an earlier one of the same name.

    Raises
    ------
    TypeError
        `library` is not a `Library`, or its attributes are not as `Library` says.
    """
    _check(library)
    _registered[library.name] = library
    FOUND.clear()


def _check(library: Any) -> None:
    """Refuse a library that could not be found, or that could not make an array."""
    if not isinstance(library, Library) or not isinstance(getattr(library, "name", None), str):
        raise TypeError(f"library: got {library!r:.80}; allowed: a cai_bridge.Library with a name")

    def refuse(field: str, allowed: str) -> NoReturn:
        raise TypeError(f"{field}: got {getattr(library, field)!r:.80}; allowed: {allowed}")

    if not library.name or "." in library.name:
        refuse("name", "the name of a module, or of the package that it is in")
    arrays = library.arrays
    if not isinstance(arrays, tuple) or not all(
        isinstance(one, str) and one.partition(":")[2] for one in arrays
    ):
        refuse("arrays", 'a tuple of "module:type"')
    if not (library.view is None or library.view is CaiView or library.view is DLPackView):
        refuse("view", "CaiView, DLPackView or None")
    if library.view is None and not arrays:
        refuse("arrays", "the type that has DLPack's exchange API, for view is None")
    is_made = type(library).make is not Library.make and callable(library.make)
    if library.view is not None and not is_made:
        refuse("make", "a method that makes an array of a view")
    if not callable(library.current_stream):
        refuse("current_stream", "a method that returns the library's stream on a GPU")
    if not isinstance(library.writes, bool):
        refuse("writes", "True or False")
    if not (library.readonly is None or isinstance(library.readonly, bool)):
        refuse("readonly", "None, True or False")


def find(to: Any) -> Library:
    """Find the library that `to` names: a module, its name, or a type of its arrays."""
    try:
        found: Library = FOUND[to].library
        return found
    except (KeyError, TypeError):
        library = _look_up(to)
    FOUND[to] = library.maker
    return library


def of_array(x: Any) -> Library | None:
    """Find the library that makes arrays like `x`; None where none is known."""
    try:
        return find(type(x))
    except TypeError:
        return None


def _look_up(to: Any) -> Library:
    if isinstance(to, Library):
        _check(to)
        return to
    if to is CaiView or to is DLPackView:
        to = "cai" if to is CaiView else "dlpack"
    if isinstance(to, type):
        for kind in to.__mro__:
            library = _named(kind.__module__)
            if library is not None and issubclass(to, library.types):
                return library
        for library in _registered.values():
            if issubclass(to, library.types):
                return library
        raise _unknown(to)
    name = to.__name__ if isinstance(to, ModuleType) else to
    library = _named(name) if isinstance(name, str) else None
    if library is None:
        raise _unknown(to)
    return library


def _named(module: str) -> Library | None:
    name = module.partition(".")[0]
    if name in _registered:
        return _registered[name]
    if name in FILES:
        module, _, attribute = FILES[name].partition(":")
        library: Library = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        return library
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=name):
        made = entry.load()
        register(made if isinstance(made, Library) else made())
        return _registered.get(name)
    return None


def _unknown(to: Any) -> TypeError:
    names = sorted({*FILES, *_registered} - {"jaxlib"})
    kind = "the type " if isinstance(to, type) else ""
    shown = f"{to.__module__}.{to.__qualname__}" if isinstance(to, type) else f"{to!r:.80}"
    return TypeError(
        f"to: got {kind}{shown}; allowed: the module, the name or an array type of "
        f"{', '.join(names)}, or of a library that you register"
    )
