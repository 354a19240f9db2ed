"""CuPy's quick route: memory, a pointer and an array, made of CuPy's own parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cai_bridge import to_cai
from cai_bridge._libraries import _cupy


class ByNew:
    """As CuPy's ndarray: `__new__` makes it whole, and `__init__` takes all and does nothing."""

    began = 0

    def __new__(cls, *said: Any) -> ByNew:
        self = super().__new__(cls)
        self.said = said
        return self

    def __init__(self, *said: Any) -> None:
        type(self).began += 1


class ByInit:
    def __init__(self, *said: Any) -> None:
        self.said = said


def test_only_a_new_of_pythons_makes_whole_arrays() -> None:
    assert _cupy._new(ByNew) is ByNew.__new__
    assert _cupy._new(ByInit) is None
    assert _cupy._new(np.ndarray) is None


@pytest.mark.parametrize("kind", [ByNew, ByInit])
def test_cupys_route_makes_memory_a_pointer_and_an_array(
    kind: type[ByNew | ByInit], cuda: Any
) -> None:
    view = to_cai(cuda.array([0.0] * 4), stream=-1)
    route = _cupy._Ndarrays(kind, _cupy._new(kind), lambda *said: said, lambda *said: said)
    made = route(view, None)
    memory = (view.ptr, 4 * view.size, view, 0)
    assert type(made) is kind
    assert made.said == (view.shape, np.dtype("<f4"), (memory, 0), None)
    assert not ByNew.began
