"""The libraries that `convert` knows, one file each, found by name on first use."""

from __future__ import annotations

import functools
import importlib
import threading
import weakref
from collections.abc import Callable
from types import ModuleType

from cai_bridge._containers import say_where
from cai_bridge._core import CaiView, DLPackView, _ask_for_streams, _Converter, _imported, _shown

from . import _warp  # noqa: F401 - an end asks for Warp's stream, and must import nothing
from ._library import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["Library", "find", "of_array", "register"]

GROUP = "cai_bridge.libraries"
"""The group of entry points by which libraries add themselves: a `Library`, or its factory."""

FILES = {
    "cai": "_views:CAI",
    "dlpack": "_views:DLPACK",
    "torch": "_torch:TORCH",
    "cupy": "_cupy:CUPY",
    "numba": "_numba:NUMBA",
    "jax": "_jax:JAX",
    "jaxlib": "_jax:JAX",
    "warp": "_warp:WARP",
    "cuda": "_cuda_core:CUDA_CORE",
    "tvm_ffi": "_tvm_ffi:TVM_FFI",
    "rmm": "_rmm:RMM",
    "numpy": "_numpy:NUMPY",
}

_registered: dict[str, Library] = {}
"""The registered libraries, by name."""
FOUND: dict[Any, _Converter] = {}
"""The converters found before; `convert` looks here first."""
_unknown_types: weakref.WeakSet[type] = weakref.WeakSet()
"""Types that belong to no library: finding this out searches all installed packages."""
_lock = threading.RLock()
"""Held while one of these changes: no entry from before a registration may stay."""


def register(library: Library) -> None:
    """Add a library to `convert` and `adapt`.

    Parameters
    ----------
    library : Library
        The facts about its arrays. It replaces an earlier library of the same name.

    Raises
    ------
    TypeError
        `library` is not a `Library`, or one of its attributes is not valid.

    Examples
    --------
    >>> from cai_bridge import Library, convert, register
    >>> from cai_bridge.testing import simulated_cuda
    >>> class Buffer:
    ...     def __init__(self, view):
    ...         self.ptr, self.view = view.ptr, view
    >>> class MyLibrary(Library):
    ...     name, arrays = "mylib", (Buffer,)
    ...     def current_stream(self, device):
    ...         return 1
    ...     def make(self, view, stream):
    ...         return Buffer(view)
    >>> register(MyLibrary())
    >>> with simulated_cuda() as cuda:
    ...     x = cuda.array([1.0])
    ...     convert(x, "mylib").ptr == x.ptr
    True
    """
    global _registered  # noqa: PLW0603
    _check(library)
    with _lock:
        # The old entries are dropped after the lock: dropping them can run any code.
        before, found = _registered, dict(FOUND)
        _registered = {**_registered, library.name: library}
        FOUND.clear()
        _unknown_types.clear()
    ask_for_streams()
    del before, found


def ask_for_streams() -> None:
    """Tell the core which libraries to ask for their current streams if an array's user is unknown.

    The core asks PyTorch and CuPy by quicker ways.
    """
    registered = [functools.partial(_stream_of, one) for one in _registered.values()]
    _ask_for_streams(registered)


def _stream_of(library: Library, device: int) -> Any:
    if library.view is not None:
        is_there = _imported(library.name) is not None or _may_be_there(library)
        return library.current_stream(device) if is_there else None
    # The converter would import the modules of its types, and reads and ends must import nothing.
    are_there = all(map(_is_imported, library.arrays))
    return library.converter.works_on(device) if are_there else None


