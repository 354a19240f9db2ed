"""The installed array libraries, and the doors that each speaks.

A table says what each version speaks, since importing some libraries takes seconds and starts a
CUDA context. If a library is already imported, its array type is asked instead, except for the
version of its dicts, which only an array knows.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from cai_bridge import _libraries

from .text import said

Version = tuple[int, ...]


@dataclass(frozen=True)
class Doors:
    """The protocols that a library's arrays speak."""

    exchange: bool = False
    """Whether the type has ``__dlpack_c_exchange_api__``."""
    dlpack: bool = False
    """Whether the type has ``__dlpack__``."""
    cai: int | None = None
    """The version of ``__cuda_array_interface__``; None if there is none."""
    stream: bool = False
    """Whether the dict names a stream."""

    def __str__(self) -> str:
        spoken = ["exchange API"] * self.exchange + ["__dlpack__"] * self.dlpack
        if self.cai is not None:
            spoken.append(f"CAI v{self.cai}" + (", no stream" if not self.stream else ""))
        return "; ".join(spoken) or "none"


@dataclass(frozen=True)
class Known:
    """A library that the command knows."""

    name: str
    """The library's name."""
    distributions: tuple[str, ...]
    """The names of its distributions; the first one that is installed counts."""
    array: str
    """The array type, as ``module:attribute``; empty if there is none."""
    spoken: tuple[tuple[Version, Doors], ...] = ()
    """Each version that changed the arrays' protocols, oldest first. Earlier ones are unknown."""
    measured: str = ""
    """The newest version in which this was seen."""


_DLPACK_AND_V2 = Doors(dlpack=True, cai=2)

_ROWS = (
    Known(
        "torch",
        ("torch",),
        "torch:Tensor",
        (((1, 10), _DLPACK_AND_V2), ((2, 10), replace(_DLPACK_AND_V2, exchange=True))),
        "2.11.0",
    ),
    Known("jax", ("jax",), "jax._src.array:ArrayImpl", (((0, 4, 31), _DLPACK_AND_V2),), "0.11.2"),
    Known(
        "cupy",
        ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
        "cupy:ndarray",
        (((10,), Doors(dlpack=True, cai=3, stream=True)),),
        "14.2.0",
    ),
    Known(
        "numba",
        ("numba-cuda", "numba"),
        "numba.cuda.cudadrv.devicearray:DeviceNDArray",
        (((0,), Doors(cai=3, stream=True)),),
        "0.30.4",
    ),
    Known(
        "cuda.core",
        ("cuda-core",),
        "cuda.core.utils:StridedMemoryView",
        (((1,), Doors(exchange=True, dlpack=True)),),
        "1.2.0",
    ),
    Known(
        "tvm-ffi",
        ("apache-tvm-ffi",),
        "tvm_ffi:Tensor",
        (((0, 1), Doors(dlpack=True)),),
        "0.1.15.post2",
    ),
    Known(
        "rmm",
        ("rmm-cu13", "rmm-cu12", "rmm-cu11", "rmm"),
        "rmm:DeviceBuffer",
        (((0,), Doors(cai=0)),),
    ),
    Known("warp", ("warp-lang",), "warp:array", (((1,), _DLPACK_AND_V2),), "1.19.0"),
    Known("numpy", ("numpy",), "numpy:ndarray", (((1, 22), Doors(dlpack=True)),), "2.5.2"),
    Known("ml_dtypes", ("ml-dtypes", "ml_dtypes"), ""),
)


def _others() -> Iterator[Known]:
    """List the libraries that `convert` knows and `_ROWS` lacks, by their own files."""
    rows = {one.array.partition(":")[0].partition(".")[0] for one in _ROWS}
    for name in _libraries.FILES:
        library = None if name in rows else _libraries.find(name)
        if library is not None and library.name == name and library.arrays:
            yield Known(name, (name,), str(library.arrays[0]))


INSTALLABLE: tuple[Known, ...] = (*_ROWS, *_others())


@dataclass(frozen=True)
class Found:
    """A library that is installed."""

    name: str
    """The library's name."""
    distribution: str
    """The name of its distribution."""
    version: str
    """The installed version."""
    doors: Doors | None = None
    """The arrays' protocols; None if unknown, or if the library has no arrays."""
    seen: bool = False
    """Whether the array type was asked, rather than the table."""
    error: str = ""
    """The exception of its import; empty if there was none, or no attempt."""

    def to_dict(self) -> dict[str, Any]:
        """Return the library as data for JSON."""
        doors = None if self.doors is None else vars(self.doors)
        return {**vars(self), "doors": doors}


def version_of(text: str) -> Version:
    """Read the leading numbers of a version; local parts and suffixes do not count."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def doors_by_table(known: Known, version: str) -> Doors | None:
    """Look up the protocols of a version's arrays."""
    number = version_of(version)
    return next((doors for since, doors in reversed(known.spoken) if number >= since), None)


def find_libraries(*, imported: bool = False) -> tuple[Found, ...]:
    """List the known libraries that are installed, in the order of the table.

    Parameters
    ----------
    imported : bool
        Whether to import them and ask their array types. Libraries that are already imported are
        asked anyway.
    """
    return tuple(_installed(imported))


def _installed(imported: bool) -> Iterator[Found]:
    for known in INSTALLABLE:
        for distribution in known.distributions:
            try:
                version = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                continue
            found = Found(known.name, distribution, version, doors_by_table(known, version))
            module = known.array.partition(":")[0]
            yield _asked(known, found) if module and (imported or module in sys.modules) else found
            break


def _asked(known: Known, found: Found) -> Found:
    module, _, attribute = known.array.partition(":")
    try:
        array = getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the import may raise anything, or even exit
        return replace(found, error=said(error))
    table = found.doors or Doors()
    doors = Doors(
        exchange=hasattr(array, "__dlpack_c_exchange_api__"),
        dlpack=hasattr(array, "__dlpack__"),
        # Only an array on a GPU has the dict, so the type cannot tell.
        cai=table.cai,
        stream=table.stream,
    )
    return replace(found, doors=doors, seen=True)
