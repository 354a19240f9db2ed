"""Arrays on the host: shared with libraries that have such, copied to a GPU if that is asked."""

from __future__ import annotations

from operator import index

from . import _libraries
from ._core import (
    CaiView,
    DLPackView,
    _check_host,
    _dtypes,
    _gpu_for,
    _host_copy,
    _host_to_gpu,
    _is_on_gpu,
)
from ._libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["convert", "is_wanted", "of_numpy", "on_host"]

_NO_HOSTS = CaiView, DLPackView, type

# DLPack's numbers of the host's own memory and of pinned memory.
HOST, PINNED = 1, 3
# What every library has: bool, integers, floats, complex numbers.
SHARED = frozenset(typestr for _, _, _, typestr in _dtypes() if typestr[1] != "V")
# The names of those of ml_dtypes.
EXTENDED = frozenset(name for name, _, _, typestr in _dtypes() if typestr[1] == "V")


def on_host(x: Any) -> bool:
    """Tell whether an array is in the host's own memory, as it says itself."""
    # A class has what its arrays have, and is none.
    device = None if isinstance(x, _NO_HOSTS) else getattr(x, "__dlpack_device__", None)
    if not callable(device) or (kind := _kind(device())) not in {HOST, PINNED}:
        return False
    # Asked of those alone: PyTorch's tensors that require a gradient raise here. Numba's arrays of
    # pinned and managed memory are NumPy's by their type.
    if _has_dict(x):
        return False
    # PyTorch hands pinned memory out as the CPU's.
    return kind == HOST or not _is_on_gpu(x)


def _has_dict(x: Any) -> bool:
    try:
        return hasattr(x, "__cuda_array_interface__")
    except Exception:
        return False  # it has said that it is the host's


def _kind(device: Any) -> int | None:
    """Give DLPack's number of a device; None for what is no device, which is refused elsewhere."""
    try:
        return index(device[0]) if isinstance(device, tuple) and len(device) == 2 else None
    except TypeError:
        return None


def is_wanted(x: Any, library: Library, copy: bool | None) -> bool:
    """Tell whether an array in a tree is one on the host that the library is to have."""
    if not (copy or library._from_host) or not on_host(x):
        return False
    dtype = getattr(x, "dtype", None)
    # Words, dates, objects, long doubles and the other byte order are nothing that others could
    # have; they stay where they are.
    typestr, name = getattr(dtype, "str", None), getattr(dtype, "name", "")
    is_shared = not isinstance(typestr, str) or typestr in SHARED
    return library.name == "numpy" or is_shared or str(name) in EXTENDED


def convert(x: Any, library: Library, stream: Any, copy: bool | None, readonly: bool | None) -> Any:
    """Make the library's array of one on the host."""
    from_host = _libraries.from_host(library)
    own = isinstance(x, library.types)
    if from_host and library.name == "numpy":
        return of_numpy(x if own else from_host(_as_cpus(x)), copy, readonly)
    if not (from_host or copy):
        return library.maker.convert([x], stream, readonly)[0]
    library.maker.admit([], stream, readonly)
    if readonly or not (copy or own):
        _check_host(x, library.writes, readonly)
    if from_host:
        if copy:
            return from_host(_Copied(x))
        return x if own else from_host(_as_cpus(x))
    said = None if type(stream) is int and stream == -1 else stream
    ordinal = _gpu_for(said)
    on = library.maker.works_on(ordinal, said)
    # The capsule's consumer waits for the legacy default stream.
    plain, name = _plain(x)
    capsule = _host_to_gpu(plain, ordinal, 1 if on is None else on, name)
    return library.maker.convert([capsule], stream, readonly)[0]


def of_numpy(array: Any, copy: bool | None, readonly: bool | None) -> Any:
    """Give an array of NumPy's itself, a copy, or what may not be written."""
    if copy:
        array = array.copy()
    elif readonly and array.flags.writeable:
        array = array.view()
    if readonly:
        array.flags.writeable = False
    return array


class _Copied:
    """A copy of an array on the host, for a library's own import."""

    def __init__(self, x: Any) -> None:
        self.x, self.name = _plain(x)

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_wishes: Any) -> Any:
        return _host_copy(self.x, max_version is not None and max_version[0] > 0, self.name)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def _as_cpus(x: Any) -> Any:
    """Give an array of pinned memory that is handed out as the CPU's, saying so: JAX asks."""
    return _Cpus(x) if x.__dlpack_device__()[0] == PINNED else x


class _Cpus:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __dlpack__(
        self, *, max_version: tuple[int, int] | None = None, copy: bool | None = None, **_: Any
    ) -> Any:
        wishes = {"max_version": max_version, "copy": copy}
        return self.x.__dlpack__(**{name: one for name, one in wishes.items() if one is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST, 0


def _plain(x: Any) -> tuple[Any, str | None]:
    """Give an array that DLPack has a word for, and the name of the type that it stands for."""
    name = str(getattr(getattr(x, "dtype", None), "name", ""))
    if name in EXTENDED and hasattr(x, "view") and hasattr(x, "__array_interface__"):
        return x.view(f"u{x.dtype.itemsize}"), name
    return x, None
