"""The versions of the judged libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata

_DISTRIBUTIONS = {
    "torch": ("torch",),
    "jax": ("jax", "jaxlib"),
    "cupy": ("cupy", "cupy-cuda12x", "cupy-cuda13x"),
    "numba": ("numba", "numba-cuda"),
    "cuda.core": ("cuda-core", "cuda-bindings"),
    "tvm-ffi": ("apache-tvm-ffi",),
    "rmm": ("rmm", "rmm-cu12", "rmm-cu13"),
}
_ALWAYS = ("numpy", "ml_dtypes")


def versions_of(subjects: Iterable[str]) -> dict[str, str]:
    """Return the versions of the libraries' distributions, and of the packages that all use."""
    libraries = [one for one in _DISTRIBUTIONS if any(_names(one, text) for text in subjects)]
    wanted = [name for one in libraries for name in _DISTRIBUTIONS[one]]
    found = {}
    for name in (*wanted, *_ALWAYS):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _names(library: str, subject: str) -> bool:
    """Return whether a subject is the library, or a bridge view of its arrays."""
    return re.fullmatch(rf"((to|from)_cai\()?{re.escape(library)}\)?", subject) is not None