def _check(library: Any) -> None:
    """Refuse a library that `convert` could not find, or that could not make an array."""
    if not isinstance(library, Library) or not isinstance(getattr(library, "name", None), str):
        is_class = isinstance(library, type) and issubclass(library, Library)
        meant = f"{library.__name__}(), an instance: " if is_class else ""
        allowed = f"{meant}a cai_bridge.Library with a name"
        raise TypeError(f"library: got {_shown(library):.80}; allowed: {allowed}")

    def refuse(field: str, allowed: str, got: str = "") -> NoReturn:
        got = got or f"{_shown(getattr(library, field)):.80}"
        raise TypeError(f"{field}: got {got}; allowed: {allowed}")

    if not library.name or "." in library.name:
        refuse("name", "the name of a module, or of the package that it is in")
    arrays = library.arrays
    if not isinstance(arrays, tuple) or not all(
        isinstance(one, type) or (isinstance(one, str) and all(one.partition(":")))
        for one in arrays
    ):
        refuse("arrays", 'a tuple of types, or of names as "module:type"')
    if not (library.view is None or library.view is CaiView or library.view is DLPackView):
        refuse("view", "CaiView, DLPackView or None")
    if library.view is None and not arrays:
        refuse("arrays", "the type that has DLPack's exchange API, for view is None")
    _check_methods(library, refuse)
    _check_names(library)
    if not isinstance(library.writes, bool):
        refuse("writes", "True or False")
    if not (library.readonly is None or isinstance(library.readonly, bool)):
        refuse("readonly", "None, True or False")
    if library.writes and library.readonly is not None:
        refuse("readonly", "None for a library that may write; callers vouch by readonly=False")


def _check_methods(library: Library, refuse: Callable[..., NoReturn]) -> None:
    """Refuse a library without the methods that it needs."""
    if library.view is not None:
        allowed = "a method make(self, view, stream) that returns an array"
        if type(library).make is Library.make:
            refuse("make", allowed, "none")
        if not callable(library.make):
            refuse("make", allowed)
        if not _takes(library.make, None, None):
            refuse("make", allowed, _signature(library.make))
    if not callable(library.current_stream):
        refuse("current_stream", "a method that returns the library's stream on a GPU")
    if not _takes(library.current_stream, 0):
        got = _signature(library.current_stream)
        refuse("current_stream", "a method current_stream(self, device)", got)


_MEMBERS = ("arrays", "current_stream", "make", "name", "readonly", "view", "writes")
"""The members of a library that the bridge reads."""
_OTHER_WORDS = {
    **dict.fromkeys(("writable", "writeable", "mutable"), "writes"),
    **dict.fromkeys(("array_types", "classes"), "arrays"),
    **dict.fromkeys(("stream", "get_stream", "stream_of", "work_stream"), "current_stream"),
    **dict.fromkeys(("maker", "convert", "from_view"), "make"),
}
"""Other names that an author may give a member."""


def _check_names(library: Library) -> None:
    """Refuse a misspelt member; warn if the library names no stream."""
    kinds = [kind for kind in type(library).__mro__ if issubclass(kind, Library)]
    theirs = [kind for kind in kinds if not kind.__module__.startswith(f"{__name__}.")]
    own = {name for kind in theirs for name in vars(kind)}
    own |= vars(library).keys()
    lacking = [name for name in _MEMBERS if name not in own] if theirs else []
    others = [name for name in sorted(own) if not name.startswith("_") and name not in _MEMBERS]
    for name in others if lacking else ():
        import difflib

        near = difflib.get_close_matches(name.lower(), lacking, n=1, cutoff=0.8)
        near = near or [one for one in lacking if one == _OTHER_WORDS.get(name.lower())]
        if near and callable(getattr(library, near[0], None)) == callable(getattr(library, name)):
            raise TypeError(
                f"{name}: got a member that no library has; allowed: {', '.join(_MEMBERS)}; did "
                f"you mean {near[0]!r}?"
            )
    if "current_stream" in lacking and library.view is not None:
        _warn_of_streams(library, others)


def _warn_of_streams(library: Library, others: list[str]) -> None:
    """Warn if the library names no stream although it, or its arrays, have members for streams."""
    types = [one for one in library.arrays if isinstance(one, type)]
    known = [f"its {name}" for name in others if "stream" in name.lower()]
    for kind in types:
        known += [f"{kind.__name__}.{name}" for name in dir(kind) if "stream" in name.lower()]
    module = _imported(library.name)
    known += [f"{library.name}.{name}" for name in dir(module) if "stream" in name.lower()]
    if known:
        import warnings

        warnings.warn(
            f"current_stream: got none for the library {library.name!r}, and there is {known[0]}; "
            "without it nothing waits for what the library does on a stream: return the one that "
            "it works on, or None if its arrays order their own work",
            stacklevel=5,
        )


def _signature(method: Any) -> str:
    """Show a method's signature."""
    import inspect

    name = getattr(method, "__name__", type(method).__name__)
    return f"{name}{inspect.signature(getattr(method, '__func__', method))}"[:80]


def _takes(method: Any, *arguments: Any) -> bool:
    """Return whether a method takes these arguments, if its signature tells."""
    import inspect

    try:
        inspect.signature(method).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # no signature
        pass
    return True


