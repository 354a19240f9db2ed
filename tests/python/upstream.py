"""The pages of docs/reports, and doubles of the libraries that have the faults that they tell."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

FOLDER = Path(__file__).parents[2] / "docs" / "reports"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.stem != "README")


def parts(path: Path) -> tuple[str, str]:
    """The program of a page, and what it prints."""
    text = path.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    return program, printed


def names(path: Path) -> tuple[str, str]:
    """The library and the requirement of a page."""
    found = re.fullmatch(r"(torch|cupy|numba|jax|tvm-ffi)-(.+)", path.stem)
    assert found is not None, path
    return found[1], found[2]


def printed_by(program: str) -> str:
    """What a program prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program, "<report>", "exec", dont_inherit=True), {"__name__": "__main__"})
    return out.getvalue()


class Array:
    """An array of a double: NumPy's memory stands in for the GPU's."""

    version = 3

    def __init__(self, values: Any, conj: bool = False, mended: bool = False) -> None:
        self.values, self._conj = np.asarray(values), conj
        self.data = SimpleNamespace(ptr=self.data_ptr())

    def data_ptr(self) -> int:
        return int(self.values.__array_interface__["data"][0])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        said = dict(self.values.__array_interface__)
        said["version"] = self.version
        if self.version > 2:
            said["stream"] = current[-1].ptr if current else None
        return said

    def is_conj(self) -> bool:
        return self._conj

    def conj(self) -> Array:
        return type(self)(self.values, conj=True)

    def fill(self, value: float) -> None:
        self.values.fill(value)

    def copy_to_device(self, values: Any) -> None:
        self.values[...] = values

    def copy_to_host(self) -> Any:
        return self.values

    def tolist(self) -> Any:
        return self.values.tolist()


class Second(Array):
    version = 2


current: list[Any] = []


class Stream:
    """A stream, the current one in its block."""

    def __init__(self, **_: Any) -> None:
        self.ptr = id(self)

    def __enter__(self) -> Stream:
        current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        current.pop()


class Shared:
    """NumPy's view of an interface's memory, taken for writable and of the machine's byte order."""

    def __init__(self, said: dict[str, Any]) -> None:
        typestr = said["typestr"].replace(">", "<")
        data = (said["data"][0], False)
        self.__array_interface__ = {
            "shape": said["shape"],
            "typestr": typestr,
            "data": data,
            "version": 3,
        }


def taken(x: Any, kind: type[Array], **_: Any) -> Array:
    """An array of an interface, by its pointer, shape and kind alone."""
    said = getattr(x, "__cuda_array_interface__", None)
    return kind(x if said is None else np.asarray(Shared(said)))


def _module(name: str, **members: Any) -> dict[str, ModuleType]:
    module = ModuleType(name)
    module.__dict__.update(members)
    return {name: module}


_NUMBA = _module("numba.cuda", to_device=Array, as_cuda_array=lambda x: taken(x, Array))
_JAX = _module(
    "jax.numpy",
    zeros=lambda shape: Second(np.zeros(shape, "float32")),
    array=Second,
    asarray=lambda x: taken(x, Second),
)
DOUBLES = {
    "torch": _module(
        "torch",
        zeros=lambda shape, **_: Second(np.zeros(shape, "float32")),
        tensor=lambda values, **_: Second(values),
        as_tensor=lambda x, **_: taken(x, Second),
    ),
    "cupy": _module(
        "cupy",
        zeros=lambda shape: Array(np.zeros(shape)),
        ones=lambda shape: Array(np.ones(shape)),
        asarray=lambda x: taken(x, Array),
        cuda=SimpleNamespace(Stream=Stream),
    ),
    "numba": {**_NUMBA, **_module("numba", cuda=_NUMBA["numba.cuda"])},
    "jax": {**_JAX, **_module("jax", numpy=_JAX["jax.numpy"])},
}


@contextlib.contextmanager
def doubled(library: str) -> Iterator[None]:
    """The double is imported in the library's place; tvm-ffi is here itself."""
    with mock.patch.dict(sys.modules, DOUBLES.get(library, {})):
        yield
