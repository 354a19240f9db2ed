"""CuPy's quick route: memory, a pointer and an array, made of CuPy's own parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cai_bridge import to_cai
from cai_bridge._libraries import _cupy


class Base:
    """As CuPy's `_ndarray_base`: `_init` fills in what `__new__` made."""

    def _init(self, *said: Any) -> None:
        self.said = said


class ByHalves(Base):
    """As CuPy's ndarray: `__new__` makes it whole, and `__init__` takes all and does nothing."""

    begun = 0

    def __new__(cls, *said: Any) -> ByHalves:
        cls.begun += 1
        self = super().__new__(cls)
        self._init(*said)
        return self

    def __init__(self, *said: Any) -> None:
        type(self).begun += 1


class ByInit:
    def __init__(self, *said: Any) -> None:
        self.said = said


def test_cupys_arrays_are_made_by_halves_where_it_has_them() -> None:
    assert _cupy._halves(ByHalves) == (object.__new__, Base._init)
    assert _cupy._halves(ByInit) is None
    assert _cupy._halves(np.ndarray) is None


@pytest.mark.parametrize("kind", [ByHalves, ByInit])
def test_cupys_route_makes_memory_a_pointer_and_an_array(
    kind: type[ByHalves | ByInit], cuda: Any
) -> None:
    view = to_cai(cuda.array([0.0] * 4), stream=-1)
    route = _cupy._Ndarrays(kind, _cupy._halves(kind), lambda *said: said, lambda *said: said)
    made = route(view, None)
    memory = (view.ptr, 4 * view.size, view, 0)
    assert type(made) is kind
    assert made.said == (view.shape, np.dtype("<f4"), (memory, 0), None)
    assert not ByHalves.begun