def find(to: Any, field: str = "to") -> Library:
    """Find the library that `to` names: a module, its name, or a type of its arrays."""
    has_hash = True
    try:
        found: Library = FOUND[to].library
        return found
    except KeyError:
        pass
    except TypeError:
        has_hash = False  # such as a library of a class that has `__eq__` alone
    before = _registered
    library = _look_up(to)
    if library is None:
        raise _unknown(to, field)
    converter = library.converter
    with _lock:
        # Another thread may have registered another library of that name in the meantime. An entry
        # point registers its own.
        is_known = _registered is before or _registered.get(library.name) is library
        if has_hash and is_known:
            FOUND[to] = converter
    return library


def of_array(x: Any) -> Library | None:
    """Find the library that makes arrays like `x`; None if no library is known."""
    kind = type(x)
    try:
        if kind in FOUND:
            return find(kind)
        if kind in _unknown_types:
            return None
    except TypeError:
        # A type without a hash cannot be remembered, and `find` would not take it either.
        return None
    before = _registered
    if _look_up(kind) is not None:
        return find(kind)
    with _lock:
        if _registered is before:
            _unknown_types.add(kind)
    return None


def _look_up(to: Any) -> Library | None:
    if isinstance(to, Library):
        _check(to)
        return to
    if to is CaiView or to is DLPackView:
        to = "cai" if to is CaiView else "dlpack"
    if isinstance(to, type):
        for kind in to.__mro__:
            library = _named(kind.__module__) if isinstance(kind.__module__, str) else None
            if library is not None and _has(library, to):
                return library
        for library in _registered.values():
            if _may_be_there(library) and _has(library, to):
                return library
        return None
    name = to.__name__ if isinstance(to, ModuleType) else to
    return _named(name) if isinstance(name, str) else None


def _has(library: Library, kind: type) -> bool:
    try:
        return issubclass(kind, library.types)
    except ModuleNotFoundError:
        # Another distribution has a module of that name: cuda.bindings without cuda.core.
        return False


def _is_imported(kind: type | str) -> bool:
    """Return whether the module of a type of arrays is imported."""
    return isinstance(kind, type) or _imported(kind.partition(":")[0]) is not None


def _may_be_there(library: Library) -> bool:
    """Return whether arrays of the library can exist. Looking at its types may import it."""
    knows_them = "types" in vars(library) or type(library).types is not Library.types
    return knows_them or any(map(_is_imported, library.arrays))


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
        try:
            made = entry.load()
            if not isinstance(made, Library) and callable(made):
                made = made()
            _check(made)
            if made.name != name:
                raise TypeError(
                    f"name: got {_shown(made.name):.80}; allowed: {name!r}, the entry point's"
                )
        except Exception as error:
            say_where(error, error.__traceback__, f"entry point {name!r} of {GROUP!r}")
            raise
        register(made)
        return _registered[name]
    return None


def _unknown(to: Any, field: str) -> TypeError:
    names = sorted({*FILES, *_registered} - {"jaxlib"})
    kind = "the type " if isinstance(to, type) else ""
    meant = _meant(to, names) if isinstance(to, str) else None
    shown = f"{to.__module__}.{to.__qualname__}" if isinstance(to, type) else f"{_shown(to):.80}"
    return TypeError(
        f"{field}: got {kind}{shown}; allowed: the module, the name or an array type of "
        f"{', '.join(names)}, or of a library that you register"
        + (f"; did you mean {meant!r}?" if meant else "")
    )


# Other names by which libraries are known.
_CALLED = {
    "pytorch": "torch",
    "tvm": "tvm_ffi",
    "cuda.core": "cuda",
    "cuda_core": "cuda",
    "np": "numpy",
    "cp": "cupy",
    "jnp": "jax",
    "wp": "warp",
}


def _meant(name: str, names: list[str]) -> str | None:
    """Guess the library that a misspelt name means."""
    import difflib

    plain = name.strip().lower().replace("-", "_")
    known = {one.lower(): one for one in (*names, *_CALLED)}
    if plain in known:
        return _CALLED.get(plain, known[plain])
    near = difflib.get_close_matches(plain, list(known), n=1, cutoff=0.8)
    return _CALLED.get(near[0], known[near[0]]) if near else None


ask_for_streams()
